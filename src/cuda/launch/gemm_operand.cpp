// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch/gemm_operand.hpp"

#include <cstdint>

#include "backend/group_problem.hpp"
#include "cuda/jit/gemm_source.hpp"
#include "cuda/plan/plan_parts.hpp"
#include "kernels/contract/rasterization.hpp"
#include "kernels/contract/repack_params.hpp"
#include "kernels/contract/stage_scales_params.hpp"

namespace octavo::cuda {
namespace {

ScalePath scale_path(const GemmConfig& config, const GemmParams& params) {
  if (params.a_scale.is_ue8m0 != 0 || params.b_scale.is_ue8m0 != 0) return ScalePath::kDecode;
  constexpr int kVector = 4;
  const bool are_bulk =
      is_bulk(params.a_scale) && (config.recipe != ScaleRecipe::kBlock1d ||
                                  (is_bulk(params.b_scale) && params.n % kVector == 0));
  return are_bulk ? ScalePath::kBulk : ScalePath::kCopy;
}

}  // namespace

TensorView matrix_of(const TensorView& view, bool batched, std::int64_t index) {
  return batched ? element_of(view, index) : view;
}

Result<PlacedScales> place_scales(const KernelLauncher& launcher, const TensorView& scale,
                                  bool batched, const ScalePlan& plan, std::byte* memory) {
  const TensorView first = matrix_of(scale, batched, 0);
  PlacedScales placed{scale_params(first), batched ? scale.strides[0] : 0};
  if (!plan.is_staged) return placed;
  StageScalesParams params{};
  params.from = placed.first;
  params.from_batch_stride = placed.batch_stride;
  params.to = reinterpret_cast<float*>(memory);
  params.to_k_stride = plan.k_stride;
  params.to_batch_stride = plan.batch_stride;
  params.batch = plan.num_copies;
  params.rows = first.shape[0];
  params.k_blocks = first.shape[1];
  if (Status s = launcher.launch_small(kStageScalesEntry, stage_scales_source,
                                       num_scale_squares(params), kStageScalesThreads, params);
      !s.ok()) {
    return s.error();
  }
  placed.first = {memory, 1, plan.k_stride, 0};
  placed.batch_stride = plan.batch_stride;
  return placed;
}

ScaleParams matrix_of(const PlacedScales& scales, std::int64_t index) {
  ScaleParams one = scales.first;
  if (one.data != nullptr) {
    one.data = static_cast<const std::byte*>(one.data) + index * scales.batch_bytes();
  }
  return one;
}

Result<Operand> place_operand(const KernelLauncher& launcher, const TensorView& view,
                              const OperandPlan& plan, std::byte* memory) {
  const bool batched = view.rank == 3;
  const auto row = static_cast<std::size_t>(view.rank - 2);
  Operand result{static_cast<const std::byte*>(view.data),
                 view.dtype,
                 batched ? view.shape[0] : 1,
                 view.shape[row],
                 view.shape[row + 1],
                 view.strides[row],
                 batched ? view.strides[0] : 0};
  if (plan.path == OperandPath::kDirect) {
    // The stride of a single row may be anything; TMA asks for a multiple of 16 bytes.
    if (result.rows == 1) {
      result.row_stride = (result.k + kRepackAlignment - 1) / kRepackAlignment * kRepackAlignment;
    }
    return result;
  }
  RepackParams params{};
  params.from = view.data;
  params.to = memory;
  params.batch = plan.num_copies;
  params.rows = result.rows;
  params.k = result.k;
  params.from_batch_stride = result.batch_stride;
  params.from_row_stride = result.row_stride;
  params.from_k_stride = view.strides[row + 1];
  params.to_batch_stride = plan.batch_stride;
  params.to_row_stride = plan.row_stride;
  params.layout = plan.from;
  if (Status s = launcher.launch_small(kRepackOperandEntry, repack_operand_source,
                                       num_repack_tiles(params), kRepackThreads, params);
      !s.ok()) {
    return s.error();
  }
  result.data = memory;
  result.row_stride = plan.row_stride;
  result.batch_stride = plan.batch_stride;
  return result;
}

Operand matrix_of(const Operand& operand, std::int64_t index) {
  Operand one = operand;
  one.data += index * operand.batch_stride;
  one.num_matrices = 1;
  return one;
}

Status set_operands(const Driver& api, const GemmConfig& config, const Operand& a, const Operand& b,
                    GemmParams& params, TensorMap* a_parts) {
  params.m = static_cast<int>(a.rows);
  params.n = static_cast<int>(b.rows);
  params.k = static_cast<int>(a.k);
  params.raster = rasterization(params.m, params.n, config.tile_m, config.tile_n, config.cluster_m,
                                config.cluster_n, config.raster_group_m);
  params.scale_path = scale_path(config, params);
  const auto set_map = [&](const Operand& operand, int box_rows, TensorMap& map) -> Status {
    MatrixBoxes boxes{operand.data, operand.dtype,      operand.rows,
                      operand.k,    operand.row_stride, box_rows};
    if (config.grouping == Grouping::kRows) {
      boxes.num_matrices = operand.num_matrices;
      boxes.matrix_stride =
          operand.num_matrices > 1 ? operand.batch_stride : operand.rows * operand.row_stride;
    }
    const Result<TensorMap> made = make_tensor_map(api, boxes);
    if (!made.ok()) return made.error();
    map = made.value();
    return Ok{};
  };
  if (Status s = set_map(a, config.tile_m / config.cluster_n, params.a); !s.ok()) return s;
  if (a_parts != nullptr && config.schedule != Schedule::kStreamed) {
    if (Status s = set_map(a, kWarpGroupRows, *a_parts); !s.ok()) return s;
  }
  return set_map(b, config.tile_n / config.cluster_m, params.b);
}

Status set_output_map(const Driver& api, const GemmConfig& config, GemmParams& params,
                      std::int64_t num_matrices, std::int64_t matrix_stride) {
  if (params.stores_directly != 0 || config.schedule == Schedule::kStreamed) return Ok{};
  // As for operands: a single row's stride may be anything.
  constexpr std::int64_t kAnyStride = 16;
  const std::int64_t stride =
      params.m == 1 ? (params.n + kAnyStride - 1) / kAnyStride * kAnyStride : params.output_stride;
  const Result<TensorMap> map =
      make_tensor_map(api, {params.output, config.d, params.m, params.n, stride, kWarpGroupRows,
                            num_matrices, num_matrices > 1 ? matrix_stride : params.m * stride});
  if (!map.ok()) return map.error();
  params.d = map.value();
  return Ok{};
}

void set_bias(const TensorView& bias, GemmParams& params) {
  params.bias = bias.data;
  params.bias_stride = bias.strides[static_cast<std::size_t>(bias.rank - 1)];
  params.bias_dtype = static_cast<unsigned char>(bias.dtype);
}

}  // namespace octavo::cuda
