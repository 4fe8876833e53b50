// SPDX-License-Identifier: Apache-2.0
// Tiles of tensor-core products.
#include "numerics/tensor_core.hpp"

namespace octavo {

void tensor_core_products(const TensorCoreModel& model, const CodeMatrix& a, std::int64_t num_rows,
                          const CodeMatrix& b, std::int64_t num_cols, std::int64_t k,
                          ChainStart start, const ProductRows& out) noexcept {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t col = 0; col < num_cols; ++col) {
      float* value = out.values + row * out.stride + col;
      *value = tensor_core_dot(model, a, row, b, col, k,
                               start == ChainStart::kFromOutput ? value : nullptr);
    }
  }
}

}  // namespace octavo
