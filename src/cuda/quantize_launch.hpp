// SPDX-License-Identifier: Apache-2.0
// Quantization and dequantization on a GPU: which kernels a problem takes, and putting them on a
// stream.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/driver.hpp"
#include "kernels/contract/quantize_params.hpp"
#include "octavo/backend.hpp"
#include "octavo/quantize.hpp"

namespace octavo::cuda {

// Why the back end does not serve a validated problem; empty if it does.
[[nodiscard]] std::vector<Reason> quantize_refusals(const QuantizeProblem& problem,
                                                    const Execution& execution);
[[nodiscard]] std::vector<Reason> quantize_refusals(const DequantizeProblem& problem,
                                                    const Execution& execution);

// One kernel and what it is started with.
struct QuantizeLaunch {
  QuantizeConfig config;
  QuantizeParams params;
  std::int64_t num_blocks;
  int num_threads;
};

// In the order in which they run; none where nothing is to be done. kAmax and the kernel after it
// still lack params.partial_amax. The last one names the call in reports.
[[nodiscard]] std::vector<QuantizeLaunch> quantize_launches(const QuantizeProblem& problem,
                                                            int num_multiprocessors);
[[nodiscard]] std::vector<QuantizeLaunch> quantize_launches(const DequantizeProblem& problem,
                                                            int num_multiprocessors);

// Puts them on execution.stream and returns. Nothing is waited for and no host memory is read
// later, so a call may be part of a graph capture once its kernels are loaded.
[[nodiscard]] Status launch_quantize(const DeviceInfo& device, const Execution& execution,
                                     std::vector<QuantizeLaunch> launches);

}  // namespace octavo::cuda
