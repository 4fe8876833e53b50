// SPDX-License-Identifier: Apache-2.0
#include "naming/foreign_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace octavo {
namespace {

struct Word {
  std::string_view text;
  std::size_t at;  // byte of the name
};

std::vector<Word> words_of(std::string_view name) {
  std::vector<Word> words;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    if (i < name.size() && name[i] != '_') continue;
    words.push_back({name.substr(begin, i - begin), begin});
    begin = i + 1;
  }
  return words;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Numbers joined by x, `count` of them.
bool is_product(std::string_view word, int count) {
  int numbers = 0;
  std::size_t at = 0;
  for (;;) {
    const std::size_t begin = at;
    while (at < word.size() && is_digit(word[at])) ++at;
    if (at == begin) return false;
    ++numbers;
    if (at == word.size()) return numbers == count;
    if (word[at++] != 'x') return false;
  }
}

bool is_number(std::string_view word) { return is_product(word, 1); }

class Reader {
 public:
  Reader(std::string_view name, std::string maker) : words_(words_of(name)) {
    reading_.maker = std::move(maker);
  }

  [[nodiscard]] bool at_end() const { return next_ >= words_.size(); }
  [[nodiscard]] std::string_view peek() const { return at_end() ? "" : words_[next_].text; }
  std::string_view take() { return at_end() ? "" : words_[next_++].text; }
  bool take_if(std::string_view word) {
    if (at_end() || peek() != word) return false;
    ++next_;
    return true;
  }

  void add(std::string field, std::string_view value) {
    reading_.fields.push_back({std::move(field), std::string(value)});
  }
  void note(std::string text) { reading_.notes.push_back(std::move(text)); }

  // That what comes next is not what must.
  [[nodiscard]] Error fail(std::string_view wanted) const {
    const std::size_t at =
        at_end() ? words_.back().at + words_.back().text.size() : words_[next_].at;
    return {
        ErrorCode::kInvalidArgument,
        fmt::format("kernel name: {} must stand at byte {}, where {}. Give a kernel's name as a "
                    "profiler shows it.",
                    wanted, at, at_end() ? "the name ends" : fmt::format("\"{}\" does", peek()))};
  }

  [[nodiscard]] KernelNameReading finish() { return std::move(reading_); }

