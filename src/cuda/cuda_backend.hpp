// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "backend/backend.hpp"

namespace octavo::cuda {

[[nodiscard]] std::unique_ptr<Backend> make_backend();

}  // namespace octavo::cuda
