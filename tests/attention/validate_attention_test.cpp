// SPDX-License-Identifier: Apache-2.0
// Every rule of src/api/validate_attention.cpp: broken alone, it gives its message, which names the
// argument, what was given, the rule and the fix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attention/attention_case.hpp"

namespace octavo::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Indices and scales that a test may point a view at.
const std::vector<std::int32_t> kSomeIndices(64, 0);
const std::vector<float> kOnes(64, 1.0F);

TensorView indices(std::initializer_list<std::int64_t> shape) {
  return make_view(kSomeIndices.data(), DType::kI32, shape);
}

TensorView ones(std::initializer_list<std::int64_t> shape) {
  return make_view(kOnes.data(), DType::kF32, shape);
}

struct Rule {
  const char* name;
  KeyLayout layout;  // variable-length keys come with variable-length queries
  std::function<void(AttentionProblem&)> break_it;
  const char* message;
};

void PrintTo(const Rule& rule, std::ostream* os) { *os << rule.name; }

class ValidateAttention : public ::testing::TestWithParam<Rule> {};

AttentionSetup valid_setup(KeyLayout layout) {
  AttentionSetup setup;
  setup.q_lengths = {3, 3};
  setup.k_lengths = {20, 9};
  setup.key_layout = layout;
  setup.query_layout = layout == KeyLayout::kVarlen ? QueryLayout::kVarlen : QueryLayout::kDense;
  setup.num_q_heads = 4;
  setup.num_kv_heads = 2;
  setup.dim_qk = 16;
  setup.dim_vo = 8;
  return setup;
}

TEST(ValidateAttention, the_problems_that_are_broken_below_are_valid) {
  for (const KeyLayout layout : {KeyLayout::kDense, KeyLayout::kVarlen, KeyLayout::kPaged}) {
    AttentionCase made(valid_setup(layout));
    EXPECT_NO_THROW(made.run(Numerics::kBlocked));
  }
}

TEST_P(ValidateAttention, message) {
  AttentionCase made(valid_setup(GetParam().layout));
  GetParam().break_it(made.problem());
  Execution execution;
  execution.backend = "cpu";
  try {
    attention(made.problem(), execution);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), ::testing::StartsWith("attention: "));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(GetParam().message));
    // A sentence with the fix ends it.
    EXPECT_THAT(error.what(), ::testing::EndsWith("."));
  }
}

constexpr KeyLayout kDense = KeyLayout::kDense;
constexpr KeyLayout kVarlen = KeyLayout::kVarlen;
constexpr KeyLayout kPaged = KeyLayout::kPaged;
using P = AttentionProblem;

// Index tensors with chosen contents.
template <std::int32_t... kValues>
TensorView index_values() {
  static const std::int32_t values[] = {kValues...};
  return make_view(values, DType::kI32, {static_cast<std::int64_t>(sizeof...(kValues))});
}

TensorView nan_scale() {
  static const float value = kNan;
  return make_view(&value, DType::kF32, {1});
}

