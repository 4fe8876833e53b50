// SPDX-License-Identifier: Apache-2.0
#include "gemm_operands.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "octavo/quantize.hpp"
#include "tensor_file.hpp"

namespace octavo::cli {
namespace {

// One independent stream of random data for each operand.
enum Stream : int { kStreamA, kStreamB, kStreamBias, kStreamAdded };

// The scale tensor as octavo/scale.hpp shapes it.
HostTensor make_scale(ScaleGranularity granularity, DType dtype, std::int64_t batch,
                      std::int64_t rows, std::int64_t k) {
  const ScaleShape shape = scale_shape(granularity, rows, k);
  switch (granularity) {
    case ScaleGranularity::kNone: return {};
    case ScaleGranularity::kTensor: return {dtype, with_batch(batch, {1})};
    case ScaleGranularity::kRow: return {dtype, with_batch(batch, {shape.rows})};
    case ScaleGranularity::kBlock1x128:
    case ScaleGranularity::kBlock128x128:
      return {dtype, with_batch(batch, {shape.rows, shape.cols})};
  }
  return {};
}

struct Quantized {
  HostTensor q;
  HostTensor scale;
};

Quantized quantize_operand(const HostTensor& exact, DType dtype, ScaleGranularity granularity,
                           DType scale_dtype, std::int64_t batch) {
  if (!is_fp8(dtype) || granularity == ScaleGranularity::kNone) {
    return {dtype == DType::kF32 ? exact : converted(exact, dtype), {}};
  }
  const auto& shape = exact.shape();
  const std::int64_t rows = shape[shape.size() - 2];
  const std::int64_t k = shape.back();
  Quantized result{{dtype, shape}, make_scale(granularity, scale_dtype, batch, rows, k)};
  for (std::int64_t i = 0; i < std::max<std::int64_t>(batch, 1); ++i) {
    QuantizeProblem problem;
    problem.x = batch > 0 ? entry(exact.view(), i) : exact.view();
    problem.q = batch > 0 ? entry(result.q.mutable_view(), i) : result.q.mutable_view();
    problem.scale = batch > 0 ? entry(result.scale.mutable_view(), i) : result.scale.mutable_view();
    problem.granularity = granularity;
    quantize(problem, {.backend = "cpu"});
  }
  return result;
}

}  // namespace

GemmOperands make_operands(const GemmRequest& request) {
  const auto batch = request.batch;
  GemmOperands operands;
  operands.exact_a = random_tensor(request.data, request.seed, kStreamA,
                                   with_batch(batch, {request.m, request.k}));
  operands.exact_b = random_tensor(request.data, request.seed, kStreamB,
                                   with_batch(batch, {request.n, request.k}));
  Quantized a = quantize_operand(operands.exact_a, request.a_dtype, a_granularity(request.recipe),
                                 request.scale_dtype, batch);
  Quantized b = quantize_operand(operands.exact_b, request.b_dtype, b_granularity(request.recipe),
                                 request.scale_dtype, batch);
  operands.a = std::move(a.q);
  operands.a_scale = std::move(a.scale);
  operands.b = std::move(b.q);
  operands.b_scale = std::move(b.scale);
  if (request.bias) {
    operands.bias = random_tensor(request.data, request.seed, kStreamBias, {request.n});
  }
  if (request.accumulate) {
    const HostTensor added = random_tensor(request.data, request.seed, kStreamAdded,
                                           with_batch(batch, {request.m, request.n}));
    operands.added = converted(added, request.d_dtype);
  }
  return operands;
}

void save_operands(const GemmOperands& operands, const std::string& path) {
  TensorMap tensors;
  tensors["a"] = &operands.a;
  tensors["b"] = &operands.b;
  if (operands.a_scale.present()) tensors["a_scale"] = &operands.a_scale;
  if (operands.b_scale.present()) tensors["b_scale"] = &operands.b_scale;
  save_tensors(tensors, path);
}

GemmOperands load_operands(const std::string& path, GemmRequest& request) {
  LoadedTensors file(path);
  GemmOperands operands;
  operands.a = file.required("a");
  operands.b = file.required("b");
  operands.a_scale = file.optional("a_scale");
  operands.b_scale = file.optional("b_scale");
  const auto& a_shape = operands.a.shape();
  const auto& b_shape = operands.b.shape();
  // Anything else about the shapes is the library's to check.
  if ((a_shape.size() != 2 && a_shape.size() != 3) || a_shape.size() != b_shape.size()) {
    throw Error(ErrorCode::kBadFile,
                path +
                    ": tensors a and b must both have two dimensions, or three for a batch. "
                    "Write the file with octavo run gemm --save.");
  }
  request.batch = a_shape.size() == 3 ? a_shape[0] : 0;
  request.m = a_shape[a_shape.size() - 2];
  request.n = b_shape[b_shape.size() - 2];
  request.k = a_shape.back();
  request.a_dtype = operands.a.dtype();
  request.b_dtype = operands.b.dtype();
  if (operands.a_scale.present()) request.scale_dtype = operands.a_scale.dtype();
  // A file of no bytes may still have rows without end: [2^40, 0].
  require_gemm_memory("run gemm", request);
  if (request.bias) {
    operands.bias = random_tensor(request.data, request.seed, kStreamBias, {request.n});
  }
  if (request.accumulate) {
    operands.added = converted(random_tensor(request.data, request.seed, kStreamAdded,
                                             with_batch(request.batch, {request.m, request.n})),
                               request.d_dtype);
  }
  return operands;
}

HostTensor make_output(const GemmRequest& request, const GemmOperands& operands) {
  if (operands.added.present()) return operands.added;
  return {request.d_dtype, with_batch(request.batch, {request.m, request.n})};
}

GemmProblem make_problem(const GemmRequest& request, const GemmOperands& operands, HostTensor& d,
                         const HostTensor& d_scale) {
  GemmProblem problem;
  problem.a = operands.a.view();
  problem.b = operands.b.view();
  problem.d = d.mutable_view();
  problem.recipe = request.recipe;
  problem.a_scale = operands.a_scale.view();
  problem.b_scale = operands.b_scale.view();
  problem.accumulation = request.accumulation;
  problem.output_mode = request.accumulate ? OutputMode::kAccumulate : OutputMode::kOverwrite;
  problem.bias = operands.bias.view();
  problem.d_scale = d_scale.view();
  problem.num_splits = static_cast<int>(request.num_splits);
  return problem;
}

}  // namespace octavo::cli
