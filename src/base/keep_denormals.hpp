// SPDX-License-Identifier: Apache-2.0
// Subnormal numbers keep their values while an object of this class lives on a thread. Programs
// built for fast math, and frameworks that set flush-to-zero, call the library with them flushed;
// without this the bits of a result would depend on which thread computed it. parallel_for() holds
// one on each of its threads.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace octavo {

class KeepDenormals {
 public:
#if defined(__x86_64__)
  KeepDenormals() noexcept : saved_(_mm_getcsr()) {
    // Intel SDM volume 1, section 10.2.3: flush-to-zero and denormals-are-zero.
    constexpr unsigned kFlushToZero = 0x8000;
    constexpr unsigned kDenormalsAreZero = 0x0040;
    _mm_setcsr(saved_ & ~(kFlushToZero | kDenormalsAreZero));
  }
  ~KeepDenormals() { _mm_setcsr(saved_); }
#else
  KeepDenormals() = default;
  ~KeepDenormals() = default;
#endif
  KeepDenormals(const KeepDenormals&) = delete;
  KeepDenormals& operator=(const KeepDenormals&) = delete;

 private:
  [[maybe_unused]] unsigned saved_ = 0;
};

}  // namespace octavo
