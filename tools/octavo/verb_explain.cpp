// SPDX-License-Identifier: Apache-2.0
// octavo explain: for each back end, whether it serves a problem, why not, and what would run; for
// "cuda" every candidate and what the cost model makes of it. Nothing is computed and no data is
// drawn.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention_request.hpp"
#include "gemm_request.hpp"
#include "gpu_file.hpp"
#include "host_tensor.hpp"
#include "octavo/attention.hpp"
#include "octavo/explain.hpp"
#include "octavo/gemm.hpp"
#include "options.hpp"
#include "session.hpp"
#include "table.hpp"
#include "unplaced_problem.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

struct ExplainGemm {
  GemmRequest request;
  ExecutionRequest how;
  std::string device_file;
};

struct ExplainAttention {
  AttentionRequest request;
  ExecutionRequest how;
};

// One element seen as a whole tensor: every stride is 0.
TensorView broadcast(const HostTensor& element, const std::vector<std::int64_t>& shape) {
  TensorView view = element.view();
  view.rank = static_cast<int>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    view.shape[i] = shape[i];
    view.strides[i] = 0;
  }
  return view;
}

HostTensor one(DType dtype) {
  HostTensor element(DType::kF32, {1});
  element.f32()[0] = 1;
  return converted(element, dtype);
}

// On operands in host memory, for "cpu"; what "cuda" says of its own is put in its place.
std::vector<SupportReport> reports_for(const GemmRequest& request, const ExecutionRequest& how) {
  constexpr double kBytesPerOutput = 4;
  require_memory("explain gemm", static_cast<double>(request.m) * static_cast<double>(request.n) *
                                     static_cast<double>(request.batch > 0 ? request.batch : 1) *
                                     kBytesPerOutput);
  const HostTensor a = one(request.a_dtype);
  const HostTensor b = one(request.b_dtype);
  const HostTensor scale = one(request.scale_dtype);
  const HostTensor bias = one(DType::kF32);
  HostTensor d(request.d_dtype, with_batch(request.batch, {request.m, request.n}));
  GemmProblem problem;
  problem.a = broadcast(a, with_batch(request.batch, {request.m, request.k}));
  problem.b = broadcast(b, with_batch(request.batch, {request.n, request.k}));
  problem.d = d.mutable_view();
  problem.recipe = request.recipe;
  if (request.recipe != ScaleRecipe::kNone) {
    if (is_fp8(request.a_dtype)) {
      problem.a_scale = broadcast(
          scale, with_batch(request.batch,
                            scale_extents(a_granularity(request.recipe), request.m, request.k)));
    }
    if (is_fp8(request.b_dtype)) {
      problem.b_scale = broadcast(
          scale, with_batch(request.batch,
                            scale_extents(b_granularity(request.recipe), request.n, request.k)));
    }
  }
  problem.accumulation = request.accumulation;
  problem.output_mode = request.accumulate ? OutputMode::kAccumulate : OutputMode::kOverwrite;
  if (request.bias) problem.bias = broadcast(bias, {request.n});
  problem.num_splits = static_cast<int>(request.num_splits);
  std::vector<SupportReport> reports = supports(problem, how.execution());
  for (SupportReport& report : reports) {
    if (report.backend != "cuda") continue;
    Execution on_gpu = how.execution();
    on_gpu.backend = "cuda";
    report = supports(unplaced_problem(request), on_gpu).front();
  }
  return reports;
}

// The GPU that a product is planned for; none without a file and a usable GPU.
std::optional<GpuDescription> planned_gpu(const std::string& device_file) {
  if (!device_file.empty()) return load_gpu(device_file);
  const std::vector<GpuDescription> found = gpus();
  if (found.empty()) return std::nullopt;
  return found.front();
}

Json plan_json(const GemmExplanation& plan) {
  Json candidates = Json::array();
  for (const GemmCandidateReport& candidate : plan.candidates) {
    candidates.push_back({{"kernel", candidate.kernel},
                          {"tile", {candidate.tile_m, candidate.tile_n, candidate.tile_k}},
                          {"cluster", {candidate.cluster_m, candidate.cluster_n}},
                          {"splits", candidate.num_splits},
                          {"stages", candidate.stages},
                          {"threads", candidate.num_threads},
                          {"shared_bytes", candidate.shared_bytes},
                          {"waves", candidate.waves},
                          {"tile_cycles", candidate.tile_cycles},
                          {"estimated_cycles", candidate.estimated_cycles},
                          {"estimated_us", candidate.estimated_us}});
  }
  Json refused = Json::array();
  for (const RefusedCandidateReport& candidate : plan.refused_candidates) {
    refused.push_back({{"tile", {candidate.tile_m, candidate.tile_n, candidate.tile_k}},
                       {"cluster", {candidate.cluster_m, candidate.cluster_n}},
                       {"reason", candidate.reason}});
  }
  Json record = nullptr;
  if (plan.chosen_by != ChosenBy::kModel) {
    record = {{"environment", plan.record.environment},
              {"us", plan.record.us},
              {"model_kernel", plan.record.model_kernel},
              {"model_us", plan.record.model_us}};
  }
  return {{"chosen_by", to_string(plan.chosen_by)},
          {"record", std::move(record)},
          {"candidates", std::move(candidates)},
          {"refused_candidates", std::move(refused)},
          {"steps", plan.steps},
          {"workspace_bytes", plan.workspace_bytes}};
}

