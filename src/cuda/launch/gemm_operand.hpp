// SPDX-License-Identifier: Apache-2.0
// A product's operands and scales as kernels read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/launch/kernel_launch.hpp"
#include "cuda/launch/tensor_map.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "octavo/error.hpp"
#include "octavo/tensor_view.hpp"

namespace octavo::cuda {

// Matrix `index` of a batch, or the one there is.
[[nodiscard]] TensorView matrix_of(const TensorView& view, bool batched, std::int64_t index);

// An FP8 operand as the kernel reads it: K-major, every matrix of the batch at batch_stride.
struct Operand {
  const std::byte* data;
  DType dtype;
  std::int64_t num_matrices;
  std::int64_t rows;
  std::int64_t k;
  std::int64_t row_stride;
  std::int64_t batch_stride;
};

// In place, or copied to `memory` by a kernel that this launches.
[[nodiscard]] Result<Operand> place_operand(const KernelLauncher& launcher, const TensorView& view,
                                            const OperandPlan& plan, std::byte* memory);

// The scales of an operand as the kernel reads them.
struct PlacedScales {
  ScaleParams first;          // of the first matrix; null without scales
  std::int64_t batch_stride;  // elements

  [[nodiscard]] std::int64_t batch_bytes() const {
    return batch_stride * (first.is_ue8m0 != 0 ? 1 : static_cast<std::int64_t>(sizeof(float)));
  }
};

// In place, or copied to `memory` by a kernel that this launches. `batched`: a leading dimension of
// matrices or groups.
[[nodiscard]] Result<PlacedScales> place_scales(const KernelLauncher& launcher,
                                                const TensorView& scale, bool batched,
                                                const ScalePlan& plan, std::byte* memory);
[[nodiscard]] ScaleParams matrix_of(const PlacedScales& scales, std::int64_t index);

// One matrix of an operand's.
[[nodiscard]] Operand matrix_of(const Operand& operand, std::int64_t index);

// Sets extents, the order of tiles, the maps of both operands (of all their matrices with
// Grouping::kRows) and how the kernel gets their scales, which are set already. `a_parts`: A's map
// by parts of 64 rows, of products that share a launch.
[[nodiscard]] Status set_operands(const Driver& api, const GemmConfig& config, const Operand& a,
                                  const Operand& b, GemmParams& params,
                                  TensorMap* a_parts = nullptr);

// Sets D's map, if the kernel stores by it, for an output that is set already; of a stack of
// matrices with Grouping::kRows.
[[nodiscard]] Status set_output_map(const Driver& api, const GemmConfig& config, GemmParams& params,
                                    std::int64_t num_matrices = 0, std::int64_t matrix_stride = 0);

// The bias of one matrix.
void set_bias(const TensorView& bias, GemmParams& params);

}  // namespace octavo::cuda
