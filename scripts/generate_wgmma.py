#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes kernels/ptx/wgmma.cuh: wgmma needs its accumulators listed one by one.

    scripts/generate_wgmma.py            writes the file
    scripts/generate_wgmma.py --check    exit 1 if the file is not what would be written
"""

import pathlib
import sys

WIDTHS = (8, 16, 32, 48, 56, 64, 96, 112, 128, 176, 192, 256)
TYPES = ("e4m3", "e5m2")
FILE = pathlib.Path(__file__).resolve().parent.parent / "kernels/ptx/wgmma.cuh"

HEAD = """// SPDX-License-Identifier: Apache-2.0
// Written by scripts/generate_wgmma.py; change that.
// Warp-group products of 64 rows (PTX ISA 8.x, "wgmma"): D[64, N] (+)= A[64, 32] B[N, 32]^T, FP8 in
// shared memory, FP32 in registers, and their fences. One instruction a function.
#pragma once

#include <octavo/dtype.hpp>

namespace octavo::ptx {

// Before the first wgmma and whenever registers of an accumulator were touched.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until all but `pending` committed groups are done.
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Thread t of the warp-group holds, in d[4 i + 2 r + c], row 16 (t / 32) + t % 32 / 4 + 8 r and column
// 8 i + 2 (t % 4) + c. `adds`: 0 ignores what d holds. a and b: shared-memory descriptors.
template <DType a_type, DType b_type, int N>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], unsigned long long a, unsigned long long b,
                                      int adds) {
  static_assert(is_fp8(a_type) && is_fp8(b_type));
  constexpr bool a_is_e4m3 = a_type == DType::kE4M3;
  constexpr bool b_is_e4m3 = b_type == DType::kE4M3;
"""

TAIL = """}

}  // namespace octavo::ptx
"""


def instruction(width):
    """A macro: the types are part of the instruction's text and cannot be operands."""
    count = width // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return f"""#define OCTAVO_WGMMA_{width}(types) \\
    asm volatile( \\
        "{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n" \\
        "wgmma.mma_async.sync.aligned.m64n{width}k32.f32." types " {{{registers}}}, %{count}, %{count + 1}, p, 1, 1;\\n}}" \\
        : {outputs} \\
        : "l"(a), "l"(b), "r"(adds))
"""


def text():
    parts = [HEAD]
    parts += [instruction(width) for width in WIDTHS]
    for width in WIDTHS:
        parts.append(f"  if constexpr (N == {width}) {{\n")
        for a in TYPES:
            for b in TYPES:
                condition = " && ".join(
                    ("" if t == "e4m3" else "!") + f"{side}_is_e4m3" for side, t in (("a", a), ("b", b)))
                parts.append(f'    if constexpr ({condition}) OCTAVO_WGMMA_{width}("{a}.{b}");\n')
        parts.append("  }\n")
    parts.append("  static_assert(" + " || ".join(f"N == {w}" for w in WIDTHS) + ");\n")
    parts += [f"#undef OCTAVO_WGMMA_{width}\n" for width in WIDTHS]
    parts.append(TAIL)
    return "".join(parts)


def main():
    if sys.argv[1:] == ["--check"]:
        if FILE.read_text() != text():
            print(f"{FILE.name} is not what scripts/generate_wgmma.py writes; run it.", file=sys.stderr)
            return 1
        return 0
    FILE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
