// SPDX-License-Identifier: Apache-2.0
// Scales for weights that this program quantizes: one per output channel, chosen once at load time,
// so a search is affordable. Activations' scales are dynamic and stay amax / 448.
#pragma once

#include <cstdint>
#include <span>

namespace octavo::llm {

// For every row of weight[scales.size(), cols], of the E4M3 scales that keep the row's largest
// magnitude exact, the one with the least squared error. Rows without a finite positive largest
// magnitude get the scale of octavo::quantize.
//
// The largest weights must stay exact: a model can hang on a single one of them ("super weights",
// arXiv 2411.07191), and the scale of least error alone, without that bound, made SmolLM2's
// perplexity better or worse by chance (docs/experiments.md).
void fit_row_scales(std::span<const float> weight, std::int64_t cols, std::span<float> scales);

}  // namespace octavo::llm
