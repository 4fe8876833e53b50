// SPDX-License-Identifier: Apache-2.0
// octavo run: one problem on random or given data, checked against the reference. The operations
// are in run_<operation>.cpp.
#include "options.hpp"
#include "run_verbs.hpp"
#include "verbs.hpp"

namespace octavo::cli {

void add_run(CLI::App& app, Session& session) {
  CLI::App& run = add_verb(app, "run", "One problem, checked against the reference");
  require_part(run);
  add_run_gemm(run, session);
  add_run_attention(run, session);
  add_run_quantize(run, session);
}

}  // namespace octavo::cli
