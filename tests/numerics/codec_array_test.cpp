// SPDX-License-Identifier: Apache-2.0
// Array codecs against the scalar ones, on every instruction set; and all 2^32 floats against an
// independent encoder (OCTAVO_TEST_LEVEL=full).
#include "numerics/codec_array.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "numerics/bit_patterns.hpp"
#include "numerics/codec.hpp"
#include "support/nearest_encoder.hpp"
#include "support/simd_targets.hpp"
#include "support/test_level.hpp"

namespace octavo {
namespace {

constexpr DType kCodecTypes[] = {DType::kE4M3, DType::kE5M2, DType::kUE8M0,
                                 DType::kBF16, DType::kF16,  DType::kF32};
constexpr DType kWideTypes[] = {DType::kBF16, DType::kF16, DType::kF32};
constexpr DType kFp8Types[] = {DType::kE4M3, DType::kE5M2};
constexpr std::int64_t kLongestOddLength = 130;
constexpr std::uint8_t kPoison = 0xA5;

std::uint32_t raw_code(DType dtype, const std::uint8_t* codes, std::size_t i) {
  std::uint32_t code = 0;
  const auto bytes = static_cast<std::size_t>(size_bytes(dtype));
  std::memcpy(&code, codes + i * bytes, bytes);
  return code;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

// Every code of a type of up to 16 bits; sampled bit patterns of FP32.
std::vector<std::uint8_t> all_codes(DType dtype) {
  if (dtype == DType::kF32) {
    const std::vector<float> values = test::structured_floats();
    std::vector<std::uint8_t> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  if (size_bytes(dtype) == 1) {
    std::vector<std::uint8_t> codes(256);
    std::iota(codes.begin(), codes.end(), std::uint8_t{0});
    return codes;
  }
  std::vector<std::uint16_t> codes(65536);
  std::iota(codes.begin(), codes.end(), std::uint16_t{0});
  std::vector<std::uint8_t> bytes(codes.size() * 2);
  std::memcpy(bytes.data(), codes.data(), bytes.size());
  return bytes;
}

TEST(CodecArray, encode_equals_scalar) {
  std::vector<float> values = test::structured_floats();
  const std::vector<float> random = test::random_floats(100'000, 7);
  values.insert(values.end(), random.begin(), random.end());
  test::for_each_simd_target([&] {
    for (const DType dtype : kCodecTypes) {
      std::vector<std::uint8_t> codes(values.size() * static_cast<std::size_t>(size_bytes(dtype)));
      encode_array(dtype, values.data(), std::ssize(values), codes.data());
      std::uint32_t expected = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        expected = 0;
        store_element(&expected, dtype, 0, values[i]);
        ASSERT_EQ(raw_code(dtype, codes.data(), i), expected)
            << to_string(dtype) << " of bits " << bits_of(values[i]);
      }
    }
  });
}

TEST(CodecArray, decode_equals_scalar) {
  test::for_each_simd_target([] {
    for (const DType dtype : kCodecTypes) {
      const std::vector<std::uint8_t> codes = all_codes(dtype);
      const std::size_t n = codes.size() / static_cast<std::size_t>(size_bytes(dtype));
      std::vector<float> values(n);
      decode_array(dtype, codes.data(), static_cast<std::int64_t>(n), values.data());
      for (std::size_t i = 0; i < n; ++i) {
        const float expected = load_element(codes.data(), dtype, static_cast<std::int64_t>(i));
        ASSERT_EQ(bits_of(values[i]), bits_of(expected)) << to_string(dtype) << " code " << i;
      }
    }
  });
}

// Short and odd lengths at every element offset of a vector: right values, nothing else touched.
TEST(CodecArray, every_length_and_misalignment) {
  const std::vector<float> source = test::random_floats(kLongestOddLength + 16, 11);
  test::for_each_simd_target([&] {
    for (const DType dtype : kCodecTypes) {
      const auto bytes = static_cast<std::size_t>(size_bytes(dtype));
      for (std::int64_t n = 0; n <= kLongestOddLength; ++n) {
        const auto count = static_cast<std::size_t>(n);
        const std::size_t shift = count % 5 + 1;
        std::vector<std::uint8_t> codes((count + 2 * shift) * bytes, kPoison);
        encode_array(dtype, source.data() + shift, n, codes.data() + shift * bytes);
        std::vector<std::uint8_t> expected(codes.size(), kPoison);
        for (std::int64_t i = 0; i < n; ++i) {
          store_element(expected.data() + shift * bytes, dtype, i,
                        source[shift + static_cast<std::size_t>(i)]);
        }
        ASSERT_EQ(codes, expected) << to_string(dtype) << " n=" << n;

        std::vector<float> decoded(count + 2 * shift, -7.0F);
        decode_array(dtype, codes.data() + shift * bytes, n, decoded.data() + shift);
        for (std::size_t i = 0; i < decoded.size(); ++i) {
          const bool inside = i >= shift && i < shift + count;
          const float wanted =
              inside ? load_element(codes.data(), dtype, static_cast<std::int64_t>(i)) : -7.0F;
          ASSERT_EQ(bits_of(decoded[i]), bits_of(wanted)) << to_string(dtype) << " n=" << n;
        }
      }
    }
  });
}

TEST(CodecArray, copies_make_every_nan_the_same) {
  std::vector<float> source = test::structured_floats();
  const std::vector<float> random = test::random_floats(5000, 19);
  source.insert(source.end(), random.begin(), random.end());
  source.push_back(std::bit_cast<float>(0xFFC00001U));
  test::for_each_simd_target([&] {
    std::vector<float> copy(source.size());
    copy_with_canonical_nan(source.data(), std::ssize(source), copy.data());
    for (std::size_t i = 0; i < source.size(); ++i) {
      ASSERT_EQ(bits_of(copy[i]), std::isnan(source[i]) ? 0x7FFFFFFFU : bits_of(source[i])) << i;
    }
  });
}

TEST(CodecArray, strided_equals_scalar) {
  const std::vector<float> source = test::random_floats(1000, 13);
  constexpr std::int64_t kCount = 77;
  for (const DType dtype : kCodecTypes) {
    for (const std::int64_t in_stride : {1, 0, 3, 12}) {
      for (const std::int64_t out_stride : {1, 2, 5}) {
        std::vector<std::uint32_t> codes(kCount * 5, 0);
        std::vector<std::uint32_t> expected(codes.size(), 0);
        encode_strided(dtype, source.data(), in_stride, kCount, codes.data(), out_stride);
        for (std::int64_t i = 0; i < kCount; ++i) {
          store_element(expected.data(), dtype, i * out_stride,
                        source[static_cast<std::size_t>(i * in_stride)]);
        }
        ASSERT_EQ(codes, expected) << to_string(dtype);
        std::vector<float> values(kCount * 12 + 1, 0);
        std::vector<float> wanted(values.size(), 0);
        if (in_stride == 0) continue;
        decode_strided(dtype, codes.data(), out_stride, kCount, values.data(), in_stride);
        for (std::int64_t i = 0; i < kCount; ++i) {
          wanted[static_cast<std::size_t>(i * in_stride)] =
              load_element(codes.data(), dtype, i * out_stride);
        }
        ASSERT_EQ(std::memcmp(values.data(), wanted.data(), values.size() * sizeof(float)), 0)
            << to_string(dtype);
      }
    }
  }
}

// Groups of every length with factors of their own, each type to each, every instruction set.
TEST(CodecArray, scaled_arrays_equal_scalar) {
  constexpr std::int64_t kGroups[] = {1, 5, 16, 37, 128, 1000};
  constexpr std::int64_t kCount = 300;
  const std::vector<float> source = test::random_floats(kCount, 17);
  std::vector<float> factors(kCount);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i] = std::ldexp(1.0F + static_cast<float>(i) / kCount, static_cast<int>(i % 61) - 30);
  }
  test::for_each_simd_target([&] {
    for (const DType wide : kWideTypes) {
      for (const DType fp8 : kFp8Types) {
        for (const std::int64_t group : kGroups) {
          std::vector<float> x(kCount);
          encode_array(wide, source.data(), kCount, x.data());
          std::vector<std::uint8_t> q(kCount);
          scale_and_encode_array(wide, x.data(), kCount, group, factors.data(), fp8, q.data());
          std::vector<float> back(kCount, 0);
          std::vector<float> expected_back(kCount, 0);
          decode_and_scale_array(fp8, q.data(), kCount, group, factors.data(), wide, back.data());
          for (std::int64_t i = 0; i < kCount; ++i) {
            const float factor = factors[static_cast<std::size_t>(i / group)];
            std::uint8_t expected = 0;
            store_element(&expected, fp8, 0, load_element(x.data(), wide, i) * factor);
            ASSERT_EQ(q[static_cast<std::size_t>(i)], expected)
                << to_string(wide) << " to " << to_string(fp8) << " at " << i;
            store_element(expected_back.data(), wide, i, load_element(q.data(), fp8, i) * factor);
          }
          ASSERT_EQ(std::memcmp(back.data(), expected_back.data(), kCount * sizeof(float)), 0)
              << to_string(fp8) << " to " << to_string(wide);
        }
      }
    }
  });
}

auto nearest(const test::NearestEncoder& format) {
  return [&format, upper = std::size_t{0}](float value) mutable {
    return format.encode(value, &upper);
  };
}

// Bit patterns [first, first + count) through the array codecs; true if all agree.
class Sweep {
 public:
  bool run(std::uint64_t first, std::uint64_t count) {
    values_.resize(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      values_[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + i));
    }
    return agree<std::uint8_t>(DType::kE4M3, nearest(e4m3_)) &&
           agree<std::uint8_t>(DType::kE5M2, nearest(e5m2_)) &&
           agree<std::uint16_t>(DType::kBF16, nearest(bf16_)) &&
           agree<std::uint16_t>(DType::kF16, nearest(f16_)) &&
           agree<std::uint8_t>(DType::kUE8M0, test::ceil_power_of_two_code);
  }

