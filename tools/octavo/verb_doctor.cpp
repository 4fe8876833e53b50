// SPDX-License-Identifier: Apache-2.0
// octavo doctor: what this machine offers, what is missing and how to get it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <system_error>

#include "model_options.hpp"
#include "octavo/backend.hpp"
#include "octavo/runtime.hpp"
#include "session.hpp"
#include "table.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

void doctor(Session& session) {
  const CpuInfo cpu = cpu_info();
  session.text(fmt::format("octavo {}\n\ncpu     {}\ncores   {}\nblocked {}\n\n", version(),
                           cpu.model, cpu.num_cores, cpu.instruction_set));
  Json document{
      {"version", version()},
      {"cpu",
       {{"model", cpu.model}, {"cores", cpu.num_cores}, {"instruction_set", cpu.instruction_set}}}};

  Table backends({{"back end"}, {"available"}, {"what"}});
  bool any_available = false;
  for (const BackendInfo& info : list_backends()) {
    any_available = any_available || info.available;
    backends.add_row({info.name, info.available ? "yes" : "no",
                      info.available ? info.description : info.unavailable_because});
    document["backends"].push_back({{"name", info.name},
                                    {"available", info.available},
                                    {"description", info.description},
                                    {"unavailable_because", info.unavailable_because}});
  }
  session.text(backends.to_text() + "\n");

  Table components({{"GPU component"}, {"found"}, {"detail"}});
  for (const ComponentInfo& component : cuda_components()) {
    components.add_row({component.name, component.found ? "yes" : "no", component.detail});
    document["cuda_components"].push_back(
        {{"name", component.name}, {"found", component.found}, {"detail", component.detail}});
  }
  session.text(components.to_text());
  const std::filesystem::path model = default_model_file();
  std::error_code ignored;
  const bool has_model = std::filesystem::is_regular_file(model, ignored);
  document["default_model"] = {{"file", model.string()}, {"present", has_model}};
  session.text(fmt::format("\ndefault model {}: {}\n", model.string(),
                           has_model ? "present" : "not there; ./quickstart.sh fetches it"));
  session.document(std::move(document));
  session.finish_with(any_available ? ExitCode::kSuccess : ExitCode::kEnvironment);
}

}  // namespace

void add_doctor(CLI::App& app, Session& session) {
  CLI::App* verb = app.add_subcommand("doctor", "What this machine offers and what is missing");
  add_json_flag(*verb);
  verb->callback([&session] { doctor(session); });
}

}  // namespace octavo::cli
