// SPDX-License-Identifier: Apache-2.0
// Operands of one shape on the host and, as a ring of input sets, on the GPU; and the check of a
// product against the CPU back end on a sample of its elements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include "measure/gpu_stream.hpp"
#include "octavo/octavo.hpp"

namespace octavo::cli {

struct BenchShape {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;

  friend bool operator==(const BenchShape&, const BenchShape&) = default;
};

inline constexpr ScaleRecipe kScaleRecipes[] = {ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                                ScaleRecipe::kBlock};

struct ScalePair {
  std::vector<float> a;  // block: M-major, [K/128][M]; the kernel reads it in place
  std::vector<float> b;
};

class HostOperands {
 public:
  HostOperands(BenchShape shape, std::uint64_t seed) : shape_(shape), random_(seed) {
    a_ = codes(shape.m * shape.k);
    b_ = codes(shape.n * shape.k);
    for (const ScaleRecipe recipe : kScaleRecipes) {
      scales_.push_back({scales(scale_shape(a_granularity(recipe), shape.m, shape.k)),
                         scales(scale_shape(b_granularity(recipe), shape.n, shape.k))});
    }
  }

  [[nodiscard]] const std::vector<std::uint8_t>& a() const { return a_; }
  [[nodiscard]] const std::vector<std::uint8_t>& b() const { return b_; }
  [[nodiscard]] const ScalePair& scales_of(ScaleRecipe recipe) const {
    return scales_[index_of(recipe)];
  }
  [[nodiscard]] BenchShape shape() const { return shape_; }

  static std::size_t index_of(ScaleRecipe recipe) {
    return static_cast<std::size_t>(
        std::find(std::begin(kScaleRecipes), std::end(kScaleRecipes), recipe) -
        std::begin(kScaleRecipes));
  }

 private:
  // Codes of a Gaussian quantised with one scale: its largest value of 65,536, about 4.4 standard
  // deviations, meets the largest code.
  static const std::vector<std::uint8_t>& table() {
    static const std::vector<std::uint8_t> codes = [] {
      constexpr std::size_t kEntries = 65536;
      constexpr float kDeviations = 4.4F;
      std::mt19937_64 random(1);
      std::normal_distribution<float> gaussian(0, max_finite_fp8(DType::kE4M3) / kDeviations);
      std::vector<std::uint8_t> drawn(kEntries);
      for (std::uint8_t& code : drawn) {
        code = static_cast<std::uint8_t>(encode(DType::kE4M3, gaussian(random)));
      }
      return drawn;
    }();
    return codes;
  }

  std::vector<std::uint8_t> codes(std::int64_t count) {
    constexpr int kIndexBits = 16;
    constexpr std::uint64_t kIndexMask = (1U << kIndexBits) - 1;
    const std::vector<std::uint8_t>& drawn = table();
    std::vector<std::uint8_t> values(static_cast<std::size_t>(count));
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      bits = i % 4 == 0 ? random_() : bits >> kIndexBits;
      values[i] = drawn[bits & kIndexMask];
    }
    return values;
  }

  // Within a factor of two around 1.
  std::vector<float> scales(ScaleShape extents) {
    std::uniform_real_distribution<float> exponent(-0.5F, 0.5F);
    std::vector<float> values(static_cast<std::size_t>(extents.rows * extents.cols));
    for (float& value : values) value = std::exp2(exponent(random_));
    return values;
  }

  BenchShape shape_;
  std::mt19937_64 random_;
  std::vector<std::uint8_t> a_;
  std::vector<std::uint8_t> b_;
  std::vector<ScalePair> scales_;
};

// One input set on the GPU, and where its products go: all contenders write the same D.
struct InputSet {
  DeviceMemory a;
  DeviceMemory b;
  DeviceMemory d;
  std::vector<DeviceMemory> a_scales;  // in the order of kScaleRecipes
  std::vector<DeviceMemory> b_scales;
};

