// SPDX-License-Identifier: Apache-2.0
#include "naming/kernel_name.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <utility>

namespace octavo {
namespace {

constexpr std::array kRecipes = {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                 ScaleRecipe::kBlock, ScaleRecipe::kBlock1d};
constexpr std::array kGranularities = {ScaleGranularity::kNone, ScaleGranularity::kTensor,
                                       ScaleGranularity::kRow, ScaleGranularity::kBlock1x128,
                                       ScaleGranularity::kBlock128x128};
constexpr std::array kInputTypes = {DType::kE4M3, DType::kE5M2};
constexpr std::array kOutputTypes = {DType::kBF16, DType::kF16, DType::kF32};
constexpr std::array kSchedules = {Schedule::kCooperative, Schedule::kPingpong,
                                   Schedule::kStreamed};
constexpr std::array kSums = {MainloopSum::kPromoted, MainloopSum::kFast};

constexpr std::string_view kScaleType = "f32x";
constexpr std::string_view kSplit = "split";
constexpr std::array kGroupings = {Grouping::kRows, Grouping::kProducts};
constexpr std::string_view kAccumulate = "accumulate";
constexpr std::string_view kBias = "bias";
// No word of the grammar, so that a value outside its enum is refused when read back.
constexpr std::string_view kNoWord = "?";

std::string concat(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

std::string_view sum_word(MainloopSum sum) {
  switch (sum) {
    case MainloopSum::kPromoted: return "f32";
    case MainloopSum::kFast: return "f32fast";
  }
  return kNoWord;
}

std::string_view schedule_word(Schedule schedule) {
  switch (schedule) {
    case Schedule::kCooperative: return "cooperative";
    case Schedule::kPingpong: return "pingpong";
    case Schedule::kStreamed: return "streamed";
  }
  return kNoWord;
}

// Grouping::kNone has none.
std::string_view grouping_word(Grouping grouping) {
  switch (grouping) {
    case Grouping::kNone: return "";
    case Grouping::kRows: return "grouped";
    case Grouping::kProducts: return "fused";
  }
  return kNoWord;
}

std::string operand_word(std::string_view granularity, DType type) {
  return concat({granularity, kScaleType, to_string(type)});
}

// One word of a name, for messages: "the tile", its rule, and a word that obeys it.
struct Part {
  std::string_view where;
  std::string_view rule;
  std::string_view example;
};

constexpr Part kA = {
    "A", "<scale>f32x<type>, scale none, tensor, row, 1x128 or 128x128, type e4m3 or e5m2",
    "1x128f32xe4m3"};
constexpr Part kB = {
    "B", "<scale>f32x<type>, scale none, tensor, row, 1x128 or 128x128, type e4m3 or e5m2",
    "128x128f32xe4m3"};
constexpr Part kSum = {"the sum", "f32 (promoted) or f32fast", "f32"};
constexpr Part kD = {"D", "bf16, f16 or f32", "bf16"};
constexpr Part kTile = {"the tile", "<tile_m>x<tile_n>x<tile_k>", "128x256x128"};
constexpr Part kCluster = {"the cluster", "<cluster_m>x<cluster_n>", "2x1"};
constexpr Part kStages = {"the stage count", "s<stages>", "s4"};
constexpr Part kUnroll = {"the unrolling", "u<unroll_k>", "u4"};
constexpr Part kSchedule = {"the schedule", "cooperative, pingpong or streamed", "cooperative"};
constexpr Part kRaster = {"the raster order", "alongn<raster_group_m>", "alongn8"};

// Rules that take in more than one word, each with its fix.
constexpr std::string_view kRecipeRule =
    "; a recipe has none and none, tensor and tensor, row and row, 1x128 and 128x128, or 1x128 and "
    "1x128. Change one of the two. See docs/scale_recipes.md.";
constexpr std::string_view kBlockSumRule =
    ", of block scales; every 128 of K has scales of its own, so their sums must be promoted. "
    "Write "
    "f32, or tensor, row or none as the scales of A and B.";
constexpr std::string_view kFlagRule =
    "; the raster order may be followed by split<number, from 2 on>, grouped or fused, accumulate, "
    "then bias, each at most once, and nothing else. Remove it or put it in order.";

// What a name has between two underscores, or nothing after its last word.
struct Word {
  std::string_view text;
  std::size_t byte = 0;
  bool is_present = false;
};

// Printable whatever a hostile name holds.
std::string quoted(std::string_view text) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  constexpr unsigned kHexBase = 16;
  constexpr char kFirstPrintable = ' ';
  constexpr char kLastPrintable = '~';
  std::string result = "\"";
  for (const char c : text) {
    if (c >= kFirstPrintable && c <= kLastPrintable && c != '"' && c != '\\') {
      result += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      result += "\\x";
      result += kHexDigits[byte / kHexBase];
      result += kHexDigits[byte % kHexBase];
    }
  }
  result += '"';
  return result;
}

Error invalid_name(std::initializer_list<std::string_view> message) {
  return {ErrorCode::kInvalidArgument, concat({"kernel name: ", concat(message)})};
}

Error refusal(const Part& part, const Word& word, std::string_view more_rule = "") {
  const std::string byte = std::to_string(word.byte);
  const std::string found = word.is_present ? concat({"is ", quoted(word.text)}) : "is missing";
  return invalid_name({part.where, " at byte ", byte, " ", found, "; it must be ", part.rule,
                       more_rule, ". Write it like ", part.example, "."});
}

// Takes a number from the front of text: decimal, in range, with no sign and no leading zero.
bool take_number(std::string_view& text, int& number) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || !is_digit(text.front()) || text.front() == '0') return false;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc() || number > kMaxKernelNameNumber) return false;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return true;
}

