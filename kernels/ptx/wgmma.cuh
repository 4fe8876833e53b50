// SPDX-License-Identifier: Apache-2.0
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
#define OCTAVO_WGMMA_8(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n8k32.f32." types " {%0, %1, %2, %3}, %4, %5, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_16(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n16k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_32(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n32k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_48(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %26, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n48k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, %24, %25, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_56(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %30, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n56k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27}, %28, %29, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_64(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n64k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_96(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %50, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n96k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, %48, %49, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_112(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %58, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n112k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55}, %56, %57, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_128(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n128k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_176(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %90, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n176k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87}, %88, %89, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_192(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n192k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, %96, %97, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]) \
        : "l"(a), "l"(b), "r"(adds))
#define OCTAVO_WGMMA_256(types) \
    asm volatile( \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n" \
        "wgmma.mma_async.sync.aligned.m64n256k32.f32." types " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, p, 1, 1;\n}" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127]) \
        : "l"(a), "l"(b), "r"(adds))
  if constexpr (N == 8) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_8("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_8("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_8("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_8("e5m2.e5m2");
  }
  if constexpr (N == 16) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_16("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_16("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_16("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_16("e5m2.e5m2");
  }
  if constexpr (N == 32) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_32("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_32("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_32("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_32("e5m2.e5m2");
  }
  if constexpr (N == 48) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_48("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_48("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_48("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_48("e5m2.e5m2");
  }
  if constexpr (N == 56) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_56("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_56("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_56("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_56("e5m2.e5m2");
  }
  if constexpr (N == 64) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_64("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_64("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_64("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_64("e5m2.e5m2");
  }
  if constexpr (N == 96) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_96("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_96("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_96("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_96("e5m2.e5m2");
  }
  if constexpr (N == 112) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_112("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_112("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_112("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_112("e5m2.e5m2");
  }
  if constexpr (N == 128) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_128("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_128("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_128("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_128("e5m2.e5m2");
  }
  if constexpr (N == 176) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_176("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_176("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_176("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_176("e5m2.e5m2");
  }
  if constexpr (N == 192) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_192("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_192("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_192("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_192("e5m2.e5m2");
  }
  if constexpr (N == 256) {
    if constexpr (a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_256("e4m3.e4m3");
    if constexpr (a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_256("e4m3.e5m2");
    if constexpr (!a_is_e4m3 && b_is_e4m3) OCTAVO_WGMMA_256("e5m2.e4m3");
    if constexpr (!a_is_e4m3 && !b_is_e4m3) OCTAVO_WGMMA_256("e5m2.e5m2");
  }
  static_assert(N == 8 || N == 16 || N == 32 || N == 48 || N == 56 || N == 64 || N == 96 || N == 112 || N == 128 || N == 176 || N == 192 || N == 256);
#undef OCTAVO_WGMMA_8
#undef OCTAVO_WGMMA_16
#undef OCTAVO_WGMMA_32
#undef OCTAVO_WGMMA_48
#undef OCTAVO_WGMMA_56
#undef OCTAVO_WGMMA_64
#undef OCTAVO_WGMMA_96
#undef OCTAVO_WGMMA_112
#undef OCTAVO_WGMMA_128
#undef OCTAVO_WGMMA_176
#undef OCTAVO_WGMMA_192
#undef OCTAVO_WGMMA_256
}

}  // namespace octavo::ptx
