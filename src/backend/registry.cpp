// SPDX-License-Identifier: Apache-2.0
// The only file that names every back end.
#include "backend/backend.hpp"
#include "cpu/cpu_backend.hpp"

namespace octavo {

const std::vector<std::unique_ptr<Backend>>& registry() {
  static const std::vector<std::unique_ptr<Backend>> backends = [] {
    std::vector<std::unique_ptr<Backend>> list;
    list.push_back(cpu::make_backend());
    return list;
  }();
  return backends;
}

}  // namespace octavo