const Rule kRules[] = {
    {"rank", kDense, [](P& p) { p.q.rank = 5; }, "q has rank 5; a view has 0 to 4 dimensions."},
    {"negative_extent", kDense, [](P& p) { p.v.shape[1] = -1; },
     "v has shape [2, -1, 2, 8]; no extent may be negative."},
    {"too_large", kDense, [](P& p) { p.k.strides[0] = std::numeric_limits<std::int64_t>::max(); },
     "k has shape [2, 23, 2, 16]; its elements must fit in 2^63 bytes."},
    {"null_data", kDense, [](P& p) { p.k.data = nullptr; },
     "k has shape [2, 23, 2, 16] and no memory (data is null)"},
    {"q_absent", kDense, [](P& p) { p.q = {}; }, "q is absent; it is required, as [batch, Sq, "},
    {"k_absent", kDense, [](P& p) { p.k = {}; }, "k is absent; it is required, as [batch, Sk, "},
    {"v_absent", kDense, [](P& p) { p.v = {}; }, "v is absent;"},
    {"o_absent", kDense, [](P& p) { p.o = {}; }, "o is absent;"},
    {"value_dtype", kDense, [](P& p) { p.k.dtype = DType::kI32; },
     "k has dtype i32; values are e4m3, e5m2, bf16, f16 or f32."},
    {"o_dtype", kDense, [](P& p) { p.o.dtype = DType::kUE8M0; }, "o has dtype ue8m0;"},
    {"dense_q_rank", kDense, [](P& p) { p.q.rank = 3; },
     "q has shape [2, 3, 4]; without q_offsets it needs [batch, Sq, heads, dim]."},
    {"varlen_q_rank", kDense, [](P& p) { p.q_offsets = index_values<0, 3, 6>(); },
     "q has shape [2, 3, 4, 16]; with q_offsets it needs [total_q, heads, dim]."},
    {"dense_k_rank", kVarlen, [](P& p) { p.k_offsets = {}; },
     "k has shape [29, 2, 16]; without k_offsets it needs [batch, Sk, heads, dim] or"},
    {"varlen_k_rank", kDense, [](P& p) { p.k_offsets = index_values<0, 20, 29>(); },
     "k has shape [2, 23, 2, 16]; with k_offsets it needs [total_k, heads, dim]."},
    {"devices", kDense,
     [](P& p) {
       p.v.device = {DeviceKind::kCuda, 1};
     },
     "q is on cpu and v is on cuda:1; all must be on one device."},
    {"k_offsets_and_pages", kVarlen,
     [](P& p) {
       p.page_table = indices({2, 4});
     },
     "k_offsets and page_table are both given;"},
    {"k_offsets_and_lengths", kVarlen, [](P& p) { p.kv_lengths = index_values<20, 9>(); },
     "k_offsets and kv_lengths are both given;"},
    {"pages_without_lengths", kPaged, [](P& p) { p.kv_lengths = {}; },
     "kv_lengths is absent and page_table is given;"},
    {"k_and_v_differ", kDense, [](P& p) { p.v.shape[1] = 22; },
     "k has shape [2, 23, 2, 16] and v [2, 22, 2, 8]; all but their last extents must be equal."},
    {"q_and_k_dims", kDense, [](P& p) { p.q.shape[3] = 15; },
     "q has shape [2, 3, 4, 15] and k [2, 23, 2, 16]; their last extents, the head dim, must"},
    {"dim_of_v", kDense, [](P& p) { p.v.shape[3] = 1025; }, "the head dim of v is 1025; head dims"},
    {"heads", kDense, [](P& p) { p.q.shape[2] = 3; },
     "q has 3 heads and k 2; q's must be a multiple of k's, and above 0."},
    {"no_heads", kDense, [](P& p) { p.k.shape[2] = p.v.shape[2] = 0; }, "q has 4 heads and k 0;"},
    {"q_offsets_shape", kVarlen,
     [](P& p) {
       p.q_offsets = indices({1, 3});
     },
     "q_offsets has shape [1, 3]; it needs [batch + 1]"},
    {"too_many_queries", kDense,
     [](P& p) {
       p.q.shape[1] = std::int64_t{1} << 31;
       p.q.strides[1] = 0;
     },
     "q has 2147483648 queries a sequence; at most 2147483647 are served."},
    {"o_shape", kDense, [](P& p) { p.o.shape[1] = 2; },
     "o has shape [2, 2, 4, 8]; with q [2, 3, 4, 16] and v [2, 23, 2, 8] it must have"},
    {"o_dim", kDense, [](P& p) { p.o.shape[3] = 7; }, "o has shape [2, 3, 4, 7];"},
    {"page_table_shape", kPaged, [](P& p) { p.page_table.shape[0] = 1; },
     "page_table has shape [1, 3]; with 2 sequences it needs [2, max_pages]."},
    {"page_size", kPaged, [](P& p) { p.k.shape[1] = p.v.shape[1] = 0; },
     "k has shape [5, 0, 2, 16], pages of 0 keys;"},
    {"dense_batch", kDense, [](P& p) { p.k.shape[0] = p.v.shape[0] = 1; },
     "q holds 2 sequences and k has shape [1, 23, 2, 16];"},
    {"too_many_keys", kDense,
     [](P& p) {
       p.k.shape[1] = p.v.shape[1] = std::int64_t{1} << 31;
       p.k.strides[1] = p.v.strides[1] = 0;
     },
     "k has 2147483648 keys a sequence; at most 2147483647 are served."},
    {"offsets_dtype", kVarlen, [](P& p) { p.k_offsets.dtype = DType::kF32; },
     "k_offsets has dtype f32; lengths, offsets and page numbers are i32."},
    {"k_offsets_shape", kVarlen, [](P& p) { p.k_offsets = index_values<0, 29>(); },
     "k_offsets has shape [2]; with 2 sequences it needs [3] (batch + 1)."},
    {"offsets_start", kVarlen, [](P& p) { p.k_offsets = index_values<1, 20, 29>(); },
     "k_offsets[0] is 1; offsets start at 0."},
    {"offsets_descend", kVarlen, [](P& p) { p.q_offsets = index_values<0, 4, 3>(); },
     "q_offsets[2] is 3 after 4; offsets must not descend."},
    {"offsets_end", kVarlen, [](P& p) { p.k_offsets = index_values<0, 20, 30>(); },
     "k_offsets[2] is 30; k has only 29 rows."},
    {"lengths_dtype", kDense, [](P& p) { p.kv_lengths.dtype = DType::kF32; },
     "kv_lengths has dtype f32; lengths, offsets and page numbers are i32."},
    {"lengths_shape", kDense, [](P& p) { p.kv_lengths = indices({3}); },
     "kv_lengths has shape [3]; with 2 sequences it needs [2]."},
    {"lengths_negative", kDense, [](P& p) { p.kv_lengths = index_values<20, -1>(); },
     "kv_lengths[1] is -1; it must be 0 to 23 (Sk)."},
    {"lengths_dense", kDense, [](P& p) { p.kv_lengths = index_values<24, 9>(); },
     "kv_lengths[0] is 24; it must be 0 to 23 (Sk)."},
    {"lengths_paged", kPaged, [](P& p) { p.kv_lengths = index_values<20, 49>(); },
     "kv_lengths[1] is 49; it must be 0 to 48 (max_pages * page_size)."},
    {"page_table_dtype", kPaged, [](P& p) { p.page_table.dtype = DType::kF32; },
     "page_table has dtype f32; lengths, offsets and page numbers are i32."},
    {"page_in_use_negative", kPaged, [](P& p) { p.kv_lengths = index_values<20, 17>(); },
     "page_table[1, 1] is -1; sequence 1 has 17 keys, so this entry is in use and must be 0 to 4."},
    {"page_in_use_too_large", kPaged, [](P& p) { p.k.shape[0] = p.v.shape[0] = 3; },
     "page_table[0, 0] is 3; sequence 0 has 20 keys, so this entry is in use and must be 0 to 2."},
    {"softmax_scale", kDense, [](P& p) { p.softmax_scale = kNan; },
     "softmax_scale is nan; it must be finite."},
    {"softcap_negative", kDense, [](P& p) { p.softcap = -1; }, "softcap is -1; it must be finite"},
    {"softcap_infinite", kDense, [](P& p) { p.softcap = std::numeric_limits<float>::infinity(); },
     "softcap is inf;"},
    {"window_left", kDense, [](P& p) { p.window_left = -2; },
     "window_left is -2; it counts keys and is 0 or above, or -1 for no limit."},
    {"window_right", kDense, [](P& p) { p.window_right = -7; }, "window_right is -7;"},
    {"q_scale_per_page", kPaged, [](P& p) { p.q_scale_kind = AttentionScale::kPageHead; },
     "q_scale_kind is page_head; queries are not in pages."},
    {"scale_per_page_without_pages", kDense,
     [](P& p) { p.k_scale_kind = AttentionScale::kPageHead; },
     "k_scale_kind is page_head and page_table is absent;"},
    {"scale_of_no_kind", kDense, [](P& p) { p.v_scale = ones({1}); },
     "v_scale has shape [1] and v_scale_kind is none; none takes no scale."},
    {"scale_absent", kDense, [](P& p) { p.k_scale_kind = AttentionScale::kBatchHead; },
     "k_scale is absent; k_scale_kind batch_head needs [2, 2] (sequences, KV heads)."},
    {"scale_dtype", kDense,
     [](P& p) {
       p.q_scale_kind = AttentionScale::kTensor;
       p.q_scale = ones({1});
       p.q_scale.dtype = DType::kUE8M0;
     },
     "q_scale has dtype ue8m0; attention's scales are f32."},
    {"tensor_scale_shape", kDense,
     [](P& p) {
       p.k_scale_kind = AttentionScale::kTensor;
       p.k_scale = ones({2});
     },
     "k_scale has shape [2]; tensor scales need [1]. See docs/attention.md."},
    {"head_scale_shape", kDense,
     [](P& p) {
       p.q_scale_kind = AttentionScale::kHead;
       p.q_scale = ones({2});
     },
     "q_scale has shape [2]; head scales need [4] (q heads). See docs/attention.md."},
    {"page_scale_shape", kPaged,
     [](P& p) {
       p.v_scale_kind = AttentionScale::kPageHead;
       p.v_scale = ones({2, 2});
     },
     "v_scale has shape [2, 2]; page_head scales need [5, 2] (pages, KV heads)."},
    {"scale_value", kDense,
     [](P& p) {
       p.v_scale_kind = AttentionScale::kTensor;
       p.v_scale = nan_scale();
     },
     "v_scale[0] is nan; scales must be finite, positive and from 2^-126 to 2^126."},
    {"o_scale_without_fp8", kDense, [](P& p) { p.o_scale = ones({1}); },
     "o_scale is given and o has dtype f32; only an e4m3 or e5m2 o is divided by a scale."},
    {"o_scale_shape", kDense,
     [](P& p) {
       p.o.dtype = DType::kE4M3;
       p.o_scale = ones({4});
     },
     "o_scale has dtype f32 and shape [4]; it must be one f32 value, shape [1]."},
    {"o_scale_value", kDense,
     [](P& p) {
       p.o.dtype = DType::kE4M3;
       p.o_scale = nan_scale();
     },
     "o_scale is nan; scales must be finite"},
    {"lse_dtype", kDense, [](P& p) { p.lse.dtype = DType::kBF16; },
     "lse has dtype bf16; it is f32."},
    {"lse_shape", kDense, [](P& p) { p.lse.shape[2] = 2; },
     "lse has shape [2, 4, 2]; it needs [2, 4, 3] (batch, q heads, Sq)."},
    {"lse_shape_varlen", kVarlen, [](P& p) { p.lse = transposed(p.lse, 0, 1); },
     "lse has shape [6, 4]; it needs [4, 6] (q heads, total_q with q_offsets)."},
    {"o_misaligned", kDense, [](P& p) { p.o.data = static_cast<char*>(p.o.data) + 1; },
     "o begins 1 bytes past a multiple of 4; f32 elements must be aligned to their size."},
    {"o_written_twice", kDense, [](P& p) { p.o.strides[1] = 0; },
     "o has shape [2, 3, 4, 8] and strides by which some element would be written twice."},
    {"lse_written_twice", kDense, [](P& p) { p.lse.strides[0] = 0; },
     "lse has shape [2, 4, 3] and strides by which some element would be written twice."},
    {"o_overlaps_q", kDense, [](P& p) { p.o.data = const_cast<void*>(p.q.data); },
     "o overlaps q in memory; what o would hold then depends on the order of writing."},
    {"o_overlaps_v", kDense, [](P& p) { p.o.data = const_cast<void*>(p.v.data); },
     "o overlaps v in memory;"},
    {"lse_overlaps_o", kDense, [](P& p) { p.lse.data = p.o.data; }, "o overlaps lse in memory;"},
    {"lse_overlaps_lengths", kDense,
     [](P& p) { p.lse.data = const_cast<void*>(p.kv_lengths.data); },
     "lse overlaps kv_lengths in memory;"},
};

