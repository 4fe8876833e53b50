// SPDX-License-Identifier: Apache-2.0
// Runs a test body once on every instruction set that the library was compiled for and this
// processor has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cstdint>

namespace octavo::test {

template <typename F>
void for_each_simd_target(const F& f) {
  const std::int64_t available = hwy::SupportedTargets() & HWY_TARGETS;
  for (std::int64_t left = available; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    SCOPED_TRACE(hwy::TargetName(target));
    f();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace octavo::test
