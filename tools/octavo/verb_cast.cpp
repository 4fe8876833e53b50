// SPDX-License-Identifier: Apache-2.0
// octavo cast: values to the codes of a format, and codes back to values.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/quantize.hpp"
#include "options.hpp"
#include "session.hpp"
#include "table.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

constexpr std::array kFormats{DType::kE4M3, DType::kE5M2, DType::kUE8M0, DType::kBF16, DType::kF16};
constexpr int kBitsPerByte = 8;
constexpr int kDigitsPerByte = 2;  // hexadecimal

struct CastOptions {
  DType format = DType::kE4M3;
  bool decode = false;
  std::vector<std::string> values;
};

struct CastRow {
  std::string input;
  float value = 0;  // of the input; when decoding, the decoded value
  std::uint32_t code = 0;
  float decoded = 0;
};

// The float nearest to the text (correctly rounded by the C library).
float parse_value(const std::string& text) {
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  const bool blank_first = !text.empty() && (text.front() == ' ' || text.front() == '\t');
  if (text.empty() || blank_first || end != text.c_str() + text.size()) {
    throw UsageError(fmt::format(
        "cast: \"{}\" is not a number. Give decimals, hexadecimal floats, inf or nan.", text));
  }
  return value;
}

std::uint32_t parse_code(const std::string& text, DType format) {
  const std::uint32_t highest = (1U << (kBitsPerByte * size_bytes(format))) - 1;
  constexpr int kHexadecimal = 16;
  constexpr int kDecimal = 10;
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  const char* begin = text.data() + (hexadecimal ? kDigitsPerByte : 0);
  const char* end = text.data() + text.size();
  std::uint32_t code = 0;
  const auto [rest, error] =
      std::from_chars(begin, end, code, hexadecimal ? kHexadecimal : kDecimal);
  if (error != std::errc{} || rest != end || code > highest) {
    throw UsageError(
        fmt::format("cast: \"{}\" is not a {} code; codes go from 0x0 to {:#x}, in "
                    "hexadecimal after 0x or in decimal. Give a code in this range.",
                    text, to_string(format), highest));
  }
  return code;
}

std::string hex(std::uint32_t bits, int num_bytes) {
  return fmt::format("0x{:0{}x}", bits, num_bytes * kDigitsPerByte);
}

// The shortest text that reads back as the same float.
std::string number_text(float value) {
  if (std::isnan(value)) return "nan";
  return fmt::format("{}", value);
}

// JSON has no infinities and no NaN: those become strings.
Json number_json(float value) {
  if (!std::isfinite(value)) return number_text(value);
  return value;
}

void cast(const CastOptions& options, Session& session) {
  std::vector<CastRow> rows;
  for (const std::string& text : options.values) {
    CastRow row;
    row.input = text;
    if (options.decode) {
      row.code = parse_code(text, options.format);
      row.decoded = decode(options.format, row.code);
      row.value = row.decoded;
    } else {
      row.value = parse_value(text);
      row.code = encode(options.format, row.value);
      row.decoded = decode(options.format, row.code);
    }
    rows.push_back(std::move(row));
  }

  const int code_bytes = size_bytes(options.format);
  Table table({{"input", Align::kRight}, {"fp32 bits"}, {"code"}, {"value", Align::kRight}});
  Json values = Json::array();
  for (const CastRow& row : rows) {
    const std::string bits = hex(std::bit_cast<std::uint32_t>(row.value), size_bytes(DType::kF32));
    table.add_row({row.input, bits, hex(row.code, code_bytes), number_text(row.decoded)});
    values.push_back({{"input", row.input},
                      {"fp32_bits", bits},
                      {"code", hex(row.code, code_bytes)},
                      {"value", number_json(row.decoded)}});
  }
  session.text(table.to_text());
  session.document({{"format", to_string(options.format)},
                    {"direction", options.decode ? "decode" : "encode"},
                    {"values", std::move(values)}});
}

}  // namespace

void add_cast(CLI::App& app, Session& session) {
  auto options = std::make_shared<CastOptions>();
  CLI::App& verb = add_verb(app, "cast", "Values to the codes of a format, and back");
  require(add_enum(verb, "format", options->format, kFormats, "The format"));
  require(add_texts(verb, "values", options->values,
                    "Values (decimal, hexadecimal float, inf, nan), or codes with --decode"));
  add_flag(verb, "--decode", options->decode, "The values are codes: 0x7e 0x01");
  add_json_flag(verb);
  set_footer(verb,
             "Encoding rounds to nearest even and saturates, as the GPU does; NaN gives 0x7f.\n"
             "UE8M0 rounds up. Example: octavo cast e4m3 447 464 -inf nan 1e-9");
  on_run(verb, [options, &session] { cast(*options, session); });
}

}  // namespace octavo::cli
