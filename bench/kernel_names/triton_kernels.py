#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triton kernels of the kernel-names corpus, and their compilation to PTX without a GPU.

    python triton_kernels.py OUT      writes OUT/<entry>.<arch>.ptx, .json and .launch.json

.json is Triton's own metadata, .launch.json what a launch takes (README.md). On stdout comes one
JSON list with a record for each kernel, which generate.py puts into its manifest. Needs Triton
alone: neither a driver nor PyTorch.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import sys
import tempfile

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

LANES = 32
LOG2_E = 1.4426950408889634
LARGEST_E4M3 = 448.0


def entry_name(specialization):
    """Variants of one function get entries of their own: ENTRY says it."""
    return specialization.constants["ENTRY"]


# C [M, N] = A [M, K] B [N, K]^T, all row-major; numpy: C = scale[0] * (A @ B.T). FP8 or BF16, as the
# pointers say. The tensor core's accumulator runs over all of K. Blocks next to each other walk down
# GROUP_M tiles before they take the next column, so that they share B's tiles in the cache.
@triton.jit(repr=entry_name)
def gemm(a, b, c, scale, m, n, k, ENTRY: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr,
         TILE_K: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(n, TILE_N)
    block = tl.program_id(0)
    band = block // (GROUP_M * tiles_n)
    band_rows = min(tl.cdiv(m, TILE_M) - band * GROUP_M, GROUP_M)
    tile_m = band * GROUP_M + block % (GROUP_M * tiles_n) % band_rows
    tile_n = block % (GROUP_M * tiles_n) // band_rows

    rows = tile_m * TILE_M + tl.arange(0, TILE_M)
    columns = tile_n * TILE_N + tl.arange(0, TILE_N)
    ks = tl.arange(0, TILE_K)
    a_at = a + rows[:, None] * k + ks[None, :]
    b_at = b + columns[None, :] * k + ks[:, None]
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for _ in range(0, k, TILE_K):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total)
        a_at += TILE_K
        b_at += TILE_K
    total *= tl.load(scale)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty))


# The same of E4M3 with a scale for 1 x 128 of A, [K / 128, M], and 128 x 128 of B, [N / 128, K / 128]:
#   C = sum over kb of a_scale[kb, :, None] * b_scale[n // 128, kb] * (A[:, kb] @ B[:, kb].T)
# The tensor core sums 128 of K; what it gives is scaled and added in FP32.
@triton.jit(repr=entry_name)
def block_scaled_gemm(a, b, c, a_scale, b_scale, m, n, k, ENTRY: tl.constexpr, TILE_M: tl.constexpr,
                      TILE_N: tl.constexpr):
    SCALED: tl.constexpr = 128
    tile_m = tl.program_id(0)
    tile_n = tl.program_id(1)
    rows = tile_m * TILE_M + tl.arange(0, TILE_M)
    columns = tile_n * TILE_N + tl.arange(0, TILE_N)
    ks = tl.arange(0, SCALED)
    a_at = a + rows[:, None] * k + ks[None, :]
    b_at = b + columns[None, :] * k + ks[:, None]
    row_scales_at = a_scale + rows
    column_scales_at = b_scale + columns // SCALED * (k // SCALED)
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for _ in range(0, k, SCALED):
        product = tl.dot(tl.load(a_at), tl.load(b_at))
        total += product * tl.load(row_scales_at)[:, None] * tl.load(column_scales_at)[None, :]
        a_at += SCALED
        b_at += SCALED
        row_scales_at += m
        column_scales_at += 1
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty))


