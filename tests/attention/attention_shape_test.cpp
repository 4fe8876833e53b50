// SPDX-License-Identifier: Apache-2.0
// Head dims, page sizes and tensors beyond 2^31 elements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "attention/attention_case.hpp"
#include "cpu/attention_layout.hpp"

namespace octavo::testing {
namespace {

// 64-bit from the first multiplication on: page 2^20 of 16 slots of 8 heads of 128 starts at
// element 2^34.
constexpr std::array<std::int64_t, kMaxRank> kPageStrides{16 * 8 * 128, 8 * 128, 128, 1};
static_assert(cpu::page_slot_offset(kPageStrides, 0, 0, 0) == 0);
static_assert(cpu::page_slot_offset(kPageStrides, 1 << 20, 0, 0) == std::int64_t{1} << 34);
static_assert(cpu::page_slot_offset(kPageStrides, 131071, 15, 7) == (std::int64_t{1} << 31) - 128);
static_assert(cpu::page_slot_offset(kPageStrides, 131072, 0, 1) == (std::int64_t{1} << 31) + 128);
static_assert(cpu::page_slot_offset({-kPageStrides[0], 1024, 128, 1}, 131073, 0, 0) ==
              -(std::int64_t{131073} << 14));

// Address space without memory behind it, but for the pages that are touched.
class SparseBytes {
 public:
  explicit SparseBytes(std::size_t size)
      : size_(size),
        data_(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  SparseBytes(const SparseBytes&) = delete;
  SparseBytes& operator=(const SparseBytes&) = delete;
  ~SparseBytes() {
    if (ok()) munmap(data_, size_);
  }
  [[nodiscard]] bool ok() const { return data_ != MAP_FAILED; }
  [[nodiscard]] std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }

