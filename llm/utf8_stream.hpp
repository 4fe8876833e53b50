// SPDX-License-Identifier: Apache-2.0
// Turns the bytes of generated tokens into printable UTF-8 as they come: a character whose bytes
// are spread over several tokens is held back until it is whole, and what can never become UTF-8
// is replaced by U+FFFD, one per maximal subpart (as browsers and Python do).
#pragma once

#include <string>
#include <string_view>

namespace octavo::llm {

class Utf8Stream {
 public:
  // The text that `bytes` completes; what may still grow into a character is kept.
  [[nodiscard]] std::string push(std::string_view bytes);

  // The end of the text: a character that stayed incomplete becomes one U+FFFD.
  [[nodiscard]] std::string finish();

 private:
  std::string held_;  // at most three bytes between calls
};

}  // namespace octavo::llm
