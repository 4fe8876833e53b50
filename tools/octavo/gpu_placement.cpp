// SPDX-License-Identifier: Apache-2.0
#include "gpu_placement.hpp"

#include <algorithm>

#include "measure/gpu_stream.hpp"
#include "octavo/gemm.hpp"
#include "octavo/runtime.hpp"

namespace octavo::cli {
namespace {

// Octavo's kernels are for compute capability 9.0 (H100, H200).
constexpr int kHopperMajor = 9;

bool has_usable_gpu() {
  const std::vector<BackendInfo> backends = list_backends();
  const bool available = std::any_of(backends.begin(), backends.end(), [](const BackendInfo& info) {
    return info.name == "cuda" && info.available;
  });
  if (!available) return false;
  const std::vector<GpuDescription> found = gpus();
  return !found.empty() && found.front().compute_major == kHopperMajor &&
         found.front().compute_minor == 0;
}

// The one back end that the environment names; empty if it names none. Only the library reads that
// variable, and what it makes of it shows in the number of reports.
std::string backend_of_environment() {
  HostTensor element(DType::kF32, {1, 1});
  GemmProblem problem;
  problem.a = element.view();
  problem.b = problem.a;
  HostTensor output(DType::kF32, {1, 1});
  problem.d = output.mutable_view();
  const std::vector<SupportReport> reports = supports(problem);
  return reports.size() == 1 ? reports.front().backend : "";
}

}  // namespace

Placement placement_of(const ExecutionRequest& how) {
  const std::string named = how.backend.empty() ? backend_of_environment() : how.backend;
  if (!named.empty()) return named == "cuda" ? Placement::kGpu : Placement::kHost;
  if (how.numerics != Numerics::kDefault) return Placement::kHost;
  return has_usable_gpu() ? Placement::kGpu : Placement::kHost;
}

GpuTensor::GpuTensor(const HostTensor& host) {
  if (host.absent()) return;
  memory_ = DeviceMemory(measure::kGpu, host.bytes().size());
  upload(host);
  const TensorView like = host.view();
  view_ = {memory_.data(), like.dtype, like.rank, like.shape, like.strides, measure::kGpu};
}

}  // namespace octavo::cli
