// SPDX-License-Identifier: Apache-2.0
// Every environment variable the library reads, parsed strictly: a bad value is an error, not a
// zero.
#pragma once

#include <string>

#include "octavo/error.hpp"

namespace octavo {

struct Environment {
  std::string backend;  // OCTAVO_BACKEND: the back end used where a call names none; empty if unset
  int num_threads = 0;  // OCTAVO_NUM_THREADS: threads where a call names none; 0 if unset
  std::string cache_dir;  // OCTAVO_CACHE_DIR: folder that keeps compiled kernels between runs
  std::string jit_dump;   // OCTAVO_JIT_DUMP: folder that keeps the source of a kernel that fails
  // Where OCTAVO_CACHE_DIR is unset, cache_dir is octavo/cubin in $XDG_CACHE_HOME or, without that,
  // in $HOME/.cache; empty if neither is set.
};

// Read once, at the first call.
[[nodiscard]] const Result<Environment>& environment();

}  // namespace octavo
