// SPDX-License-Identifier: Apache-2.0
// D[M,N] = epilogue(sum over k of A[M,k] * B[N,k], scaled). B holds weights as [N, K].
// Scales: octavo/scale.hpp. What each mode computes, to the bit: docs/numerics.md.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "octavo/backend.hpp"
#include "octavo/scale.hpp"
#include "octavo/tensor_view.hpp"

namespace octavo {

// How the partial sums of an FP8 product are kept.
enum class Accumulation : unsigned char {
  kPromoted,  // every 128 of K the tensor core's sum is added to an FP32 total
  kFast,      // one tensor-core accumulator (13 fraction bits) through all of K: a bias of about
              // -K/60,000 on same-sign data. Not for block recipes.
};

enum class OutputMode : unsigned char {
  kOverwrite,   // D = result
  kAccumulate,  // D = D + result; D must not be FP8
};

[[nodiscard]] constexpr const char* to_string(Accumulation accumulation) noexcept {
  return accumulation == Accumulation::kFast ? "fast" : "promoted";
}

// GemmProblem::num_splits: the back end chooses, GemmReport says what.
inline constexpr int kAutomaticSplits = 0;

struct GemmProblem {
  // [M, K] and [N, K], or [batch, M, K] and [batch, N, K]; any strides, 0 and negative ones too.
  // E4M3, E5M2, BF16, F16 or F32, each its own.
  TensorView a;
  TensorView b;
  // [M, N] or [batch, M, N]: BF16, F16, F32, E4M3 or E5M2. No element may be written twice.
  MutableTensorView d;

  ScaleRecipe recipe = ScaleRecipe::kNone;
  // Scale tensors as octavo/scale.hpp shapes them (F32 or UE8M0, any strides, a leading batch
  // dimension where the operands have one), each finite and above 0. Only FP8 operands have one,
  // and need it unless recipe is kNone; without an FP8 operand recipe must be kNone.
  TensorView a_scale;
  TensorView b_scale;

  Accumulation accumulation = Accumulation::kPromoted;
  OutputMode output_mode = OutputMode::kOverwrite;
  // [N], BF16, F16 or F32; absent for none. Added after accumulation into D.
  TensorView bias;
  // One F32 value from 2^-126 to 2^126 by which an FP8 D is divided before rounding (D then
  // represents q * d_scale); absent means 1.
  TensorView d_scale;
  // Parts that K is cut into, 1 <= num_splits <= max(1, ceil(K/128)); their results are added in
  // ascending order. Part of the numerics: other values give other bits. kAutomaticSplits leaves it
  // to the back end: "cpu" takes 1; "cuda" a number that follows from M, N, K and the GPU, so that
  // a row's bits may change with M. With a number given here they do not: a token has the same
  // result in a batch of any size ("cpu" with kBlocked: from two rows on; docs/numerics.md,
  // "Splits").
  int num_splits = kAutomaticSplits;
  // The caller's promise that b (its scales do not matter) holds its values already when the call
  // is made, as the weights of a model do: no work that is still to run, in this stream or another,
  // writes them. For a call that is captured it holds for every launch of the graph. "cuda" then
  // reads the first of a product of few rows while the kernels before it in the stream are still
  // running, which takes up to 1 us from its time; other products, and a b that has to be copied
  // first, are computed as without. With a promise that is not kept D is wrong.
  bool b_is_constant = false;
};

// What served a call.
struct GemmReport {
  std::string backend;
  std::string kernel;
  int num_splits = 1;
};

// Throws Error: kInvalidArgument if the problem breaks a rule above, kUnsupported if no back end
// serves it, kEnvironment if the one forced by name is not available.
// K = 0 writes zeros (or leaves D as it is when accumulating, bias added); M = 0 or N = 0 writes
// nothing.
//
// On "cuda" the call puts its work on execution.stream and returns; the tensors and the workspace
// must stay until that work is done. Without a workspace it takes memory from a pool of the
// library's own in the stream's order, and gives it back the same way (256 MB stay in the pool).
// Both ways work while the stream is captured into a graph: memory of the pool then belongs to the
// graph, a workspace must outlive it. A kernel's first use compiles it, in a capture too.
GemmReport gemm(const GemmProblem& problem, const Execution& execution = {});

// Scratch memory that gemm() with the same arguments would use; 0 on "cpu". Its address must be a
// multiple of 16.
[[nodiscard]] std::size_t workspace_bytes(const GemmProblem& problem,
                                          const Execution& execution = {});

// Whether a back end serves a problem, and why not.
struct SupportReport {
  std::string backend;
  bool supported = false;
  std::vector<Reason> reasons;  // empty if supported
  std::string kernel;           // the kernel that would run, if supported
};

// One entry per back end (or just the one named in execution). Arguments are checked first: a
// problem that breaks a rule throws kInvalidArgument.
[[nodiscard]] std::vector<SupportReport> supports(const GemmProblem& problem,
                                                  const Execution& execution = {});

}  // namespace octavo