 private:
  std::vector<Word> words_;
  std::size_t next_ = 0;
  KernelNameReading reading_;
};

// "1x128f32xe4m3" as how the operand is scaled, "1x128f32", and its type; most names have the type
// alone.
std::pair<std::string_view, std::string_view> scale_and_type(std::string_view word) {
  const std::size_t last = word.rfind('x');
  if (last == std::string_view::npos || !is_digit(word.front())) return {"", word};
  return {word.substr(0, last), word.substr(last + 1)};
}

Result<KernelNameReading> read_cutlass(std::string_view name) {
  Reader reader(name, "cutlass");
  reader.take();  // cutlass3x
  if (!reader.peek().starts_with("sm")) return reader.fail("an architecture such as sm90");
  reader.add("architecture", reader.take());
  if (!reader.peek().ends_with("tensorop") && reader.peek() != "simt") {
    return reader.fail("tensorop, sptensorop, bstensorop or simt");
  }
  reader.add("class", reader.take());
  // "s64x128x32gemm": the sum's type, the instruction's shape and what is multiplied.
  std::string_view operation = reader.peek();
  const std::size_t gemm = operation.find("gemm");
  if (gemm == std::string_view::npos) return reader.fail("an operation such as gemm");
  if (gemm > 0) reader.add("instruction", operation.substr(0, gemm));
  reader.take();
  std::string whole(operation.substr(gemm));
  while (reader.peek() == "grouped" || reader.peek() == "gather") {
    whole += "_" + std::string(reader.take());
  }
  reader.add("operation", whole);

  constexpr std::array kElements{"a", "b", "accumulator", "c", "d"};
  std::array<std::string_view, 2> scales;
  for (std::size_t i = 0; i < kElements.size(); ++i) {
    if (reader.at_end() || is_product(reader.peek(), 3)) {
      return reader.fail(fmt::format("the type of {}", kElements[i]));
    }
    const auto [scale, type] = scale_and_type(reader.take());
    if (i < scales.size()) scales[i] = scale;
    reader.add(kElements[i], type);
  }
  if (scales[0] == "1x128f32" && scales[1] == "128x128f32") {
    reader.add("recipe", "block");
  } else if (scales[0] == "1x128f32" && scales[1] == "1x128f32") {
    reader.add("recipe", "block1d");
  } else if (!scales[0].empty() || !scales[1].empty()) {
    reader.add("a_scale", scales[0]);
    reader.add("b_scale", scales[1]);
  } else {
    reader.note("recipe: the name does not say whether and how results are scaled");
  }
  std::string extra;
  while (!reader.at_end() && !is_product(reader.peek(), 3)) {
    extra += (extra.empty() ? "" : "_") + std::string(reader.take());
  }
  if (!extra.empty()) reader.add("mixed_types", extra);
  if (reader.at_end()) return reader.fail("a tile such as 128x128x128");
  reader.add("tile", reader.take());
  if (!is_product(reader.peek(), 3)) return reader.fail("a cluster such as 2x1x1");
  const std::string_view cluster = reader.take();
  reader.add("cluster", cluster.ends_with("x1") ? cluster.substr(0, cluster.size() - 2) : cluster);
  if (!is_number(reader.peek())) return reader.fail("a number of stages");
  const std::string_view stages = reader.take();
  reader.add("stages", stages == "0" ? "auto" : stages);
  if (stages == "0") {
    reader.note("stages: 0 stands for as many as CUTLASS's builder found room for");
  }
  if (reader.peek().size() != 3) return reader.fail("layouts of A, B and D such as tnt");
  reader.add("layouts", reader.take());
  if (!reader.peek().starts_with("align")) return reader.fail("an alignment such as align16");
  reader.add("alignment", reader.take().substr(5));

  std::string schedule;
  std::string sum;
  std::string unread;
  while (!reader.at_end()) {
    if (reader.take_if("warpspecialized")) {
      schedule = "warpspecialized";
    } else if (reader.take_if("cooperative")) {
      schedule = "cooperative";
    } else if (reader.take_if("pingpong")) {
      schedule = "pingpong";
    } else if (reader.take_if("cpasync")) {
      schedule = "cpasync";
    } else if (reader.take_if("fastaccum")) {
      sum = "fast";
    } else if (reader.take_if("stream")) {
      reader.take_if("k");
      reader.add("splits", "stream_k");
    } else if (reader.take_if("epi")) {
      reader.add("epilogue", reader.take());
    } else {
      unread += (unread.empty() ? "" : "_") + std::string(reader.take());
    }
  }
  if (!schedule.empty()) reader.add("schedule", schedule);
  KernelNameReading reading = reader.finish();
  const auto is_fp8 = [&](const NameField& field) {
    return field.field == "a" && (field.value == "e4m3" || field.value == "e5m2");
  };
  const bool multiplies_fp8 = std::any_of(reading.fields.begin(), reading.fields.end(), is_fp8);
  if (!sum.empty()) {
    reading.fields.push_back({"sum", sum});
  } else if (multiplies_fp8) {
    reading.fields.push_back({"sum", "promoted"});
    reading.notes.emplace_back(
        "sum: promoted is what CUTLASS's FP8 kernels do unless their name has fp8_fastaccum");
  }
  // fp8 only repeats the types.
  if (!unread.empty() && unread != "fp8") reading.notes.push_back("not read: " + unread);
  return reading;
}

// One letter of an nvjet name: guessed from products of known types.
std::string nvjet_type(std::string_view letter) {
  if (letter == "q") return "fp8";
  if (letter == "t") return "bf16";
  if (letter == "h") return "f16";
  if (letter == "s") return "f32";
  if (letter == "d") return "f64";
  return std::string(letter);
}

Result<KernelNameReading> read_nvjet(std::string_view name) {
  Reader reader(name, "nvjet");
  reader.take();  // nvjet
  if (reader.peek().starts_with("sm")) reader.add("architecture", reader.take());
  const std::string_view types = reader.peek();
  const bool are_letters = !types.empty() && std::all_of(types.begin(), types.end(), [](char c) {
    return c >= 'a' && c <= 'z';
  });
  // Three letters: A and B, the sum, D; five: A, B, C, the sum, D.
  if (!are_letters || (types.size() != 3 && types.size() != 5)) {
    return reader.fail("three or five letters for types such as tst or qqtst");
  }
  reader.take();
  const bool has_five = types.size() == 5;
  reader.add("a", nvjet_type(types.substr(0, 1)));
  reader.add("b", nvjet_type(types.substr(has_five ? 1 : 0, 1)));
  if (has_five) reader.add("c", nvjet_type(types.substr(2, 1)));
  reader.add("accumulator", nvjet_type(types.substr(has_five ? 3 : 1, 1)));
  reader.add("d", nvjet_type(types.substr(types.size() - 1)));
  reader.note(
      "types: q, t, h and s are taken as FP8, BF16, F16 and F32, from products of known "
      "types; which FP8 is not said");
  if (!is_product(reader.peek(), 2)) return reader.fail("a tile such as 128x256");
  const std::string_view tile = reader.take();
  if (!is_product(reader.peek(), 2)) return reader.fail("K of a stage and stages such as 128x4");
  const std::string_view stages = reader.take();
  const std::size_t cross = stages.find('x');
  reader.add("tile", fmt::format("{}x{}", tile, stages.substr(0, cross)));
  reader.add("stages", stages.substr(cross + 1));
  reader.note(
      "tile and stages: \"64x128_128x4\" is taken as M x N, then K of a stage x stages; "
      "cuBLASLt's matrices are column-major, so that its M is the N of a row-major product");
  if (!is_product(reader.peek(), 2)) return reader.fail("a cluster such as 2x1");
  reader.add("cluster", reader.take());
  if (reader.take_if("2cta")) reader.add("instruction", "2cta");
  if (reader.peek() != "v" && reader.peek() != "h") return reader.fail("v or h");
  reader.add("order", reader.take() == "v" ? "vertical" : "horizontal");
  reader.note("order: v and h are taken as the order in which tiles are gone through");
  std::string unread;
  while (!reader.at_end()) {
    const std::string_view word = reader.take();
    const bool is_layout =
        reader.at_end() && (word.size() == 3 || word.size() == 4) &&
        std::all_of(word.begin(), word.end(), [](char c) { return c == 'T' || c == 'N'; });
    if (is_layout) {
      std::string layouts(word);
      for (char& c : layouts) c = c == 'T' ? 't' : 'n';
      reader.add("layouts", layouts);
    } else if (word == "coopA" || word == "coopB") {
      reader.add("schedule", "cooperative");
      reader.note(fmt::format("schedule: {} is taken as two consumers that share a tile", word));
    } else if (word == "splitK") {
      reader.add("splits", "splitK");
    } else if (word == "bias") {
      reader.add("bias", "yes");
    } else {
      unread += (unread.empty() ? "" : "_") + std::string(word);
    }
  }
  if (!unread.empty()) reader.note("not read: " + unread);
  return reader.finish();
}

}  // namespace

std::optional<Result<KernelNameReading>> read_cutlass_name(std::string_view name) {
  if (!name.starts_with("cutlass3x_")) return std::nullopt;
  return read_cutlass(name);
}

std::optional<Result<KernelNameReading>> read_nvjet_name(std::string_view name) {
  if (!name.starts_with("nvjet_")) return std::nullopt;
  return read_nvjet(name);
}

KernelNameReading read_kernel_name(std::string_view name) {
  if (std::optional<Result<KernelNameReading>> cutlass = read_cutlass_name(name)) {
    return std::move(cutlass->value());
  }
  if (std::optional<Result<KernelNameReading>> nvjet = read_nvjet_name(name)) {
    return std::move(nvjet->value());
  }
  if (name.starts_with("_Z") || name.find("cutlass::") != std::string_view::npos) {
    throw Error(ErrorCode::kInvalidArgument,
                "kernel name: this is the name of a C++ template's instance, which has no fields "
                "of its own; it must be a procedural name (octavo_sm90_..., cutlass3x_sm90_..., "
                "nvjet_...). Read its arguments with c++filt.");
  }
  return {"octavo", kernel_name_fields(name), {}};
}

}  // namespace octavo
