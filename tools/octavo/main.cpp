// SPDX-License-Identifier: Apache-2.0
// The octavo command: picks the verb, turns every error into a message and an exit code. What each
// verb does is in verb_<name>.cpp; exit codes are in session.hpp.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "octavo/error.hpp"
#include "octavo/runtime.hpp"
#include "options.hpp"
#include "session.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

bool is_number(const std::string& text) {
  char* end = nullptr;
  (void)std::strtof(text.c_str(), &end);
  return !text.empty() && end == text.c_str() + text.size();
}

// `octavo cast e4m3 -inf -1`: values after "--", so that a minus sign does not make an option.
std::vector<std::string> protect_negative_values(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != "cast") return arguments;
  const auto first_value =
      std::stable_partition(arguments.begin() + 1, arguments.end(), [](const std::string& text) {
        return text.size() > 1 && text.front() == '-' && text != "--" && !is_number(text);
      });
  if (std::find(first_value, arguments.end(), "--") == arguments.end()) {
    arguments.insert(first_value, "--");
  }
  return arguments;
}

int fail(const Session& session, std::string_view code, const std::string& message, ExitCode exit) {
  if (session.json()) {
    Session report(OutputForm::kJson);
    report.document({{"error", {{"code", code}, {"message", message}}}});
    (void)report.flush();
  }
  session.clear_progress();
  fmt::print(stderr, "{}\n", message);
  return static_cast<int>(exit);
}

int run(const std::vector<std::string>& given) {
  const bool json = std::find(given.begin(), given.end(), "--json") != given.end();
  Session session(json ? OutputForm::kJson : OutputForm::kText);

  CLI::App app("FP8 matrix products and attention for LLM inference", "octavo");
  app.set_version_flag("--version", version());
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 success, 1 a check failed, 2 bad usage, 3 the environment lacks something.\n"
      "octavo VERB --help tells a verb's options.");
  constexpr std::array kVerbs{&add_doctor,  &add_cast,     &add_run,       &add_bench,
                              &add_explain, &add_list,     &add_warmup,    &add_tune,
                              &add_names,   &add_generate, &add_perplexity};
  for (const auto add : kVerbs) add(app, session);

  const auto is_given = [&given](const CLI::App* verb) {
    return verb->get_name() == given.front();
  };
  if (!given.empty() && !given.front().starts_with('-') &&
      std::as_const(app).get_subcommands(is_given).empty()) {
    return fail(
        session, "bad usage",
        fmt::format("octavo: \"{}\" is not a verb. octavo --help lists the verbs.", given.front()),
        ExitCode::kBadUsage);
  }

  std::vector<std::string> arguments = protect_negative_values(given);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return fail(session, "bad usage", fmt::format("octavo: {}. See octavo --help.", error.what()),
                ExitCode::kBadUsage);
  } catch (const UsageError& error) {
    return fail(session, "bad usage", error.what(), ExitCode::kBadUsage);
  } catch (const Error& error) {
    return fail(session, to_string(error.code()), error.what(), exit_code_of(error.code()));
  } catch (const std::bad_alloc&) {
    return fail(session, "environment",
                "octavo: the memory needed is more than this machine gives. Use a smaller problem "
                "or model.",
                ExitCode::kEnvironment);
  } catch (const std::exception& error) {
    return fail(session, to_string(ErrorCode::kInternal),
                fmt::format("octavo: {}. This is a defect; please report it.", error.what()),
                ExitCode::kCheckFailed);
  }
  if (!session.flush()) {
    return fail(Session(OutputForm::kText), "io",
                "octavo: standard output could not take all of the output (disk full, or closed "
                "early).",
                ExitCode::kCheckFailed);
  }
  return static_cast<int>(session.exit_code());
}

}  // namespace
}  // namespace octavo::cli

int main(int argc, char** argv) {
  return octavo::cli::run(std::vector<std::string>(argv + 1, argv + std::max(argc, 1)));
}
