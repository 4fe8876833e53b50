// SPDX-License-Identifier: Apache-2.0
// The README's example: two matrices to FP8 and their product. Compiled and run by the tests.
#include <cstdio>
#include <vector>

#include "octavo/octavo.hpp"

int main() {
  using namespace octavo;
  const std::int64_t m = 4, n = 256, k = 512;
  std::vector<float> x(m * k, 0.5F), w(n * k, 0.25F), x_scale(m), w_scale(n), d(m * n);
  std::vector<std::uint8_t> x_codes(m * k), w_codes(n * k);
  const auto a = make_view(x_codes.data(), DType::kE4M3, {m, k});
  const auto b = make_view(w_codes.data(), DType::kE4M3, {n, k});
  const auto a_scale = make_view(x_scale.data(), DType::kF32, {m});  // one for each row
  const auto b_scale = make_view(w_scale.data(), DType::kF32, {n});
  quantize({make_view(x.data(), DType::kF32, {m, k}), a, ScaleGranularity::kRow, a_scale});
  quantize({make_view(w.data(), DType::kF32, {n, k}), b, ScaleGranularity::kRow, b_scale});
  GemmProblem product;
  product.a = a;
  product.b = b;
  product.d = make_view(d.data(), DType::kF32, {m, n});
  product.recipe = ScaleRecipe::kRow;
  product.a_scale = a_scale;
  product.b_scale = b_scale;
  const GemmReport report = gemm(product);
  std::printf("%s: d[0] = %g\n", report.kernel.c_str(), static_cast<double>(d[0]));
}