INSTANTIATE_TEST_SUITE_P(Rules, ValidateAttention, ::testing::ValuesIn(kRules),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Scales of what is not in use may be anything.
TEST(ValidateAttentionScales, unused_scales_are_not_checked) {
  AttentionSetup setup = valid_setup(KeyLayout::kDense);
  setup.k_lengths = {20, 0};
  setup.k_scale = setup.v_scale = AttentionScale::kBatchHead;
  AttentionCase made(setup);
  made.k_scales()[2] = made.k_scales()[3] = made.v_scales()[2] = kNan;
  EXPECT_NO_THROW(made.run(Numerics::kBlocked));
}

// Not readable from here, so not checked; that no back end serves them is another error.
TEST(ValidateAttentionScales, device_memory_is_not_read) {
  AttentionCase made(valid_setup(KeyLayout::kPaged));
  AttentionProblem problem = made.problem();
  const Device device{DeviceKind::kCuda, 0};
  problem.q.device = problem.k.device = problem.v.device = problem.o.device = device;
  problem.lse.device = problem.kv_lengths.device = problem.page_table.device = device;
  problem.kv_lengths.data = problem.page_table.data = reinterpret_cast<const void*>(4096);
  Execution execution;
  execution.backend = "cpu";
  try {
    attention(problem, execution);
    FAIL() << "the cpu served device memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace octavo::testing
