// SPDX-License-Identifier: Apache-2.0
// The verbs of the octavo command, one function per verb_<name>.cpp. Each adds its subcommand,
// binds its options and sets a callback that does the work through a Session (session.hpp). A
// further verb: declare it here and add its line to main.cpp's list.
#pragma once

namespace CLI {
class App;
}

namespace octavo::cli {

class Session;

void add_doctor(CLI::App& app, Session& session);
void add_cast(CLI::App& app, Session& session);
void add_run(CLI::App& app, Session& session);
void add_bench(CLI::App& app, Session& session);
void add_explain(CLI::App& app, Session& session);
void add_list(CLI::App& app, Session& session);
void add_generate(CLI::App& app, Session& session);
void add_perplexity(CLI::App& app, Session& session);
void add_warmup(CLI::App& app, Session& session);
void add_tune(CLI::App& app, Session& session);
void add_names(CLI::App& app, Session& session);

}  // namespace octavo::cli
