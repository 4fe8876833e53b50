// SPDX-License-Identifier: Apache-2.0
// Names that others give to their kernels: CUTLASS's procedural names ("CUTLASS 3.0 GEMM procedural
// names" in its profiler's documentation) and cuBLASLt's nvjet_ names (no documentation; the
// pattern is the format string in libcublasLt.so.13).
#pragma once

#include <optional>
#include <string_view>

#include "octavo/error.hpp"
#include "octavo/naming.hpp"

namespace octavo {

// Nothing if it does not begin as such a name; an Error that names the byte at fault if it goes on
// as none.
[[nodiscard]] std::optional<Result<KernelNameReading>> read_cutlass_name(std::string_view name);
[[nodiscard]] std::optional<Result<KernelNameReading>> read_nvjet_name(std::string_view name);

}  // namespace octavo