std::string plan_text(const GemmExplanation& plan) {
  std::string text;
  if (!plan.candidates.empty()) {
    Table table({{"tile"},
                 {"cluster"},
                 {"splits", Align::kRight},
                 {"stages", Align::kRight},
                 {"shared bytes", Align::kRight},
                 {"waves", Align::kRight},
                 {"cycles a tile", Align::kRight},
                 {"cycles", Align::kRight},
                 {"us", Align::kRight},
                 {"kernel"}});
    for (const GemmCandidateReport& candidate : plan.candidates) {
      table.add_row({fmt::format("{}x{}x{}", candidate.tile_m, candidate.tile_n, candidate.tile_k),
                     fmt::format("{}x{}", candidate.cluster_m, candidate.cluster_n),
                     std::to_string(candidate.num_splits), std::to_string(candidate.stages),
                     std::to_string(candidate.shared_bytes), std::to_string(candidate.waves),
                     fmt::format("{:.0f}", candidate.tile_cycles),
                     fmt::format("{:.0f}", candidate.estimated_cycles),
                     fmt::format("{:.1f}", candidate.estimated_us), candidate.kernel});
    }
    text +=
        "\ncandidates, the choice first; cycles = waves x cycles a tile, at 1,300 MHz, the clock "
        "of a sustained load (M up to 256: that, the loads, the memory, start and end, at 1,750 "
        "MHz):\n" +
        table.to_text();
    text += fmt::format("chosen by {}", plan.chosen_by == ChosenBy::kModel
                                            ? "the model"
                                            : std::string("a ") + to_string(plan.chosen_by));
    if (plan.chosen_by != ChosenBy::kModel) {
      const TuningRecord& record = plan.record;
      text += fmt::format(" ({}): {:.1f} us measured, {}", record.environment, record.us,
                          record.kernel == record.model_kernel
                              ? std::string("the model's choice too")
                              : fmt::format("{:.1f} us with the model's choice {}", record.model_us,
                                            record.model_kernel));
    }
    text += "\n";
  }
  for (const RefusedCandidateReport& candidate : plan.refused_candidates) {
    text += fmt::format("{}x{}x{} in clusters of {}x{} left out: {}\n", candidate.tile_m,
                        candidate.tile_n, candidate.tile_k, candidate.cluster_m,
                        candidate.cluster_n, candidate.reason);
  }
  for (const std::string& step : plan.steps) text += fmt::format("  {}\n", step);
  return text + "\n";
}

// What "cuda" would do: its report, from a recorded GPU where one was given, and the plan in JSON.
Json explain_cuda(const ExplainGemm& options, SupportReport& report, Session& session) {
  const std::optional<GpuDescription> gpu = planned_gpu(options.device_file);
  if (!gpu) {
    session.text(
        "cuda   no GPU to plan for; --device-file data/devices/h200.json plans for a "
        "recorded one\n");
    return nullptr;
  }
  const GemmExplanation plan = octavo::explain(unplaced_problem(options.request), *gpu);
  if (!options.device_file.empty()) {
    report.reasons = plan.refusals;
    report.supported = plan.refusals.empty();
    report.kernel = plan.candidates.empty() ? "" : plan.candidates.front().kernel;
  }
  Json json = plan_json(plan);
  json["gpu"] = to_json(*gpu);
  if (!plan.refusals.empty()) return json;
  session.text(fmt::format("cuda   planned for {}{}\n", text_of(*gpu),
                           options.device_file.empty() ? "" : ", recorded"));
  session.text(plan_text(plan));
  return json;
}

Json plan_of(const ExplainGemm& options, std::vector<SupportReport>& reports, Session& session) {
  for (SupportReport& report : reports) {
    if (report.backend == "cuda") return explain_cuda(options, report, session);
  }
  if (!options.device_file.empty()) {
    throw UsageError(
        "--device-file: it was given with a back end other than \"cuda\", whose plans "
        "alone depend on a GPU. Leave one of the two out.");
  }
  return nullptr;
}

HostTensor one_i32(std::int32_t value) {
  HostTensor element(DType::kI32, {1});
  std::memcpy(element.mutable_bytes().data(), &value, sizeof value);
  return element;
}

std::vector<std::int64_t> scale_extents(AttentionScale kind, std::int64_t first,
                                        std::int64_t heads) {
  if (kind == AttentionScale::kTensor) return {1};
  if (kind == AttentionScale::kHead) return {heads};
  return {first, heads};
}

