// SPDX-License-Identifier: Apache-2.0
// What octavo run can run: one function per run_<operation>.cpp.
#pragma once

namespace CLI {
class App;
}

namespace octavo::cli {

class Session;

void add_run_gemm(CLI::App& run, Session& session);
void add_run_quantize(CLI::App& run, Session& session);
void add_run_attention(CLI::App& run, Session& session);

}  // namespace octavo::cli
