// SPDX-License-Identifier: Apache-2.0
// octavo explain: for each back end, whether it serves a problem, why not, and what would run. No
// product is computed and no data is drawn.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "gemm_request.hpp"
#include "host_tensor.hpp"
#include "octavo/gemm.hpp"
#include "options.hpp"
#include "session.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

struct ExplainOptions {
  GemmRequest request;
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

std::vector<std::int64_t> scale_extents(ScaleGranularity granularity, std::int64_t rows,
                                        std::int64_t k) {
  const ScaleShape shape = scale_shape(granularity, rows, k);
  const bool block = granularity == ScaleGranularity::kBlock1x128 ||
                     granularity == ScaleGranularity::kBlock128x128;
  if (!block) return {shape.rows};
  return {shape.rows, shape.cols};
}

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
  return supports(problem, how.execution());
}

void explain_gemm(const ExplainOptions& options, Session& session) {
  const std::vector<SupportReport> reports = reports_for(options.request, options.how);
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
                    {"chosen", chosen.empty() ? Json(nullptr) : Json(chosen)}});
  if (chosen.empty()) session.finish_with(ExitCode::kEnvironment);
}

}  // namespace

void add_explain(CLI::App& app, Session& session) {
  CLI::App* verb = app.add_subcommand("explain", "Which back end and kernel would run, and why");
  verb->require_subcommand(1);
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* gemm = verb->add_subcommand("gemm", "A product");
  add_gemm_options(*gemm, options->request);
  add_execution_options(*gemm, options->how);
  add_json_flag(*gemm);
  gemm->callback([options, &session] { explain_gemm(*options, session); });
}

}  // namespace octavo::cli
