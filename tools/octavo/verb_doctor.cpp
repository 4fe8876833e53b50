// SPDX-License-Identifier: Apache-2.0
// octavo doctor: what this machine offers, what is missing and how to get it.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "gpu_file.hpp"
#include "model_options.hpp"
#include "octavo/backend.hpp"
#include "octavo/runtime.hpp"
#include "options.hpp"
#include "session.hpp"
#include "table.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

// Octavo's kernels are for compute capability 9.0.
constexpr int kHopperMajor = 9;

bool has_kernels(const GpuDescription& gpu) {
  return gpu.compute_major == kHopperMajor && gpu.compute_minor == 0;
}

void report_gpus(const std::vector<GpuDescription>& found, Json& document, Session& session) {
  document["gpus"] = Json::array();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool usable = has_kernels(found[i]);
    session.text(fmt::format("\nGPU {}   {}{}\n", i, text_of(found[i]),
                             usable ? ""
                                    : "; Octavo's kernels are for compute capability 9.0 (H100, "
                                      "H200) and do not run on it"));
    Json gpu = to_json(found[i]);
    gpu["usable"] = usable;
    document["gpus"].push_back(std::move(gpu));
  }
}

void report_cache(Json& document, Session& session) {
  const KernelCacheInfo cache = kernel_cache_info();
  constexpr double kMegabyte = 1e6;
  session.text(fmt::format(
      "\nkernel cache {}: {}, {} files, {:.1f} MB, {} damaged{}{}\n",
      cache.folder.empty() ? "none" : cache.folder, cache.writable ? "writable" : "not writable",
      cache.num_files, static_cast<double>(cache.num_bytes) / kMegabyte, cache.num_damaged,
      cache.problem.empty() ? "" : "; " + cache.problem,
      cache.writable ? ""
                     : ". Every process compiles its kernels anew (a second each); set "
                       "OCTAVO_CACHE_DIR to a folder that can be written"));
  document["kernel_cache"] = {{"folder", cache.folder},       {"writable", cache.writable},
                              {"files", cache.num_files},     {"bytes", cache.num_bytes},
                              {"damaged", cache.num_damaged}, {"problem", cache.problem}};
}

struct DoctorOptions {
  std::string device_out;
};

void doctor(const DoctorOptions& options, Session& session) {
  const std::vector<GpuDescription> found = gpus();
  if (!options.device_out.empty()) {
    if (found.empty()) {
      throw Error(ErrorCode::kEnvironment,
                  "doctor: --device-out was given and no GPU is found; there must be one to "
                  "describe. octavo doctor says what was looked for.");
    }
    save_gpu(found.front(), options.device_out);
  }

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
  report_gpus(found, document, session);
  report_cache(document, session);
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
  CLI::App& verb = add_verb(app, "doctor", "What this machine offers and what is missing");
  auto options = std::make_shared<DoctorOptions>();
  add_text(verb, "--device-out", options->device_out,
           "Write GPU 0's description to a file, for octavo explain --device-file");
  add_json_flag(verb);
  on_run(verb, [options, &session] { doctor(*options, session); });
}

}  // namespace octavo::cli
