// SPDX-License-Identifier: Apache-2.0
// FP8 products by cuBLASLt, looked for at run time: D[M,N] = A[M,K] W[N,K]^T, E4M3 in, BF16 out.
// The few types and numbers of cublasLt.h that this takes are repeated here, so that nothing of
// CUDA is needed to build. cuBLASLt is column-major: there, D^T[N,M] = W^T (transposed) A^T, with W
// as its first matrix.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "octavo/error.hpp"

namespace octavo::cli {

// cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t.
struct CublasLtAlgorithm {
  std::array<std::uint64_t, 8> data;
};
struct CublasLtHeuristicResult {
  CublasLtAlgorithm algorithm;
  std::size_t workspace_bytes;
  int status;
  float waves;
  std::array<int, 4> reserved;
};
static_assert(sizeof(CublasLtHeuristicResult) == 96);

// Numbers of cublasLt.h, cublas_api.h and library_types.h.
inline constexpr int kCublasCompute32F = 68;
inline constexpr int kCublasTransposed = 1;
inline constexpr int kCublasNotTransposed = 0;
inline constexpr int kCudaF32 = 0;
inline constexpr int kCudaBf16 = 14;
inline constexpr int kCudaE4M3 = 28;
inline constexpr int kPreferenceMaxWorkspace = 1;
enum class CublasLtAttribute : int {  // cublasLtMatmulDescAttributes_t
  kTransposeA = 3,
  kTransposeB = 4,
  kScaleOfA = 17,
  kScaleOfB = 18,
  kFastAccumulation = 25,
  kScaleModeOfA = 31,
  kScaleModeOfB = 32,
};
inline constexpr std::int32_t kScaleModeVec128 = 4;      // VEC128_32F
inline constexpr std::int32_t kScaleModeBlk128x128 = 5;  // BLK128x128_32F
enum class CublasLtConfig : int {                        // cublasLtMatmulAlgoConfigAttributes_t
  kId = 0,
  kTile = 1,
  kSplitK = 2,
  kStages = 6,
  kCluster = 8,
};

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

  static void check(int code, const char* call) {
    if (code == 0) return;
    throw Error(ErrorCode::kUnsupported, fmt::format("{} fails with cuBLAS status {}", call, code));
  }

  [[nodiscard]] std::string version() const {
    const std::size_t number = get_version();
    return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
  }

  std::size_t (*get_version)() = nullptr;
  int (*create)(void**) = nullptr;
  int (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                const void*, void*, void*, void*, const CublasLtAlgorithm*, void*, std::size_t,
                void*) = nullptr;
  int (*create_product)(void**, int, int) = nullptr;
  int (*destroy_product)(void*) = nullptr;
  int (*set_product)(void*, int, const void*, std::size_t) = nullptr;
  int (*create_layout)(void**, int, std::uint64_t, std::uint64_t, std::int64_t) = nullptr;
  int (*destroy_layout)(void*) = nullptr;
  int (*create_preference)(void**) = nullptr;
  int (*destroy_preference)(void*) = nullptr;
  int (*set_preference)(void*, int, const void*, std::size_t) = nullptr;
  int (*get_heuristic)(void*, void*, void*, void*, void*, void*, void*, int,
                       CublasLtHeuristicResult*, int*) = nullptr;
  int (*get_config)(const CublasLtAlgorithm*, int, void*, std::size_t, std::size_t*) = nullptr;
  void* handle = nullptr;
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
    CublasLt::check(api.create_product(&product_, kCublasCompute32F, kCudaF32),
                    "cublasLtMatmulDescCreate");
    set(CublasLtAttribute::kTransposeA, std::int32_t{kCublasTransposed});
    set(CublasLtAttribute::kTransposeB, std::int32_t{kCublasNotTransposed});
    set(CublasLtAttribute::kFastAccumulation, std::int8_t{sum == CublasLtSum::kFast});
    if (scales == CublasLtScales::kBlock) {
      set(CublasLtAttribute::kScaleModeOfA, kScaleModeBlk128x128);
      set(CublasLtAttribute::kScaleModeOfB, kScaleModeVec128);
    }
    const auto extent = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    CublasLt::check(api.create_layout(&w_, kCudaE4M3, extent(k), extent(n), k),
                    "cublasLtMatrixLayoutCreate");
    CublasLt::check(api.create_layout(&a_, kCudaE4M3, extent(k), extent(m), k),
                    "cublasLtMatrixLayoutCreate");
    CublasLt::check(api.create_layout(&d_, kCudaBf16, extent(n), extent(m), n),
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
  std::vector<CublasLtAlgorithm> candidates(const CublasLtOperands& operands) {
    constexpr int kMaxCandidates = 8;
    set_scales(operands);
    void* preference = nullptr;
    CublasLt::check(api_.create_preference(&preference), "cublasLtMatmulPreferenceCreate");
    const std::size_t workspace_bytes = kWorkspaceBytes;
    std::array<CublasLtHeuristicResult, kMaxCandidates> results{};
    int count = 0;
    int code = api_.set_preference(preference, kPreferenceMaxWorkspace, &workspace_bytes,
                                   sizeof(workspace_bytes));
    if (code == 0) {
      code = api_.get_heuristic(api_.handle, product_, w_, a_, d_, d_, preference, kMaxCandidates,
                                results.data(), &count);
    }
    (void)api_.destroy_preference(preference);
    CublasLt::check(code, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<CublasLtAlgorithm> algorithms;
    for (int i = 0; i < count; ++i) {
      const CublasLtHeuristicResult& result = results[static_cast<std::size_t>(i)];
      if (result.status == 0) algorithms.push_back(result.algorithm);
    }
    return algorithms;
  }

  void use(const CublasLtAlgorithm& algorithm) { algorithm_ = algorithm; }

  void enqueue(const CublasLtOperands& operands, void* stream) {
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
                       config<std::int32_t>(CublasLtConfig::kId),
                       config<std::uint32_t>(CublasLtConfig::kTile),
                       config<std::uint32_t>(CublasLtConfig::kStages),
                       config<std::uint16_t>(CublasLtConfig::kCluster),
                       config<std::uint32_t>(CublasLtConfig::kSplitK));
  }

 private:
  template <typename T>
  void set(CublasLtAttribute attribute, const T& value) {
    const int code = api_.set_product(product_, static_cast<int>(attribute), &value, sizeof(value));
    if (code != 0) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("cublasLtMatmulDescSetAttribute refuses attribute {} (status {})",
                              static_cast<int>(attribute), code));
    }
  }
  void set_scales(const CublasLtOperands& operands) {
    set(CublasLtAttribute::kScaleOfA, operands.w_scale);
    set(CublasLtAttribute::kScaleOfB, operands.a_scale);
  }
  template <typename T>
  [[nodiscard]] std::string config(CublasLtConfig attribute) const {
    T value = 0;
    std::size_t written = 0;
    if (api_.get_config(&algorithm_, static_cast<int>(attribute), &value, sizeof(value),
                        &written) != 0) {
      return "?";
    }
    return std::to_string(value);
  }

  const CublasLt& api_;
  void* workspace_;
  void* product_ = nullptr;
  void* w_ = nullptr;
  void* a_ = nullptr;
  void* d_ = nullptr;
  CublasLtAlgorithm algorithm_{};
};

}  // namespace octavo::cli