inline std::vector<InputSet> make_input_sets(const measure::GpuStream& gpu,
                                             const HostOperands& host) {
  // Four times the 60 MB second-level cache, and memory for other users of the GPU.
  constexpr std::int64_t kMinBytes = 240'000'000;
  constexpr std::int64_t kMaxBytes = 20'000'000'000;
  constexpr std::int64_t kMinSets = 2;
  constexpr std::int64_t kMaxSets = 64;
  const BenchShape shape = host.shape();
  const std::int64_t read_bytes = (shape.m + shape.n) * shape.k;
  const std::int64_t bytes = read_bytes + 2 * shape.m * shape.n;
  std::int64_t num_sets = std::clamp((kMinBytes + read_bytes - 1) / read_bytes, kMinSets, kMaxSets);
  num_sets = std::max(kMinSets, std::min(num_sets, kMaxBytes / bytes));
  std::vector<InputSet> sets;
  for (std::int64_t i = 0; i < num_sets; ++i) {
    InputSet set;
    const InputSet* first = sets.empty() ? nullptr : &sets.front();
    const auto filled = [&](const auto& values, const DeviceMemory* source) {
      DeviceMemory buffer(measure::kGpu, values.size() * sizeof(values[0]));
      if (source == nullptr) {
        buffer.copy_from_host(values.data(), buffer.num_bytes());
      } else {
        gpu.copy(buffer.data(), source->data(), buffer.num_bytes());
      }
      return buffer;
    };
    set.a = filled(host.a(), first != nullptr ? &first->a : nullptr);
    set.b = filled(host.b(), first != nullptr ? &first->b : nullptr);
    set.d = DeviceMemory(measure::kGpu, static_cast<std::size_t>(2 * shape.m * shape.n));
    for (std::size_t r = 0; r < std::size(kScaleRecipes); ++r) {
      const ScalePair& scales = host.scales_of(kScaleRecipes[r]);
      set.a_scales.push_back(filled(scales.a, first != nullptr ? &first->a_scales[r] : nullptr));
      set.b_scales.push_back(filled(scales.b, first != nullptr ? &first->b_scales[r] : nullptr));
    }
    sets.push_back(std::move(set));
  }
  gpu.wait();
  return sets;
}

inline GemmProblem device_problem(const InputSet& set, BenchShape shape, ScaleRecipe recipe,
                                  Accumulation accumulation) {
  const std::size_t r = HostOperands::index_of(recipe);
  const auto constant = [](const DeviceMemory& buffer) {
    return static_cast<const void*>(buffer.data());
  };
  GemmProblem problem;
  problem.a = make_view(constant(set.a), DType::kE4M3, {shape.m, shape.k}, measure::kGpu);
  problem.b = make_view(constant(set.b), DType::kE4M3, {shape.n, shape.k}, measure::kGpu);
  problem.d = make_view(set.d.data(), DType::kBF16, {shape.m, shape.n}, measure::kGpu);
  problem.recipe = recipe;
  problem.accumulation = accumulation;
  problem.b_is_constant = true;
  const void* a_scale = constant(set.a_scales[r]);
  const void* b_scale = constant(set.b_scales[r]);
  const std::int64_t k_blocks = num_scale_blocks(shape.k);
  switch (recipe) {
    case ScaleRecipe::kTensor:
      problem.a_scale = make_view(a_scale, DType::kF32, {1}, measure::kGpu);
      problem.b_scale = make_view(b_scale, DType::kF32, {1}, measure::kGpu);
      break;
    case ScaleRecipe::kRow:
      problem.a_scale = make_view(a_scale, DType::kF32, {shape.m}, measure::kGpu);
      problem.b_scale = make_view(b_scale, DType::kF32, {shape.n}, measure::kGpu);
      break;
    case ScaleRecipe::kBlock:
      problem.a_scale =
          transposed(make_view(a_scale, DType::kF32, {k_blocks, shape.m}, measure::kGpu), 0, 1);
      problem.b_scale =
          make_view(b_scale, DType::kF32, {num_scale_blocks(shape.n), k_blocks}, measure::kGpu);
      break;
    default: throw std::logic_error("device_problem: this recipe is not measured");
  }
  return problem;
}

// A few whole rows, or a stretch of them, that is computed again on the CPU.
class SampledProduct {
 public:
  SampledProduct(const HostOperands& host, std::uint64_t seed) : host_(host) {
    constexpr int kNumRows = 4;
    constexpr std::int64_t kMaxColumns = 4096;
    const BenchShape shape = host.shape();
    std::mt19937_64 random(seed);
    const auto below = [&random](std::int64_t limit) {
      return std::uniform_int_distribution<std::int64_t>(0, limit - 1)(random);
    };
    for (int i = 0; i < kNumRows; ++i) rows_.push_back(below(shape.m));
    num_columns_ = std::min(shape.n, kMaxColumns);
    // From where a 128x128 block begins, so that the blocks' scales are a view too.
    first_column_ = below((shape.n - num_columns_) / kScaleBlock + 1) * kScaleBlock;
    for (const std::int64_t row : rows_) {
      const auto begin = host.a().begin() + row * shape.k;
      a_.insert(a_.end(), begin, begin + shape.k);
    }
  }

