// SPDX-License-Identifier: Apache-2.0
#include "attention_request.hpp"

#include <array>

#include "gemm_request.hpp"
#include "options.hpp"

namespace octavo::cli {
namespace {

constexpr std::array kScaleKinds{AttentionScale::kNone, AttentionScale::kTensor,
                                 AttentionScale::kHead, AttentionScale::kBatchHead,
                                 AttentionScale::kPageHead};
constexpr std::array kMasks{AttentionMask::kNone, AttentionMask::kCausal};
constexpr std::array kLengthKinds{Lengths::kEqual, Lengths::kRandom};

}  // namespace

void add_attention_options(CLI::App& verb, AttentionRequest& request) {
  constexpr Bounds<std::int64_t> kLengthBounds{0, std::int64_t{1} << 24};
  constexpr Bounds<std::int64_t> kHeadBounds{1, 4096};
  constexpr Bounds<std::int64_t> kDimBounds{1, 1024};
  constexpr Bounds<std::int64_t> kWindowBounds{-1, std::int64_t{1} << 24};
  constexpr double kMaxSoftcap = 1e6;
  add_integer(verb, "--batch", request.batch, {0, std::int64_t{1} << 16}, "Sequences");
  add_integer(verb, "--q-len", request.q_len, kLengthBounds, "Queries of each sequence");
  add_integer(verb, "--kv-len", request.kv_len, kLengthBounds, "Keys of each sequence");
  add_integer(verb, "--heads", request.heads, kHeadBounds, "Query heads");
  add_integer(verb, "--kv-heads", request.kv_heads, kHeadBounds, "Key and value heads");
  add_integer(verb, "--head-dim", request.head_dim, kDimBounds, "Elements of a query and a key");
  add_integer(verb, "--v-dim", request.v_dim, {0, kDimBounds.high},
              "Elements of a value; 0: as --head-dim");
  add_integer(verb, "--page-size", request.page_size, {0, 65536},
              "Keys of a page; 0: K and V are dense");
  add_enum(verb, "--lengths", request.lengths, kLengthKinds,
           "Keys in use: all, or a random number for each sequence");
  add_enum(verb, "--dtype", request.dtype, kValueTypes, "Type of Q, K and V");
  add_enum(verb, "--o-dtype", request.o_dtype, kValueTypes, "Type of the output");
  add_enum(verb, "--scales", request.scales, kScaleKinds, "What shares one scale");
  add_enum(verb, "--mask", request.mask, kMasks, "Causal is aligned bottom-right");
  add_integer(verb, "--window-left", request.window_left, kWindowBounds,
              "Keys seen before a query's own; -1: all");
  add_integer(verb, "--window-right", request.window_right, kWindowBounds,
              "Keys seen after a query's own; -1: all");
  add_decimal(verb, "--softcap", request.softcap, {0, kMaxSoftcap},
              "Scores become c * tanh(scores / c); 0: off");
  add_enum(verb, "--data", request.data, kDistributions, "Distribution of the random data");
  add_integer(verb, "--seed", request.seed, {0, INT64_MAX}, "Seed of the random data");
}

void check_options(const AttentionRequest& request) {
  if (request.scales == AttentionScale::kPageHead && request.page_size == 0) {
    throw UsageError(
        "--scales: \"page_head\" was given with dense K and V; scales per page need pages. Give "
        "--page-size, or --scales batch_head.");
  }
}

Json to_json(const AttentionRequest& request) {
  return {{"op", "attention"},
          {"batch", request.batch},
          {"q_len", request.q_len},
          {"kv_len", request.kv_len},
          {"heads", request.heads},
          {"kv_heads", request.kv_heads},
          {"head_dim", request.head_dim},
          {"v_dim", request.value_dim()},
          {"page_size", request.page_size},
          {"lengths", to_string(request.lengths)},
          {"dtype", to_string(request.dtype)},
          {"o_dtype", to_string(request.o_dtype)},
          {"scales", to_string(request.scales)},
          {"mask", to_string(request.mask)},
          {"window_left", request.window_left},
          {"window_right", request.window_right},
          {"softcap", request.softcap},
          {"data", to_string(request.data)},
          {"seed", request.seed}};
}

}  // namespace octavo::cli
