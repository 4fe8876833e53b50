// SPDX-License-Identifier: Apache-2.0
// An attention problem with its memory, for tests: built from the lengths of its sequences in any
// layout, filled element by element, with everything that nobody may read poisoned.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "octavo/octavo.hpp"

namespace octavo::testing {

enum class KeyLayout { kDense, kVarlen, kPaged };
enum class QueryLayout { kDense, kVarlen };

struct AttentionSetup {
  // One entry per sequence; with dense queries all are equal.
  std::vector<std::int64_t> q_lengths{1};
  std::vector<std::int64_t> k_lengths{1};
  QueryLayout query_layout = QueryLayout::kDense;
  KeyLayout key_layout = KeyLayout::kDense;
  std::int64_t page_size = 16;
  std::int64_t num_q_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t dim_qk = 64;
  std::int64_t dim_vo = 64;
  DType q_dtype = DType::kF32;
  DType k_dtype = DType::kF32;
  DType v_dtype = DType::kF32;
  DType o_dtype = DType::kF32;
  AttentionScale q_scale = AttentionScale::kNone;
  AttentionScale k_scale = AttentionScale::kNone;
  AttentionScale v_scale = AttentionScale::kNone;
  // What fills unused slots, and unused entries of the page table.
  std::uint8_t poison_byte = 0x7F;
  std::int32_t poison_page = -1;
  // Q, K and V start as standard normal values drawn from this; 0 leaves them poisoned, for tests
  // that fill all of them.
  std::uint32_t seed = 1;
};

// Element `dim` of row `row` (a query or a key) of a head of a sequence.
using ElementFn = std::function<float(std::int64_t sequence, std::int64_t row, std::int64_t head,
                                      std::int64_t dim)>;
// The scale of a head of a sequence; of a page if the scale is per page.
using ScaleFn = std::function<float(std::int64_t sequence_or_page, std::int64_t head)>;

struct AttentionResult {
  std::vector<float> o;    // [query of all sequences in order, q head, dim_vo]
  std::vector<float> lse;  // [query of all sequences in order, q head]
};

class AttentionCase {
 public:
  // Scales are 1.
  explicit AttentionCase(const AttentionSetup& setup);
  AttentionCase(const AttentionCase&) = delete;
  AttentionCase& operator=(const AttentionCase&) = delete;

  // Values are divided by the scale that applies and rounded to the tensor's type.
  void fill_q(const ElementFn& value);
  void fill_k(const ElementFn& value);
  void fill_v(const ElementFn& value);
  // Before the fills.
  void set_scales(const ScaleFn& q_scale, const ScaleFn& k_scale, const ScaleFn& v_scale);

  // For masks, soft cap and so on.
  AttentionProblem& problem() { return problem_; }
  const AttentionSetup& setup() const { return setup_; }

  // Every byte of O and of the LSE is poisoned before each run.
  AttentionResult run(Numerics numerics, int num_threads = 0);

  // The same from the definition, in FP64 on the decoded elements, sharing no code with src/.
  AttentionResult by_definition();

  std::vector<std::uint8_t>& k_bytes() { return k_; }
  std::vector<std::uint8_t>& v_bytes() { return v_; }
  std::vector<float>& k_scales() { return k_scales_; }
  std::vector<float>& v_scales() { return v_scales_; }
  std::vector<std::int32_t>& page_table() { return page_table_; }

  // Offsets in elements of the first element of a row.
  std::int64_t q_row(std::int64_t sequence, std::int64_t row, std::int64_t head) const;
  std::int64_t k_row(std::int64_t sequence, std::int64_t row, std::int64_t head) const;
  std::int64_t v_row(std::int64_t sequence, std::int64_t row, std::int64_t head) const;

 private:
  std::int64_t key_row(std::int64_t sequence, std::int64_t row) const;
  float scale(const std::vector<float>& scales, AttentionScale kind, std::int64_t num_heads,
              std::int64_t sequence, std::int64_t row, std::int64_t head) const;

  AttentionSetup setup_;
  AttentionProblem problem_;
  std::int64_t max_keys_ = 0;
  std::int64_t max_pages_ = 0;
  std::vector<std::uint8_t> q_, k_, v_, o_;
  std::vector<float> lse_;
  std::vector<std::int32_t> q_offsets_, k_offsets_, kv_lengths_, page_table_;
  std::vector<float> q_scales_, k_scales_, v_scales_;
};

// Suite of the tests that every numerics must pass; instantiated in attention_case.cpp.
class Attention : public ::testing::TestWithParam<Numerics> {
 protected:
  // Types that these numerics serve: emulated ones are FP8 throughout.
  [[nodiscard]] static DType q_dtype() {
    return GetParam() == Numerics::kEmulated ? DType::kE4M3 : DType::kBF16;
  }
  // Relative error that rounding P allows; the others keep P exact.
  [[nodiscard]] static double tolerance() {
    return GetParam() == Numerics::kEmulated ? 0.03 : 1e-5;
  }
};

// OCTAVO_TEST_LEVEL=full.
bool full_level();

// |result - reference| / |reference| over all elements; infinite if one side only is finite
// somewhere.
double relative_error(const std::vector<float>& result, const std::vector<float>& reference);
double largest_difference(const std::vector<float>& result, const std::vector<float>& reference);
bool same_bits(const std::vector<float>& result, const std::vector<float>& reference);

// Standard normal values, reproducible: a function of seed and position only.
float normal_at(std::uint32_t seed, std::int64_t sequence, std::int64_t row, std::int64_t head,
                std::int64_t dim);

}  // namespace octavo::testing
