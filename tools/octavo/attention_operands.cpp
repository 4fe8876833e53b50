// SPDX-License-Identifier: Apache-2.0
#include "attention_operands.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "octavo/quantize.hpp"

namespace octavo::cli {
namespace {

enum Stream : int { kStreamQ, kStreamK, kStreamV, kStreamScales, kStreamPages };

RandomStream stream_of(const AttentionRequest& request, Stream stream) {
  // Far from the streams that random_tensor() derives from the same seed.
  constexpr std::uint64_t kOffset = 0x5DEECE66D0000000U;
  return RandomStream(static_cast<std::uint64_t>(request.seed) + kOffset +
                      static_cast<std::uint64_t>(stream));
}

std::span<std::int32_t> i32(HostTensor& tensor) {
  return {reinterpret_cast<std::int32_t*>(tensor.mutable_bytes().data()),
          static_cast<std::size_t>(tensor.num_elements())};
}

// Which sequence the first index of a K or V tensor belongs to: itself, or its page's owner.
std::vector<std::int64_t> owners(const AttentionRequest& request, HostTensor& page_table) {
  if (page_table.absent()) {
    std::vector<std::int64_t> own(static_cast<std::size_t>(request.batch));
    std::iota(own.begin(), own.end(), 0);
    return own;
  }
  const std::span<std::int32_t> table = i32(page_table);
  std::vector<std::int64_t> owner(table.size());
  const auto per_sequence = static_cast<std::size_t>(request.pages_per_sequence());
  for (std::size_t i = 0; i < table.size(); ++i) {
    owner[static_cast<std::size_t>(table[i])] = static_cast<std::int64_t>(i / per_sequence);
  }
  return owner;
}

// Scales between 1/2 and 2, so that a wrong one is noticed; codes are the data divided by them.
AttentionInput make_input(const AttentionRequest& request, Stream stream, AttentionScale kind,
                          const std::vector<std::int64_t>& owner, std::vector<std::int64_t> shape) {
  AttentionInput input;
  input.exact = random_tensor(request.data, request.seed, stream, shape);
  const std::int64_t heads = shape[2];
  switch (is_fp8(request.dtype) ? kind : AttentionScale::kNone) {
    case AttentionScale::kNone: input.values = converted(input.exact, request.dtype); return input;
    case AttentionScale::kTensor: input.scale = HostTensor(DType::kF32, {1}); break;
    case AttentionScale::kHead: input.scale = HostTensor(DType::kF32, {heads}); break;
    case AttentionScale::kBatchHead:
      input.scale = HostTensor(DType::kF32, {request.batch, heads});
      break;
    case AttentionScale::kPageHead: input.scale = HostTensor(DType::kF32, {shape[0], heads}); break;
  }
  input.kind = kind;
  RandomStream random = stream_of(request, kStreamScales);
  constexpr double kLowest = 0.5;
  constexpr double kRange = 1.5;
  for (float& scale : input.scale.f32()) {
    scale = static_cast<float>(kLowest + kRange * random.next_uniform());
  }
  HostTensor divided = input.exact;
  const std::span<const float> scales = std::as_const(input.scale).f32();
  const auto row_elems = static_cast<std::size_t>(shape[3]);
  std::size_t at = 0;
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    for (std::int64_t j = 0; j < shape[1]; ++j) {
      for (std::int64_t head = 0; head < heads; ++head) {
        std::int64_t idx = 0;
        if (kind == AttentionScale::kHead) idx = head;
        if (kind == AttentionScale::kBatchHead) {
          idx = owner[static_cast<std::size_t>(i)] * heads + head;
        }
        if (kind == AttentionScale::kPageHead) idx = i * heads + head;
        const float scale = scales[static_cast<std::size_t>(idx)];
        for (float& value : divided.f32().subspan(at, row_elems)) value /= scale;
        at += row_elems;
      }
    }
  }
  input.values = converted(divided, request.dtype);
  return input;
}

}  // namespace

AttentionOperands make_operands(const AttentionRequest& request) {
  AttentionOperands operands;
  RandomStream random = stream_of(request, kStreamPages);
  const std::int64_t num_pages = request.pages_per_sequence() * request.batch;
  if (request.page_size > 0) {
    operands.page_table = HostTensor(DType::kI32, {request.batch, request.pages_per_sequence()});
    const std::span<std::int32_t> table = i32(operands.page_table);
    std::iota(table.begin(), table.end(), 0);
    for (std::size_t i = table.size(); i > 1; --i) {
      std::swap(table[i - 1],
                table[static_cast<std::size_t>(random.next_below(static_cast<std::int64_t>(i)))]);
    }
  }
  if (request.page_size > 0 || request.lengths == Lengths::kRandom) {
    operands.kv_lengths = HostTensor(DType::kI32, {request.batch});
    for (std::int32_t& length : i32(operands.kv_lengths)) {
      length = static_cast<std::int32_t>(request.lengths == Lengths::kRandom
                                             ? random.next_below(request.kv_len + 1)
                                             : request.kv_len);
    }
  }
  std::vector<std::int64_t> self(static_cast<std::size_t>(request.batch));
  std::iota(self.begin(), self.end(), 0);
  const std::vector<std::int64_t> owner = owners(request, operands.page_table);
  const AttentionScale q_kind =
      request.scales == AttentionScale::kPageHead ? AttentionScale::kHead : request.scales;
  const bool paged = request.page_size > 0;
  const std::int64_t first = paged ? num_pages : request.batch;
  const std::int64_t second = paged ? request.page_size : request.kv_len;
  operands.q = make_input(request, kStreamQ, q_kind, self,
                          {request.batch, request.q_len, request.heads, request.head_dim});
  operands.k = make_input(request, kStreamK, request.scales, owner,
                          {first, second, request.kv_heads, request.head_dim});
  operands.v = make_input(request, kStreamV, request.scales, owner,
                          {first, second, request.kv_heads, request.value_dim()});
  return operands;
}

HostTensor make_output(const AttentionRequest& request, DType dtype) {
  return {dtype, {request.batch, request.q_len, request.heads, request.value_dim()}};
}

HostTensor make_lse(const AttentionRequest& request) {
  return {DType::kF32, {request.batch, request.heads, request.q_len}};
}

AttentionProblem make_problem(const AttentionRequest& request, const AttentionOperands& operands,
                              InputForm form, HostTensor& o, HostTensor& lse) {
  AttentionProblem problem;
  const auto values = [form](const AttentionInput& input) {
    return form == InputForm::kExact ? input.exact.view() : input.values.view();
  };
  problem.q = values(operands.q);
  problem.k = values(operands.k);
  problem.v = values(operands.v);
  problem.o = o.mutable_view();
  problem.lse = lse.mutable_view();
  problem.kv_lengths = operands.kv_lengths.view();
  problem.page_table = operands.page_table.view();
  problem.mask = request.mask;
  problem.window_left = request.window_left;
  problem.window_right = request.window_right;
  problem.softcap = static_cast<float>(request.softcap);
  if (form == InputForm::kQuantized) {
    problem.q_scale_kind = operands.q.kind;
    problem.k_scale_kind = operands.k.kind;
    problem.v_scale_kind = operands.v.kind;
    problem.q_scale = operands.q.scale.view();
    problem.k_scale = operands.k.scale.view();
    problem.v_scale = operands.v.scale.view();
  }
  return problem;
}

}  // namespace octavo::cli