 private:
  template <typename Code, typename Encode>
  bool agree(DType dtype, Encode expected) {
    std::vector<Code> codes(values_.size());
    encode_array(dtype, values_.data(), std::ssize(values_), codes.data());
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (codes[i] != expected(values_[i])) return false;
    }
    return true;
  }

  test::NearestEncoder e4m3_ = test::NearestEncoder::e4m3();
  test::NearestEncoder e5m2_ = test::NearestEncoder::e5m2();
  test::NearestEncoder bf16_ = test::NearestEncoder::bf16();
  test::NearestEncoder f16_ = test::NearestEncoder::f16();
  std::vector<float> values_;
};

TEST(CodecArray, all_floats_agree_with_independent_encoder) {
  constexpr std::uint64_t kAllFloats = std::uint64_t{1} << 32;
  constexpr std::uint64_t kChunk = 1U << 14;
  // The quick level takes one chunk in this many: a prime, so that chunks fall on every part of the
  // mantissa.
  const std::uint64_t step = test::full_level() ? 1 : 1021;
  constexpr std::uint64_t kNumChunks = kAllFloats / kChunk;
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> first_bad{kAllFloats};
  const auto work = [&] {
    Sweep sweep;
    for (;;) {
      const std::uint64_t chunk = next.fetch_add(step);
      if (chunk >= kNumChunks) return;
      const std::uint64_t first = chunk * kChunk;
      if (!sweep.run(first, kChunk)) first_bad.store(first);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first_bad.load(), kAllFloats) << "among the bit patterns from here on";
}

}  // namespace
}  // namespace octavo
