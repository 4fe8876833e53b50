// SPDX-License-Identifier: Apache-2.0
// Arrays between FP32 and the narrow formats: vectorised, and bit for bit what codec.hpp gives one
// value at a time. Pointers need only the alignment of their element type; input and output do not
// overlap.
#pragma once

#include <cstdint>

#include "octavo/dtype.hpp"

namespace octavo {

// Rounds n values to the array's type (FP8 saturating). Any type but I32.
void encode_array(DType dtype, const float* values, std::int64_t n, void* codes);

// Copies n values; every NaN becomes the GPU's, 0x7FFFFFFF.
void copy_with_canonical_nan(const float* values, std::int64_t n, float* out);

// Any type but I32.
void decode_array(DType dtype, const void* codes, std::int64_t n, float* values);

// The same with strides, in elements; a stride of 1 on both sides takes the vectorised path.
void encode_strided(DType dtype, const float* values, std::int64_t value_stride, std::int64_t n,
                    void* codes, std::int64_t code_stride);
void decode_strided(DType dtype, const void* codes, std::int64_t code_stride, std::int64_t n,
                    float* values, std::int64_t value_stride);

// q[i] = encode(decode(x[i]) * multipliers[i / group_elems]): one FP32 product, then one rounding.
// x is BF16, F16 or F32; q is E4M3 or E5M2.
void scale_and_encode_array(DType x_dtype, const void* x, std::int64_t n, std::int64_t group_elems,
                            const float* multipliers, DType q_dtype, void* q);

// x[i] = round(decode(q[i]) * scales[i / group_elems]). q is E4M3 or E5M2; x is BF16, F16 or F32.
void decode_and_scale_array(DType q_dtype, const void* q, std::int64_t n, std::int64_t group_elems,
                            const float* scales, DType x_dtype, void* x);

}  // namespace octavo