# O = softmax(scale * Q K^T) V for each head; q, k and o [heads, length, HEAD_DIM], v the same or, as
# FP8 products want it, [heads, HEAD_DIM, length]. An online softmax: a tile of keys after another,
# what was summed so far is scaled down when a row's maximum grows. CAUSAL: key j <= query i.
@triton.jit(repr=entry_name)
def attention(q, k, v, o, scale, length, ENTRY: tl.constexpr, HEAD_DIM: tl.constexpr,
              TILE_Q: tl.constexpr, TILE_KV: tl.constexpr, CAUSAL: tl.constexpr,
              V_IS_TRANSPOSED: tl.constexpr, LOG2_E: tl.constexpr):
    first_query = tl.program_id(0) * TILE_Q
    head = tl.program_id(1).to(tl.int64) * length * HEAD_DIM
    queries = first_query + tl.arange(0, TILE_Q)
    keys = tl.arange(0, TILE_KV)
    d = tl.arange(0, HEAD_DIM)
    q_tile = tl.load(q + head + queries[:, None] * HEAD_DIM + d[None, :])
    k_at = k + head + keys[None, :] * HEAD_DIM + d[:, None]
    if V_IS_TRANSPOSED:
        v_at = v + head + d[None, :] * length + keys[:, None]
    else:
        v_at = v + head + keys[:, None] * HEAD_DIM + d[None, :]

    scale_log2 = scale * LOG2_E
    maximum = tl.full((TILE_Q,), float("-inf"), tl.float32)
    weight = tl.zeros((TILE_Q,), tl.float32)
    total = tl.zeros((TILE_Q, HEAD_DIM), tl.float32)
    end = first_query + TILE_Q if CAUSAL else length
    for first_key in range(0, end, TILE_KV):
        score = tl.dot(q_tile, tl.load(k_at)) * scale_log2
        if CAUSAL:
            score = tl.where(queries[:, None] >= first_key + keys[None, :], score, float("-inf"))
        larger = tl.maximum(maximum, tl.max(score, 1))
        kept = tl.exp2(maximum - larger)
        p = tl.exp2(score - larger[:, None])
        weight = weight * kept + tl.sum(p, 1)
        total = total * kept[:, None]
        total = tl.dot(p.to(v.dtype.element_ty), tl.load(v_at), total)
        maximum = larger
        k_at += TILE_KV * HEAD_DIM
        v_at += TILE_KV if V_IS_TRANSPOSED else TILE_KV * HEAD_DIM
    total /= weight[:, None]
    tl.store(o + head + queries[:, None] * HEAD_DIM + d[None, :], total.to(o.dtype.element_ty))


# A row of x [rows, COLUMNS] to y = x / sqrt(mean(x^2) + epsilon) * weight, and y to E4M3 with a scale
# for 1 x 128 of it: scales [rows, COLUMNS / 128] = amax / 448.
@triton.jit(repr=entry_name)
def rms_norm_quantize(x, weight, codes, scales, epsilon, ENTRY: tl.constexpr, COLUMNS: tl.constexpr,
                      LARGEST: tl.constexpr):
    SCALED: tl.constexpr = 128
    GROUPS: tl.constexpr = COLUMNS // SCALED
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    value = tl.load(x + row * COLUMNS + columns).to(tl.float32)
    inverse = 1.0 / tl.sqrt(tl.sum(value * value, 0) / COLUMNS + epsilon)
    value = tl.reshape(value * inverse * tl.load(weight + columns).to(tl.float32), (GROUPS, SCALED))
    amax = tl.max(tl.abs(value), 1)
    scale = tl.where(amax > 0.0, amax / LARGEST, 1.0)
    code = (value / scale[:, None]).to(codes.dtype.element_ty)
    tl.store(codes + row * COLUMNS + columns, tl.reshape(code, (COLUMNS,)))
    tl.store(scales + row * GROUPS + tl.arange(0, GROUPS), scale)


# Softmax of each row of x [rows, columns], a row to a block; columns up to COLUMNS.
@triton.jit(repr=entry_name)
def softmax_of_rows(x, y, columns, ENTRY: tl.constexpr, COLUMNS: tl.constexpr,
                    LOG2_E: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=float("-inf")).to(tl.float32)
    power = tl.exp2((value - tl.max(value, 0)) * LOG2_E)
    tl.store(y + row * columns + column, (power / tl.sum(power, 0)).to(y.dtype.element_ty),
             mask=inside)


# Triton's word for a type, and the one of launch descriptions.
BUFFERS = {"*fp8e4nv": "e4m3", "*bf16": "bf16", "*fp16": "f16", "*fp32": "f32"}


@dataclasses.dataclass
class Argument:
    """One run-time argument: its Triton type, and its value or what its buffer holds."""
    type: str
    value: float | None = None
    count: int = 0
    fill: str = "normal"
    output: bool = False

    def launch(self):
        if self.type == "i32":
            return {"i32": self.value}
        if self.type == "fp32":
            return {"f32": self.value}
        buffer = {"buffer": BUFFERS[self.type], "count": self.count, "fill": self.fill}
        if self.output:
            buffer["output"] = True
        return buffer

    def divides_by_16(self):
        """What Triton would find at a launch: aligned pointers, and numbers that 16 divides."""
        return self.type.startswith("*") or (self.type == "i32" and self.value % 16 == 0)


