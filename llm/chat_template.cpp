// SPDX-License-Identifier: Apache-2.0
#include "llm/chat_template.hpp"

#include <fmt/format.h>

#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

// The control tokens of a format and the text between them.
struct Markup {
  std::string_view begin_of_text;  // a control token; empty for none
  std::string_view begin_of_turn;
  std::string_view after_role;  // a control token; empty for none
  std::string_view before_content;
  std::string_view end_of_turn;
  std::string_view after_turn;
};

constexpr Markup kChatMlMarkup = {.begin_of_text = "",
                                  .begin_of_turn = "<|im_start|>",
                                  .after_role = "",
                                  .before_content = "\n",
                                  .end_of_turn = "<|im_end|>",
                                  .after_turn = "\n"};
constexpr Markup kLlama3Markup = {.begin_of_text = "<|begin_of_text|>",
                                  .begin_of_turn = "<|start_header_id|>",
                                  .after_role = "<|end_header_id|>",
                                  .before_content = "\n\n",
                                  .end_of_turn = "<|eot_id|>",
                                  .after_turn = ""};

std::string_view role_name(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem: return "system";
    case ChatRole::kUser: return "user";
    case ChatRole::kAssistant: return "assistant";
  }
  return "";
}

class SegmentList {
 public:
  // Joined to text before it: words are cut over the whole run, as in the training data.
  void text(std::string_view text) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().kind != ChatSegment::Kind::kText) {
      segments_.push_back({ChatSegment::Kind::kText, {}});
    }
    segments_.back().text += text;
  }
  void control(std::string_view token) {
    if (!token.empty()) segments_.push_back({ChatSegment::Kind::kControl, std::string(token)});
  }
  void open_turn(const Markup& markup, ChatRole role) {
    control(markup.begin_of_turn);
    text(role_name(role));
    control(markup.after_role);
    text(markup.before_content);
  }
  void turn(const Markup& markup, ChatRole role, std::string_view content) {
    open_turn(markup, role);
    text(content);
    control(markup.end_of_turn);
    text(markup.after_turn);
  }
  [[nodiscard]] std::vector<ChatSegment> take() { return std::move(segments_); }

 private:
  std::vector<ChatSegment> segments_;
};

}  // namespace

std::vector<ChatSegment> format_chat(ChatFormat format, std::span<const ChatMessage> messages,
                                     std::string_view default_system) {
  SegmentList segments;
  if (format == ChatFormat::kPlain) {
    for (const ChatMessage& message : messages) segments.text(message.content);
    return segments.take();
  }
  const Markup& markup = format == ChatFormat::kChatMl ? kChatMlMarkup : kLlama3Markup;
  segments.control(markup.begin_of_text);
  const bool has_system = !messages.empty() && messages.front().role == ChatRole::kSystem;
  if (!has_system && !default_system.empty()) {
    segments.turn(markup, ChatRole::kSystem, default_system);
  }
  for (const ChatMessage& message : messages) {
    segments.turn(markup, message.role, message.content);
  }
  segments.open_turn(markup, ChatRole::kAssistant);
  return segments.take();
}

std::string chat_text(std::span<const ChatSegment> segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text += segment.text;
  return text;
}

std::vector<std::int32_t> encode_chat(const BpeTokenizer& tokenizer,
                                      std::span<const ChatSegment> segments) {
  std::vector<std::int32_t> ids;
  for (const ChatSegment& segment : segments) {
    if (segment.kind == ChatSegment::Kind::kText) {
      const std::vector<std::int32_t> words =
          tokenizer.encode(segment.text, SpecialTokens::kAsText);
      ids.insert(ids.end(), words.begin(), words.end());
      continue;
    }
    const std::optional<std::int32_t> id = tokenizer.find(segment.text);
    if (!id) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("chat: the format needs the token {}; this vocabulary lacks it. Use "
                              "the format the model was trained with, or plain text.",
                              segment.text));
    }
    ids.push_back(*id);
  }
  return ids;
}

std::string_view end_of_turn(ChatFormat format) {
  switch (format) {
    case ChatFormat::kPlain: return "";
    case ChatFormat::kChatMl: return kChatMlMarkup.end_of_turn;
    case ChatFormat::kLlama3: return kLlama3Markup.end_of_turn;
  }
  return "";
}

ChatFormat detect_chat_format(const BpeTokenizer& tokenizer) {
  const auto has = [&](const Markup& markup) {
    return tokenizer.find(markup.begin_of_turn) && tokenizer.find(markup.end_of_turn);
  };
  if (has(kChatMlMarkup)) return ChatFormat::kChatMl;
  return has(kLlama3Markup) ? ChatFormat::kLlama3 : ChatFormat::kPlain;
}

}  // namespace octavo::llm
