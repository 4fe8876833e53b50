// SPDX-License-Identifier: Apache-2.0
// FP8 products by cuBLASLt, looked for at run time: D[M,N] = A[M,K] W[N,K]^T, E4M3 in, BF16 out.
// cuBLASLt is column-major: there, D^T[N,M] = W^T (transposed) A^T, with W as its first matrix.
#pragma once

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "octavo/error.hpp"

namespace octavo::bench {

class CublasLt {
 public:
  // `path`: the library's file; empty to look where the loader looks.
  explicit CublasLt(const std::string& path) {
    std::vector<std::string> names = {"libcublasLt.so.13",
                                      "/usr/local/cuda/lib64/libcublasLt.so.13",
                                      "libcublasLt.so.12", "libcublasLt.so"};
    if (!path.empty()) names = {path};
    void* library = nullptr;
    for (const std::string& name : names) {
      library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
      if (library != nullptr) break;
    }
    if (library == nullptr) {
      throw Error(
          ErrorCode::kEnvironment,
          fmt::format("cuBLASLt is not found as {} ({}). Set LD_LIBRARY_PATH or --cublaslt.",
                      names.front(), dlerror()));
    }
    const auto need = [library](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) {
        throw Error(ErrorCode::kEnvironment, fmt::format("cuBLASLt lacks {}", name));
      }
    };
    need("cublasLtGetVersion", get_version);
    need("cublasLtCreate", create);
    need("cublasLtMatmul", matmul);
    need("cublasLtMatmulDescCreate", create_product);
    need("cublasLtMatmulDescDestroy", destroy_product);
    need("cublasLtMatmulDescSetAttribute", set_product);
    need("cublasLtMatrixLayoutCreate", create_layout);
    need("cublasLtMatrixLayoutDestroy", destroy_layout);
    need("cublasLtMatmulPreferenceCreate", create_preference);
    need("cublasLtMatmulPreferenceDestroy", destroy_preference);
    need("cublasLtMatmulPreferenceSetAttribute", set_preference);
    need("cublasLtMatmulAlgoGetHeuristic", get_heuristic);
    need("cublasLtMatmulAlgoConfigGetAttribute", get_config);
    check(create(&handle), "cublasLtCreate");
  }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  // NOTE: the handle lives as long as the process, as the library does.
  ~CublasLt() = default;

  static void check(cublasStatus_t code, const char* call) {
    if (code == CUBLAS_STATUS_SUCCESS) return;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} fails with cuBLAS status {}", call, static_cast<int>(code)));
  }

  [[nodiscard]] std::string version() const {
    const std::size_t number = get_version();
    return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
  }

  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_product = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_config = nullptr;
  cublasLtHandle_t handle = nullptr;
};

enum class CublasLtScales { kTensor, kBlock };
enum class CublasLtSum { kFast, kDefault };

// Device memory of one call.
struct CublasLtOperands {
  const void* a;
  const void* w;
  const float* a_scale;
  const float* w_scale;
  void* d;
};

// One shape and scaling; which algorithm serves it is chosen from outside (use()).
class CublasLtProduct {
 public:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20U;

  CublasLtProduct(const CublasLt& api, std::int64_t m, std::int64_t n, std::int64_t k,
                  CublasLtScales scales, CublasLtSum sum, void* workspace)
      : api_(api), workspace_(workspace) {
    CublasLt::check(api.create_product(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                    "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{sum == CublasLtSum::kFast});
    if (scales == CublasLtScales::kBlock) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
          std::int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F});
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, std::int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F});
    }
    const auto extent = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    CublasLt::check(api.create_layout(&w_, CUDA_R_8F_E4M3, extent(k), extent(n), k),
                    "cublasLtMatrixLayoutCreate");
    CublasLt::check(api.create_layout(&a_, CUDA_R_8F_E4M3, extent(k), extent(m), k),
                    "cublasLtMatrixLayoutCreate");
    CublasLt::check(api.create_layout(&d_, CUDA_R_16BF, extent(n), extent(m), n),
                    "cublasLtMatrixLayoutCreate");
  }
  CublasLtProduct(const CublasLtProduct&) = delete;
  CublasLtProduct& operator=(const CublasLtProduct&) = delete;
  // NOTE: a constructor that throws leaves descriptors behind: a few hundred bytes, once a shape.
  ~CublasLtProduct() {
    (void)api_.destroy_layout(d_);
    (void)api_.destroy_layout(a_);
    (void)api_.destroy_layout(w_);
    (void)api_.destroy_product(product_);
  }

  // What the heuristic offers, best first by its own reckoning.
  std::vector<cublasLtMatmulAlgo_t> candidates(const CublasLtOperands& operands) {
    constexpr int kMaxCandidates = 8;
    set_scales(operands);
    cublasLtMatmulPreference_t preference = nullptr;
    CublasLt::check(api_.create_preference(&preference), "cublasLtMatmulPreferenceCreate");
    const std::size_t workspace_bytes = kWorkspaceBytes;
    std::array<cublasLtMatmulHeuristicResult_t, kMaxCandidates> results{};
    int count = 0;
    cublasStatus_t code = api_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace_bytes, sizeof(workspace_bytes));
    if (code == CUBLAS_STATUS_SUCCESS) {
      code = api_.get_heuristic(api_.handle, product_, w_, a_, d_, d_, preference, kMaxCandidates,
                                results.data(), &count);
    }
    (void)api_.destroy_preference(preference);
    CublasLt::check(code, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
      if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
    }
    return algorithms;
  }

  void use(const cublasLtMatmulAlgo_t& algorithm) { algorithm_ = algorithm; }

  void enqueue(const CublasLtOperands& operands, cudaStream_t stream) {
    set_scales(operands);
    const float alpha = 1;
    const float beta = 0;
    CublasLt::check(api_.matmul(api_.handle, product_, &alpha, operands.w, w_, operands.a, a_,
                                &beta, operands.d, d_, operands.d, d_, &algorithm_, workspace_,
                                kWorkspaceBytes, stream),
                    "cublasLtMatmul");
  }

  // Numbers as in cublasLt.h: cublasLtMatmulTile_t, cublasLtMatmulStages_t, cublasLtClusterShape_t.
  [[nodiscard]] std::string algorithm_text() const {
    return fmt::format("algorithm {} tile {} stages {} cluster {} split-K {}",
                       config<std::int32_t>(CUBLASLT_ALGO_CONFIG_ID),
                       config<std::uint32_t>(CUBLASLT_ALGO_CONFIG_TILE_ID),
                       config<std::uint32_t>(CUBLASLT_ALGO_CONFIG_STAGES_ID),
                       config<std::uint16_t>(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
                       config<std::uint32_t>(CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
  }

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    const cublasStatus_t code = api_.set_product(product_, attribute, &value, sizeof(value));
    if (code != CUBLAS_STATUS_SUCCESS) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("cublasLtMatmulDescSetAttribute refuses attribute {} (status {})",
                              static_cast<int>(attribute), static_cast<int>(code)));
    }
  }
  void set_scales(const CublasLtOperands& operands) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.w_scale);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.a_scale);
  }
  template <typename T>
  [[nodiscard]] std::string config(cublasLtMatmulAlgoConfigAttributes_t attribute) const {
    T value = 0;
    std::size_t written = 0;
    if (api_.get_config(&algorithm_, attribute, &value, sizeof(value), &written) !=
        CUBLAS_STATUS_SUCCESS) {
      return "?";
    }
    return std::to_string(value);
  }

  const CublasLt& api_;
  void* workspace_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t d_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace octavo::bench