// Reads a name's words in the grammar's order. Each read_ takes one word and says whether it
// follows the grammar; where it does not, error_ says why.
class NameParser {
 public:
  explicit NameParser(std::string_view name) : name_(name) {}

  [[nodiscard]] Result<GemmConfig> parse() {
    GemmConfig& c = config_;
    const bool is_valid =
        read_fixed({"the library", "octavo", "octavo"}) &&
        read_fixed({"the architecture", "sm90", "sm90"}) &&
        read_fixed({"the operation", "gemm", "gemm"}) && read_operands() && read_sum() &&
        read_output() && read_numbers(kTile, "", {&c.tile_m, &c.tile_n, &c.tile_k}) &&
        read_numbers(kCluster, "", {&c.cluster_m, &c.cluster_n}) &&
        read_numbers(kStages, "s", {&c.stages}) && read_numbers(kUnroll, "u", {&c.unroll_k}) &&
        read_fixed({"the layout", "tnt (A and D row-major, B column-major)", "tnt"}) &&
        read_one_of(kSchedule, kSchedules, schedule_word, c.schedule) &&
        read_numbers(kRaster, "alongn", {&c.raster_group_m}) && read_flags();
    if (!is_valid) return *error_;
    return config_;
  }

 private:
  Word next() {
    if (is_done_) return {{}, name_.size(), false};
    const std::size_t first = position_;
    const std::size_t end = std::min(name_.find('_', first), name_.size());
    is_done_ = end == name_.size();
    position_ = end + 1;
    return {name_.substr(first, end - first), first, true};
  }

  bool fail(Error error) {
    error_ = std::move(error);
    return false;
  }

  bool read_fixed(const Part& part) {
    const Word word = next();
    return word.text == part.example || fail(refusal(part, word));
  }

  bool read_operand(const Part& part, const Word& word, ScaleGranularity& scale, DType& type) {
    for (const ScaleGranularity some_scale : kGranularities) {
      for (const DType some_type : kInputTypes) {
        if (word.text != operand_word(to_string(some_scale), some_type)) continue;
        scale = some_scale;
        type = some_type;
        return true;
      }
    }
    return fail(refusal(part, word));
  }

  bool read_operands() {
    ScaleGranularity a_scale = ScaleGranularity::kNone;
    ScaleGranularity b_scale = ScaleGranularity::kNone;
    const Word a = next();
    if (!read_operand(kA, a, a_scale, config_.a)) return false;
    const Word b = next();
    if (!read_operand(kB, b, b_scale, config_.b)) return false;
    for (const ScaleRecipe recipe : kRecipes) {
      if (a_granularity(recipe) != a_scale || b_granularity(recipe) != b_scale) continue;
      config_.recipe = recipe;
      return true;
    }
    const std::string byte = std::to_string(a.byte);
    return fail(invalid_name({"A and B at byte ", byte, " have scales ", to_string(a_scale),
                              " and ", to_string(b_scale), kRecipeRule}));
  }

  bool read_sum() {
    const Word word = next();
    const auto* const sum = std::find_if(kSums.begin(), kSums.end(), [&](MainloopSum some_sum) {
      return word.text == sum_word(some_sum);
    });
    if (sum == kSums.end()) return fail(refusal(kSum, word));
    if (*sum == MainloopSum::kFast && is_block_scaled(config_.recipe)) {
      const std::string byte = std::to_string(word.byte);
      return fail(
          invalid_name({kSum.where, " at byte ", byte, " is ", quoted(word.text), kBlockSumRule}));
    }
    config_.sum = *sum;
    return true;
  }

