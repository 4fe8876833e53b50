// SPDX-License-Identifier: Apache-2.0
// A plain text table with aligned columns.
#pragma once

#include <string>
#include <vector>

namespace octavo::cli {

enum class Align { kLeft, kRight };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns);

  // As many cells as there are columns.
  void add_row(std::vector<std::string> cells);
  [[nodiscard]] std::string to_text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace octavo::cli
