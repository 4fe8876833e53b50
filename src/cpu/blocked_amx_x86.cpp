// SPDX-License-Identifier: Apache-2.0
#include "cpu/blocked_kernels.hpp"

namespace octavo::cpu {

const BlockedKernels* amx_bf16_kernels() { return nullptr; }

}  // namespace octavo::cpu
