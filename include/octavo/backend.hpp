// SPDX-License-Identifier: Apache-2.0
// Back ends: which exist, which one serves a call and how a call is carried out.
//
// Thread safety: every function of the library may be called from any thread at any time. Two calls
// that write the same memory are a data race, as in any C++ program.
// Graph capture: a call on the "cpu" back end runs before it returns and puts nothing on a stream,
// so it would not become part of a CUDA graph; passing a stream to it is therefore an error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// How a product is computed (docs/numerics.md).
enum class Numerics {
  kDefault,    // the back end's own: blocked on "cpu"
  kReference,  // cpu: plain FP64 loops, the oracle
  kEmulated,   // cpu: the Hopper tensor core, to the bit
  kBlocked,    // cpu: threaded and vectorised, FP32 sums
};

[[nodiscard]] constexpr const char* to_string(Numerics numerics) noexcept {
  switch (numerics) {
    case Numerics::kDefault: return "default";
    case Numerics::kReference: return "reference";
    case Numerics::kEmulated: return "emulated";
    case Numerics::kBlocked: return "blocked";
  }
  return "?";
}

// How to carry out a call. The defaults suit a caller who does not care.
struct Execution {
  // "cpu", "cuda", or empty: the first back end, in the order of list_backends(), that is available
  // and serves the problem. The environment variable OCTAVO_BACKEND replaces an empty name.
  std::string_view backend = {};
  Numerics numerics = Numerics::kDefault;
  // A CUDA stream for device back ends; null means their default stream. Must be null on "cpu".
  void* stream = nullptr;
  // Scratch memory of workspace_bytes(problem, execution) bytes on the problem's device; null lets
  // the back end use its own. "cpu" needs none: its scratch is a few tiles per thread.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  // Threads a call may use on "cpu"; 0 means every core this process may run on.
  int num_threads = 0;
};

// Why a back end does not serve a problem. The text forms are ready to print.
struct Reason {
  std::string kind;   // "dtype", "device", "numerics", "layout", "environment"
  std::string field;  // the argument at fault, as the problem struct names it
  std::string have;
  std::string need;
};

[[nodiscard]] std::string to_string(const Reason& reason);

struct BackendInfo {
  std::string name;
  std::string description;
  bool available = false;
  std::string unavailable_because;  // empty if available
};

// Every back end this build knows, in order of preference. Ends with "cpu".
[[nodiscard]] std::vector<BackendInfo> list_backends();

}  // namespace octavo