  // One of `values`, each spelled as word_of() says.
  template <typename Values, typename WordOf, typename Value>
  bool read_one_of(const Part& part, const Values& values, const WordOf& word_of, Value& to) {
    const Word word = next();
    for (const Value value : values) {
      if (word.text != word_of(value)) continue;
      to = value;
      return true;
    }
    return fail(refusal(part, word));
  }

  bool read_output() {
    return read_one_of(
        kD, kOutputTypes, [](DType type) { return to_string(type); }, config_.d);
  }

  // The prefix, then the numbers with "x" between them.
  bool read_numbers(const Part& part, std::string_view prefix,
                    std::initializer_list<int*> numbers) {
    const Word word = next();
    std::string_view rest = word.text;
    bool is_valid = rest.starts_with(prefix);
    if (is_valid) rest.remove_prefix(prefix.size());
    for (int* const* number = numbers.begin(); is_valid && number != numbers.end(); ++number) {
      if (number != numbers.begin()) {
        is_valid = rest.starts_with('x');
        if (is_valid) rest.remove_prefix(1);
      }
      is_valid = is_valid && take_number(rest, **number);
    }
    if (is_valid && rest.empty()) return true;
    const std::string range =
        concat({" with whole numbers from 1 to ", std::to_string(kMaxKernelNameNumber),
                ", without sign or leading zeros"});
    return fail(refusal(part, word, range));
  }

  // Whether the word is a number of splits; a wrong one is refused as no flag.
  bool read_splits(const Word& word) {
    std::string_view rest = word.text;
    if (!rest.starts_with(kSplit)) return false;
    rest.remove_prefix(kSplit.size());
    int number = 0;
    if (!take_number(rest, number) || !rest.empty() || number < 2) return false;
    config_.num_splits = number;
    return true;
  }

  bool read_flags() {
    Word word = next();
    if (read_splits(word)) word = next();
    for (const Grouping grouping : kGroupings) {
      if (word.text != grouping_word(grouping)) continue;
      config_.grouping = grouping;
      word = next();
      break;
    }
    config_.accumulates = word.text == kAccumulate;
    if (config_.accumulates) word = next();
    config_.has_bias = word.text == kBias;
    if (config_.has_bias) word = next();
    if (!word.is_present) return true;
    const std::string byte = std::to_string(word.byte);
    return fail(invalid_name({"the word at byte ", byte, " is ", quoted(word.text), kFlagRule}));
  }

  std::string_view name_;
  std::size_t position_ = 0;
  bool is_done_ = false;
  GemmConfig config_;
  std::optional<Error> error_;
};

}  // namespace

std::string kernel_name(const GemmConfig& config) {
  // NOTE: this names every field, so a field that the name lacks does not compile.
  const auto& [a, b, d, recipe, sum, schedule, tile_m, tile_n, tile_k, cluster_m, cluster_n, stages,
               unroll_k, raster_group_m, accumulates, has_bias, num_splits, grouping] = config;
  const bool is_recipe = std::find(kRecipes.begin(), kRecipes.end(), recipe) != kRecipes.end();
  const std::string_view a_scale = is_recipe ? to_string(a_granularity(recipe)) : kNoWord;
  const std::string_view b_scale = is_recipe ? to_string(b_granularity(recipe)) : kNoWord;
  const auto number = [](int value) { return std::to_string(value); };
  return concat({"octavo_sm90_gemm_",
                 operand_word(a_scale, a),
                 "_",
                 operand_word(b_scale, b),
                 "_",
                 sum_word(sum),
                 "_",
                 to_string(d),
                 "_",
                 number(tile_m),
                 "x",
                 number(tile_n),
                 "x",
                 number(tile_k),
                 "_",
                 number(cluster_m),
                 "x",
                 number(cluster_n),
                 "_s",
                 number(stages),
                 "_u",
                 number(unroll_k),
                 "_tnt_",
                 schedule_word(schedule),
                 "_alongn",
                 number(raster_group_m),
                 num_splits != 1 ? "_" : "",
                 num_splits != 1 ? kSplit : "",
                 num_splits != 1 ? number(num_splits) : "",
                 grouping != Grouping::kNone ? "_" : "",
                 grouping_word(grouping),
                 accumulates ? "_" : "",
                 accumulates ? kAccumulate : "",
                 has_bias ? "_" : "",
                 has_bias ? kBias : ""});
}

Result<GemmConfig> parse_kernel_name(std::string_view name) {
  if (name.size() > kMaxKernelNameBytes) {
    const std::string limit = std::to_string(kMaxKernelNameBytes);
    return invalid_name({"the text has ", std::to_string(name.size()),
                         " bytes; no kernel's name has more than ", limit,
                         ". Pass one kernel's name and nothing else."});
  }
  return NameParser(name).parse();
}

}  // namespace octavo
