// SPDX-License-Identifier: Apache-2.0
// octavo names: what kernels' names say, both ways, the name of every kernel there is, and what a
// name does to the code (names_ab.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "names_ab.hpp"
#include "octavo/name_effect.hpp"
#include "octavo/naming.hpp"
#include "options.hpp"
#include "session.hpp"
#include "table.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

// "field=value" as the two.
std::vector<NameField> fields_in(const std::vector<std::string>& words) {
  std::vector<NameField> fields;
  for (const std::string& word : words) {
    const std::size_t at = word.find('=');
    if (at == std::string::npos || at == 0) {
      throw UsageError(fmt::format(
          "names: \"{}\" was given; it must be a field and its value, such as tile=256x128x128.",
          word));
    }
    fields.push_back({word.substr(0, at), word.substr(at + 1)});
  }
  return fields;
}

Json json_of(const std::vector<NameField>& fields) {
  Json json = Json::object();
  for (const NameField& field : fields) json[field.field] = field.value;
  return json;
}

void parse(const std::vector<std::string>& names, Session& session) {
  Json items = Json::array();
  for (const std::string& name : names) {
    const KernelNameReading reading = read_kernel_name(name);
    Table table({{"field"}, {"value"}});
    table.add_row({"maker", reading.maker});
    for (const NameField& field : reading.fields) table.add_row({field.field, field.value});
    session.text((names.size() > 1 ? name + "\n" : "") + table.to_text());
    for (const std::string& note : reading.notes) session.text(fmt::format("{}\n", note));
    items.push_back({{"name", name},
                     {"maker", reading.maker},
                     {"fields", json_of(reading.fields)},
                     {"notes", reading.notes}});
  }
  session.document({{"names", std::move(items)}});
}

void name_of(const std::vector<std::string>& words, Session& session) {
  const std::string name = kernel_name_of(fields_in(words));
  session.text(name + "\n");
  session.document({{"name", name}, {"fields", json_of(kernel_name_fields(name))}});
}

void catalogue(const std::vector<std::string>& words, Session& session) {
  const std::vector<NameField> wanted = fields_in(words);
  (void)kernel_name_of(wanted);  // says what is wrong with a field or a value
  Json names = Json::array();
  std::string text;
  for (const std::string& name : kernel_catalogue()) {
    const std::vector<NameField> fields = kernel_name_fields(name);
    const bool fits = std::all_of(wanted.begin(), wanted.end(), [&](const NameField& field) {
      return std::find(fields.begin(), fields.end(), field) != fields.end();
    });
    if (!fits) continue;
    text += name + "\n";
    names.push_back(name);
  }
  session.text(text);
  session.document({{"count", names.size()}, {"names", std::move(names)}});
}

void print_ptx(const std::vector<std::string>& names, Session& session) {
  Json items = Json::array();
  for (const std::string& name : names) {
    std::string ptx = octavo_kernel_ptx(name);
    session.text(ptx);
    items.push_back({{"name", name}, {"ptx", std::move(ptx)}});
  }
  session.document({{"kernels", std::move(items)}});
}

}  // namespace

void add_names(CLI::App& app, Session& session) {
  CLI::App& verb = add_verb(app, "names", "What kernels' names say, and which kernels there are");
  require_part(verb);
  auto words = std::make_shared<std::vector<std::string>>();
  const auto add = [&](const char* name, const char* text, const char* argument, const char* what,
                       void (*run)(const std::vector<std::string>&, Session&)) {
    CLI::App& part = add_verb(verb, name, text);
    CLI::Option* option = add_texts(part, argument, *words, what);
    add_json_flag(part);
    on_run(part, [words, run, &session] { run(*words, session); });
    return option;
  };
  require(add("parse", "What a name of Octavo's, of CUTLASS's or of cuBLASLt's (nvjet) says",
              "names", "Kernels' names", &parse));
  add("of", "The name that says this", "fields",
      "field=value, such as tile=256x128x128; what is left out is usual", &name_of);
  add("catalogue", "The name of every kernel that a plan for an H200 may choose", "fields",
      "Only names that say this: field=value", &catalogue);
  require(add("ptx", "The PTX of a kernel of Octavo's, as NVRTC writes it", "names",
              "Kernels' names", &print_ptx));
  add_names_ab(verb, session);
}

}  // namespace octavo::cli
