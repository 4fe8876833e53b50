// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "backend/backend.hpp"

namespace octavo::cpu {

[[nodiscard]] std::unique_ptr<Backend> make_backend();

}  // namespace octavo::cpu