 private:
  std::size_t size_;
  void* data_;
};

TEST_P(Attention, C49_more_than_2_to_31_elements_in_a_cache) {
  constexpr std::int64_t kPageSize = 16;
  constexpr std::int64_t kHeads = 8;
  constexpr std::int64_t kDim = 128;
  constexpr std::int64_t kPageElems = kPageSize * kHeads * kDim;
  constexpr std::int64_t kPages = (std::int64_t{1} << 31) / kPageElems + 3;
  AttentionSetup setup;
  setup.q_lengths = {2};
  setup.k_lengths = {20};
  setup.key_layout = KeyLayout::kPaged;
  setup.page_size = kPageSize;
  setup.num_q_heads = setup.num_kv_heads = kHeads;
  setup.dim_qk = setup.dim_vo = kDim;
  setup.q_dtype = q_dtype();
  setup.k_dtype = setup.v_dtype = DType::kE4M3;
  AttentionCase small(setup);
  const AttentionResult expected = small.run(GetParam());

  const SparseBytes k(static_cast<std::size_t>(kPages * kPageElems));
  const SparseBytes v(static_cast<std::size_t>(kPages * kPageElems));
  if (!k.ok() || !v.ok()) GTEST_SKIP() << "no 4 GiB of address space";
  AttentionCase large(setup);
  // The small cache's pages 2 and 1 become the last page and the last but one.
  std::vector<std::int32_t>& table = large.page_table();
  ASSERT_EQ(table[0], 2);
  ASSERT_EQ(table[1], 1);
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::int64_t from = table[static_cast<std::size_t>(i)] * kPageElems;
    const std::int64_t page = kPages - 1 - i;
    std::memcpy(k.data() + page * kPageElems, small.k_bytes().data() + from, kPageElems);
    std::memcpy(v.data() + page * kPageElems, small.v_bytes().data() + from, kPageElems);
    table[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(page);
  }
  large.problem().k = make_view(k.data(), DType::kE4M3, {kPages, kPageSize, kHeads, kDim});
  large.problem().v = make_view(v.data(), DType::kE4M3, {kPages, kPageSize, kHeads, kDim});
  const AttentionResult result = large.run(GetParam());
  EXPECT_TRUE(same_bits(result.o, expected.o));
  EXPECT_TRUE(same_bits(result.lse, expected.lse));
}

TEST_P(Attention, C57_head_dims) {
  const std::int64_t heads = full_level() ? 16 : 4;
  for (const auto& [dim_qk, dim_vo] : {std::pair{64, 64},
                                       {96, 96},
                                       {128, 128},
                                       {192, 128},
                                       {192, 192},
                                       {256, 256},
                                       {576, 512},
                                       {1, 1},
                                       {1024, 1024}}) {
    for (const AttentionMask mask : {AttentionMask::kNone, AttentionMask::kCausal}) {
      AttentionSetup setup;
      setup.q_lengths = setup.k_lengths = {99};
      setup.num_q_heads = dim_qk > 256 ? heads / 2 : heads;
      setup.num_kv_heads = setup.num_q_heads / 2;
      setup.dim_qk = dim_qk;
      setup.dim_vo = dim_vo;
      setup.q_dtype = q_dtype();
      setup.k_dtype = setup.v_dtype = DType::kE4M3;
      AttentionCase made(setup);
      made.problem().mask = mask;
      // The other numerics test the reference; the definition tests itself only on small problems.
      const AttentionResult expected = GetParam() == Numerics::kReference
                                           ? made.by_definition()
                                           : made.run(Numerics::kReference);
      const AttentionResult result = made.run(GetParam());
      EXPECT_LE(relative_error(result.o, expected.o), tolerance()) << dim_qk << "/" << dim_vo;
      if (GetParam() != Numerics::kEmulated) {
        EXPECT_LE(largest_difference(result.o, expected.o), 1e-3) << dim_qk << "/" << dim_vo;
      }
    }
  }
}

TEST(AttentionShape, C57_head_dims_not_offered) {
  for (const bool at_v : {false, true}) {
    for (const std::int64_t dim : {0, 1025}) {
      AttentionSetup setup;
      (at_v ? setup.dim_vo : setup.dim_qk) = dim;
      AttentionCase made(setup);
      try {
        made.run(Numerics::kBlocked);
        FAIL() << "head dim " << dim << " was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_THAT(error.what(),
                    ::testing::AllOf(::testing::HasSubstr("is " + std::to_string(dim)),
                                     ::testing::HasSubstr("head dims are 1 to 1024")));
      }
    }
  }
}

TEST_P(Attention, C59_page_size) {
  for (const std::int64_t page_size : {1, 7, 16, 48, 64, 96, 128, 192, 256}) {
    for (const std::int64_t length : {3072, 3071}) {
      for (const std::int64_t num_queries : {1, 20}) {
        if (num_queries == 20 && GetParam() == Numerics::kReference) continue;
        AttentionSetup setup;
        setup.q_lengths = {num_queries};
        setup.k_lengths = {length};
        setup.key_layout = KeyLayout::kPaged;
        setup.page_size = page_size;
        setup.dim_qk = setup.dim_vo = 16;
        setup.q_dtype = q_dtype();
        setup.k_dtype = setup.v_dtype = DType::kE4M3;
        setup.seed = 0;
        AttentionCase made(setup);
        made.fill_q([](auto...) { return 0.0F; });
        made.fill_k([](auto...) { return 0.0F; });
        made.fill_v(
            [](auto, std::int64_t row, auto, auto) { return static_cast<float>(row) / 4096; });
        const double mean = static_cast<double>(length - 1) / 2 / 4096;
        for (const float value : made.run(GetParam()).o) {
          ASSERT_NEAR(value, mean, 0.005 * mean) << "page size " << page_size;
        }
      }
    }
  }
}

TEST(AttentionShape, any_group_size) {
  for (const std::int64_t group : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 71}) {
    for (const std::int64_t num_queries : {1, 3}) {
      AttentionSetup setup;
      setup.q_lengths = {num_queries};
      setup.k_lengths = {130};
      setup.num_kv_heads = 2;
      setup.num_q_heads = 2 * group;
      setup.q_dtype = setup.k_dtype = setup.v_dtype = DType::kE4M3;
      AttentionCase made(setup);
      const AttentionResult expected = made.run(Numerics::kReference);
      EXPECT_LE(relative_error(made.run(Numerics::kBlocked).o, expected.o), 1e-5) << group;
      EXPECT_LE(relative_error(made.run(Numerics::kEmulated).o, expected.o), 0.03) << group;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
