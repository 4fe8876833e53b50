// SPDX-License-Identifier: Apache-2.0
// What the plans of one product and of many have in common.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/plan/gemm_plan.hpp"
#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "octavo/tensor_view.hpp"

namespace octavo::cuda {

[[nodiscard]] std::int64_t ceil_div(std::int64_t a, std::int64_t b);
[[nodiscard]] std::int64_t round_up(std::int64_t a, std::int64_t b);

// Types, recipe, sum and what is added, as of a kernel that writes D itself.
[[nodiscard]] GemmConfig base_of(const GemmProblem& problem);

void sort_best_first(std::vector<GemmCandidate>& candidates);

// Adds the reason for which no kernel reads it, if there is one.
void refuse_operand(const char* name, const TensorView& view, std::vector<Reason>& reasons);

[[nodiscard]] OperandPlan plan_operand(const TensorView& view);

// One matrix's scales as kernels get them; null without scales.
[[nodiscard]] ScaleParams scale_params(const TensorView& scale);

// Whether bulk copies bring the scales of a matrix, which move multiples of 16 bytes between
// multiples of 16 bytes.
[[nodiscard]] bool is_bulk(const ScaleParams& scale);

// Whether they bring those of every matrix of a batch or of groups.
[[nodiscard]] bool is_bulk(const TensorView& scale);

// Decides how a product with block scales gets them, once its kernel and that kernel's time are
// set. `n`: columns of D.
void plan_scales(ScaleRecipe recipe, const TensorView& a_scale, const TensorView& b_scale,
                 std::int64_t n, GemmPlan& plan);

// Whether D must be stored element by element: TMA writes whole 16 bytes, and the end of a row that
// is no multiple of them would be followed by others in what may be somebody else's memory.
[[nodiscard]] bool stores_directly(const MutableTensorView& d);

// As many stages as shared memory has room for.
[[nodiscard]] int most_stages(GemmConfig config);
[[nodiscard]] int streamed_unroll(const GemmConfig& config);

// How many clusters of rows a band has, of a product or group of m rows (GemmConfig's
// raster_group_m). Its schedule, tile and cluster are set.
[[nodiscard]] int band_height(const GemmConfig& config, std::int64_t m, std::int64_t k);

}  // namespace octavo::cuda