  // Elements that are compared with FP64 sums: those are slow.
  [[nodiscard]] std::int64_t num_reference_columns() const {
    constexpr std::int64_t kMaxColumns = 256;
    return std::min(num_columns_, kMaxColumns);
  }
  [[nodiscard]] std::int64_t num_columns() const { return num_columns_; }
  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(rows_.size()); }

  // What the Hopper tensor core gives, BF16.
  [[nodiscard]] std::vector<std::uint16_t> emulated(ScaleRecipe recipe, Accumulation accumulation,
                                                    int num_splits) const {
    std::vector<std::uint16_t> d(static_cast<std::size_t>(num_rows() * num_columns_));
    compute(recipe, accumulation, Numerics::kEmulated, num_splits, num_columns_,
            make_view(static_cast<void*>(d.data()), DType::kBF16, {num_rows(), num_columns_}));
    return d;
  }

  [[nodiscard]] ErrorMetrics error_of(const std::vector<std::uint16_t>& d,
                                      ScaleRecipe recipe) const {
    const std::int64_t columns = num_reference_columns();
    std::vector<float> reference(static_cast<std::size_t>(num_rows() * columns));
    const MutableTensorView sums =
        make_view(static_cast<void*>(reference.data()), DType::kF32, {num_rows(), columns});
    compute(recipe, Accumulation::kPromoted, Numerics::kReference, 1, columns, sums);
    TensorView got =
        make_view(static_cast<const void*>(d.data()), DType::kBF16, {num_rows(), num_columns_});
    got.shape[1] = columns;
    return compare(got, sums);
  }

  // The sampled elements of a product on the GPU.
  [[nodiscard]] std::vector<std::uint16_t> download(const InputSet& set) const {
    std::vector<std::uint16_t> d(static_cast<std::size_t>(num_rows() * num_columns_));
    const auto bytes = static_cast<std::size_t>(2 * num_columns_);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const std::int64_t at = rows_[i] * host_.shape().n + first_column_;
      set.d.copy_to_host(d.data() + static_cast<std::ptrdiff_t>(i) * num_columns_, bytes,
                         static_cast<std::size_t>(2 * at));
    }
    return d;
  }

 private:
  void compute(ScaleRecipe recipe, Accumulation accumulation, Numerics numerics, int num_splits,
               std::int64_t columns, const MutableTensorView& d) const {
    const BenchShape shape = host_.shape();
    const std::int64_t k_blocks = num_scale_blocks(shape.k);
    const ScalePair& scales = host_.scales_of(recipe);
    const auto constant = [](const auto* data) { return static_cast<const void*>(data); };
    GemmProblem problem;
    problem.num_splits = num_splits;
    problem.a = make_view(constant(a_.data()), DType::kE4M3, {num_rows(), shape.k});
    problem.b = make_view(constant(host_.b().data() + first_column_ * shape.k), DType::kE4M3,
                          {columns, shape.k});
    problem.d = d;
    problem.recipe = recipe;
    problem.accumulation = accumulation;
    std::vector<float> a_scales;
    switch (recipe) {
      case ScaleRecipe::kTensor:
        problem.a_scale = make_view(constant(scales.a.data()), DType::kF32, {1});
        problem.b_scale = make_view(constant(scales.b.data()), DType::kF32, {1});
        break;
      case ScaleRecipe::kRow:
        for (const std::int64_t row : rows_) {
          a_scales.push_back(scales.a[static_cast<std::size_t>(row)]);
        }
        problem.a_scale = make_view(constant(a_scales.data()), DType::kF32, {num_rows()});
        problem.b_scale =
            make_view(constant(scales.b.data() + first_column_), DType::kF32, {columns});
        break;
      case ScaleRecipe::kBlock:
        for (const std::int64_t row : rows_) {
          for (std::int64_t block = 0; block < k_blocks; ++block) {
            a_scales.push_back(scales.a[static_cast<std::size_t>(block * shape.m + row)]);
          }
        }
        problem.a_scale = make_view(constant(a_scales.data()), DType::kF32, {num_rows(), k_blocks});
        problem.b_scale =
            make_view(constant(scales.b.data() + first_column_ / kScaleBlock * k_blocks),
                      DType::kF32, {num_scale_blocks(columns), k_blocks});
        break;
      default: throw std::logic_error("SampledProduct: this recipe is not measured");
    }
    (void)gemm(problem, {.backend = "cpu", .numerics = numerics});
  }

  const HostOperands& host_;
  std::vector<std::int64_t> rows_;
  std::int64_t first_column_ = 0;
  std::int64_t num_columns_ = 0;
  std::vector<std::uint8_t> a_;
};

}  // namespace octavo::cli