def operand(type_, count, fill="normal"):
    return Argument(type_, count=count, fill=fill)


def result(type_, count):
    return Argument(type_, count=count, fill="poison", output=True)


def number(type_, value):
    return Argument(type_, value=value)


@dataclasses.dataclass
class Kernel:
    entry: str
    function: object
    arguments: list  # in the function's order
    constants: dict
    grid: tuple
    flop: float
    num_warps: int
    num_stages: int
    capabilities: tuple = (90,)


def gemm_kernel(entry, type_, tile, num_warps, num_stages, capabilities=(90,), size=4096):
    m = n = k = size
    tile_m, tile_n, tile_k = tile
    return Kernel(
        entry, gemm,
        [operand(type_, m * k), operand(type_, n * k), result("*bf16", m * n),
         operand("*fp32", 1, "ones"), number("i32", m), number("i32", n), number("i32", k)],
        {"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k, "GROUP_M": 8},
        (m // tile_m * (n // tile_n), 1, 1), 2.0 * m * n * k, num_warps, num_stages, capabilities)


def block_scaled_kernel(entry, tile, num_warps, num_stages, capabilities=(90,), size=4096):
    m = n = k = size
    scaled = 128
    tile_m, tile_n = tile
    return Kernel(
        entry, block_scaled_gemm,
        [operand("*fp8e4nv", m * k), operand("*fp8e4nv", n * k), result("*bf16", m * n),
         operand("*fp32", k // scaled * m, "uniform"),
         operand("*fp32", n // scaled * (k // scaled), "uniform"),
         number("i32", m), number("i32", n), number("i32", k)],
        {"TILE_M": tile_m, "TILE_N": tile_n}, (m // tile_m, n // tile_n, 1), 2.0 * m * n * k,
        num_warps, num_stages, capabilities)


def attention_kernel(entry, type_, head_dim, causal, tile, num_warps, num_stages, capabilities=(90,),
                     heads=32, length=4096):
    elements = heads * length * head_dim
    tile_q, tile_kv = tile
    share = 0.5 if causal else 1.0  # of the keys, on average
    return Kernel(
        entry, attention,
        [operand(type_, elements), operand(type_, elements), operand(type_, elements),
         result("*bf16", elements), number("fp32", head_dim ** -0.5), number("i32", length)],
        {"HEAD_DIM": head_dim, "TILE_Q": tile_q, "TILE_KV": tile_kv, "CAUSAL": causal,
         "V_IS_TRANSPOSED": type_ == "*fp8e4nv", "LOG2_E": LOG2_E},
        (length // tile_q, heads, 1), 4.0 * heads * length * length * head_dim * share, num_warps,
        num_stages, capabilities)


def kernels():
    rows, columns = 16384, 4096
    both = (90, 100)
    return [
        gemm_kernel("triton_fp8_gemm_128x128x128", "*fp8e4nv", (128, 128, 128), 8, 3, both),
        gemm_kernel("triton_fp8_gemm_128x256x64", "*fp8e4nv", (128, 256, 64), 8, 4),
        gemm_kernel("triton_fp8_gemm_64x128x128", "*fp8e4nv", (64, 128, 128), 4, 4),
        block_scaled_kernel("triton_fp8_block_scaled_gemm_128x128", (128, 128), 8, 3, both),
        block_scaled_kernel("triton_fp8_block_scaled_gemm_64x128", (64, 128), 4, 4),
        gemm_kernel("triton_bf16_gemm_128x128x64", "*bf16", (128, 128, 64), 8, 3),
        gemm_kernel("triton_bf16_gemm_128x256x64", "*bf16", (128, 256, 64), 8, 3, both),
        attention_kernel("triton_fp8_attention_d64_128x64", "*fp8e4nv", 64, False, (128, 64), 4, 3),
        attention_kernel("triton_fp8_attention_d64_128x64_causal", "*fp8e4nv", 64, True, (128, 64), 8, 3),
        attention_kernel("triton_fp8_attention_d128_128x128", "*fp8e4nv", 128, False, (128, 128), 8, 3),
        attention_kernel("triton_fp8_attention_d128_128x128_causal", "*fp8e4nv", 128, True, (128, 128), 8, 3),
        attention_kernel("triton_fp8_attention_d128_128x64_causal", "*fp8e4nv", 128, True, (128, 64), 8, 3),
        attention_kernel("triton_bf16_attention_d64_128x64_causal", "*bf16", 64, True, (128, 64), 4, 3),
        attention_kernel("triton_bf16_attention_d128_128x128", "*bf16", 128, False, (128, 128), 8, 2, both),
        attention_kernel("triton_bf16_attention_d128_128x64_causal", "*bf16", 128, True, (128, 64), 8, 3),
        Kernel("triton_rms_norm_quantize", rms_norm_quantize,
               [operand("*bf16", rows * columns), operand("*bf16", columns),
                result("*fp8e4nv", rows * columns), result("*fp32", rows * columns // 128),
                number("fp32", 1e-6)],
               {"COLUMNS": columns, "LARGEST": LARGEST_E4M3}, (rows, 1, 1), 5.0 * rows * columns,
               8, 1, both),
        Kernel("triton_softmax_rows", softmax_of_rows,
               [operand("*fp32", rows * columns), result("*fp32", rows * columns),
                number("i32", columns)],
               {"COLUMNS": columns, "LOG2_E": LOG2_E}, (rows, 1, 1), 5.0 * rows * columns, 8, 1),
    ]


def compile_kernel(kernel, capability):
    names = kernel.function.arg_names
    constants = dict(kernel.constants, ENTRY=kernel.entry)
    run_time = [name for name in names if name not in constants]
    assert len(run_time) == len(kernel.arguments), kernel.entry
    types = {name: argument.type for name, argument in zip(run_time, kernel.arguments)}
    source = ASTSource(
        fn=kernel.function,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs=constants,
        attrs={(names.index(name),): [["tt.divisibility", 16]]
               for name, argument in zip(run_time, kernel.arguments) if argument.divides_by_16()})
    return triton.compile(source, target=GPUTarget("cuda", capability, LANES),
                          options={"num_warps": kernel.num_warps, "num_stages": kernel.num_stages})


def portable_metadata(compiled):
    """Triton's own, but files of this machine (its libdevice) by their names alone."""
    metadata = next(pathlib.Path(path) for name, path in compiled.metadata_group.items()
                    if name.endswith(".json"))
    content = json.loads(metadata.read_text())
    content["extern_libs"] = [[name, pathlib.Path(path).name]
                              for name, path in content["extern_libs"]]
    return content


def launch_description(kernel, ptx, metadata):
    arguments = [argument.launch() for argument in kernel.arguments]
    parameters = re.search(r"\.entry\s+\w+\s*\(([^)]*)\)", ptx).group(1).count(".param")
    # Triton adds pointers to scratch memory, which these kernels do not use.
    assert not metadata["global_scratch_size"] and not metadata["profile_scratch_size"]
    hidden = parameters - len(arguments)
    assert hidden >= 0, kernel.entry
    return {"grid": list(kernel.grid), "block": [LANES * metadata["num_warps"], 1, 1],
            "shared_bytes": metadata["shared"], "cluster": [1, 1, 1], "flop": kernel.flop,
            "arguments": arguments + [{"u64": 0}] * hidden}


def write_kernel(out, kernel, capability):
    compiled = compile_kernel(kernel, capability)
    ptx = compiled.asm["ptx"]
    metadata = portable_metadata(compiled)
    arch = re.search(r"^\.target\s+(\w+)", ptx, re.MULTILINE).group(1)
    entry = re.search(r"\.entry\s+(\w+)", ptx).group(1)
    assert entry == kernel.entry == metadata["name"]
    stem = f"{entry}.{arch}"
    (out / f"{stem}.ptx").write_text(ptx)
    (out / f"{stem}.json").write_text(json.dumps(metadata, indent=1) + "\n")
    (out / f"{stem}.launch.json").write_text(
        json.dumps(launch_description(kernel, ptx, metadata)) + "\n")
    return {"entry": entry, "arch": arch}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path, help="folder for the files; it must exist")
    args = parser.parse_args()
    records = []
    failed = []
    with tempfile.TemporaryDirectory() as cache:
        # Every run compiles anew. Without line numbers PTX does not say where Triton was run.
        os.environ["TRITON_CACHE_DIR"] = cache
        os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
        for kernel in kernels():
            for capability in kernel.capabilities:
                try:
                    records.append(write_kernel(args.out, kernel, capability))
                except Exception as error:  # a compiler's failure of any kind; the rest goes on
                    what = f"{kernel.entry} for compute capability {capability}"
                    failed.append({"what": what, "why": f"{type(error).__name__}: {error}"[:500]})
    print(json.dumps({"version": triton.__version__, "kernels": records, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
