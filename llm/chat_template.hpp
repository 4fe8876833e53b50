// SPDX-License-Identifier: Apache-2.0
// Turns a conversation into the tokens a chat model was trained on. The formats are written out in
// code; a template that a model file carries is a program in another language and is never run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/tokenizer_bpe.hpp"

namespace octavo::llm {

enum class ChatFormat {
  kPlain,   // the messages one after another, for models that are no chat models
  kChatMl,  // <|im_start|>role\ncontent<|im_end|>\n
  kLlama3,  // <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>
};

enum class ChatRole { kSystem, kUser, kAssistant };

struct ChatMessage {
  ChatRole role;
  std::string content;
};

// What SmolLM2 was trained to see when a conversation has no system message.
inline constexpr std::string_view kSmolLm2SystemPrompt =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

// A run of text, or one control token. They are kept apart so that a message which spells a control
// token cannot end its own turn or open another.
struct ChatSegment {
  enum class Kind { kText, kControl };

  Kind kind;
  std::string text;

  friend bool operator==(const ChatSegment&, const ChatSegment&) = default;
};

// The conversation, open for the assistant's answer. `default_system` is the system message of a
// conversation that does not begin with one; when empty there is none, and kPlain never has one.
[[nodiscard]] std::vector<ChatSegment> format_chat(ChatFormat format,
                                                   std::span<const ChatMessage> messages,
                                                   std::string_view default_system);

// The segments as one string, as a reader would write it.
[[nodiscard]] std::string chat_text(std::span<const ChatSegment> segments);

// Throws Error (kUnsupported) if the vocabulary lacks one of the control tokens.
[[nodiscard]] std::vector<std::int32_t> encode_chat(const BpeTokenizer& tokenizer,
                                                    std::span<const ChatSegment> segments);

// The token with which the assistant ends its turn; empty for kPlain.
[[nodiscard]] std::string_view end_of_turn(ChatFormat format);

// The format whose control tokens the vocabulary has; kPlain if it has none.
[[nodiscard]] ChatFormat detect_chat_format(const BpeTokenizer& tokenizer);

}  // namespace octavo::llm
