// SPDX-License-Identifier: Apache-2.0
// Back end "cuda": a name that can be asked for and says plainly that this version has no GPU
// kernels, so that a caller who forces it gets a reason and not an unknown name.
#include "cuda/cuda_backend.hpp"

#include <string>

namespace octavo::cuda {
namespace {

constexpr const char* kUnavailable =
    "this version of Octavo computes on the CPU only; it has no GPU kernels";

SupportReport refusal() {
  SupportReport report;
  report.backend = "cuda";
  report.reasons.push_back(
      {"environment", "backend", "\"cuda\"", std::string("\"cpu\": ") + kUnavailable});
  return report;
}

// Reached only if a caller skips supports().
Error unavailable() {
  return {ErrorCode::kEnvironment,
          std::string("cuda: ") + kUnavailable + ". Use the back end \"cpu\"."};
}

class CudaBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "cuda"; }

  [[nodiscard]] BackendInfo info() const override {
    return {"cuda", "NVIDIA Hopper GPUs", false, kUnavailable};
  }

  [[nodiscard]] SupportReport supports(const GemmProblem&, const Execution&) const override {
    return refusal();
  }
  [[nodiscard]] SupportReport supports(const AttentionProblem&, const Execution&) const override {
    return refusal();
  }
  [[nodiscard]] SupportReport supports(const QuantizeProblem&, const Execution&) const override {
    return refusal();
  }
  [[nodiscard]] SupportReport supports(const DequantizeProblem&, const Execution&) const override {
    return refusal();
  }

  [[nodiscard]] Result<GemmReport> gemm(const GemmProblem&, const Execution&) const override {
    return unavailable();
  }
  [[nodiscard]] Result<AttentionReport> attention(const AttentionProblem&,
                                                  const Execution&) const override {
    return unavailable();
  }
  [[nodiscard]] Result<QuantizeReport> quantize(const QuantizeProblem&,
                                                const Execution&) const override {
    return unavailable();
  }
  [[nodiscard]] Result<QuantizeReport> dequantize(const DequantizeProblem&,
                                                  const Execution&) const override {
    return unavailable();
  }

  [[nodiscard]] std::size_t workspace_bytes(const GemmProblem&, const Execution&) const override {
    return 0;
  }
  [[nodiscard]] std::size_t workspace_bytes(const AttentionProblem&,
                                            const Execution&) const override {
    return 0;
  }
};

}  // namespace

std::unique_ptr<Backend> make_backend() { return std::make_unique<CudaBackend>(); }

}  // namespace octavo::cuda