std::vector<SupportReport> reports_for(const AttentionRequest& request,
                                       const ExecutionRequest& how) {
  check_options(request);
  constexpr double kBytesPerOutput = 4;
  require_memory("explain attention",
                 static_cast<double>(request.batch) * static_cast<double>(request.q_len) *
                     static_cast<double>(request.heads) *
                     static_cast<double>(request.value_dim() + 1) * kBytesPerOutput);
  const HostTensor value = one(request.dtype);
  const HostTensor scale = one(DType::kF32);
  const HostTensor length = one_i32(static_cast<std::int32_t>(request.kv_len));
  const HostTensor page = one_i32(0);
  HostTensor o(request.o_dtype, {request.batch, request.q_len, request.heads, request.value_dim()});
  HostTensor lse(DType::kF32, {request.batch, request.heads, request.q_len});
  const bool paged = request.page_size > 0;
  const std::int64_t num_pages = request.batch * request.pages_per_sequence();
  const std::int64_t first = paged ? num_pages : request.batch;
  const std::int64_t second = paged ? request.page_size : request.kv_len;
  AttentionProblem problem;
  problem.q = broadcast(value, {request.batch, request.q_len, request.heads, request.head_dim});
  problem.k = broadcast(value, {first, second, request.kv_heads, request.head_dim});
  problem.v = broadcast(value, {first, second, request.kv_heads, request.value_dim()});
  problem.o = o.mutable_view();
  problem.lse = lse.mutable_view();
  if (paged || request.lengths == Lengths::kRandom) {
    problem.kv_lengths = broadcast(length, {request.batch});
  }
  if (paged) problem.page_table = broadcast(page, {request.batch, request.pages_per_sequence()});
  problem.mask = request.mask;
  problem.window_left = request.window_left;
  problem.window_right = request.window_right;
  problem.softcap = static_cast<float>(request.softcap);
  if (is_fp8(request.dtype) && request.scales != AttentionScale::kNone) {
    const AttentionScale q_kind =
        request.scales == AttentionScale::kPageHead ? AttentionScale::kHead : request.scales;
    problem.q_scale_kind = q_kind;
    problem.k_scale_kind = request.scales;
    problem.v_scale_kind = request.scales;
    problem.q_scale = broadcast(scale, scale_extents(q_kind, request.batch, request.heads));
    const std::int64_t owners =
        request.scales == AttentionScale::kPageHead ? num_pages : request.batch;
    problem.k_scale = broadcast(scale, scale_extents(request.scales, owners, request.kv_heads));
    problem.v_scale = problem.k_scale;
  }
  return supports(problem, how.execution());
}

Json plan_of(const ExplainAttention&, const std::vector<SupportReport>&, Session&) {
  return nullptr;
}

template <typename Options>
void explain(const Options& options, Session& session) {
  std::vector<SupportReport> reports = reports_for(options.request, options.how);
  Json plan = plan_of(options, reports, session);
  std::string chosen;
  Json backends = Json::array();
  for (const SupportReport& report : reports) {
    Json reasons = Json::array();
    if (report.supported) {
      session.text(fmt::format("{:<6} serves it: {}\n", report.backend, report.kernel));
      if (chosen.empty()) chosen = report.backend;
    } else {
      session.text(fmt::format("{:<6} does not serve it:\n", report.backend));
    }
    for (const Reason& reason : report.reasons) {
      session.text(fmt::format("       {}\n", to_string(reason)));
      reasons.push_back({{"kind", reason.kind},
                         {"field", reason.field},
                         {"have", reason.have},
                         {"need", reason.need}});
    }
    backends.push_back({{"backend", report.backend},
                        {"supported", report.supported},
                        {"kernel", report.kernel},
                        {"reasons", std::move(reasons)}});
  }
  session.text(chosen.empty()
                   ? "No back end would run it.\n"
                   : fmt::format("{} would run it: {}.\n", chosen,
                                 options.how.backend.empty()
                                     ? "the first, in the order of octavo list backends, that is "
                                       "available and serves the problem"
                                     : "it was asked for by name and serves the problem"));
  session.document({{"problem", to_json(options.request)},
                    {"numerics", to_string(options.how.numerics)},
                    {"backends", std::move(backends)},
                    {"plan", std::move(plan)},
                    {"chosen", chosen.empty() ? Json(nullptr) : Json(chosen)}});
  if (chosen.empty()) session.finish_with(ExitCode::kEnvironment);
}

}  // namespace

void add_explain(CLI::App& app, Session& session) {
  CLI::App& verb = add_verb(app, "explain", "Which back end and kernel would run, and why");
  require_part(verb);
  auto product = std::make_shared<ExplainGemm>();
  CLI::App& gemm = add_verb(verb, "gemm", "A product");
  add_gemm_options(gemm, product->request);
  add_execution_options(gemm, product->how);
  add_text(gemm, "--device-file", product->device_file,
           "Plan for the GPU that this file describes (octavo doctor --device-out)");
  add_json_flag(gemm);
  on_run(gemm, [product, &session] { explain(*product, session); });
  auto attending = std::make_shared<ExplainAttention>();
  CLI::App& attention = add_verb(verb, "attention", "softmax(Q K^T) V");
  add_attention_options(attention, attending->request);
  add_execution_options(attention, attending->how);
  add_json_flag(attention);
  on_run(attention, [attending, &session] { explain(*attending, session); });
}

}  // namespace octavo::cli
