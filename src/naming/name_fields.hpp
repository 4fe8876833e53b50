// SPDX-License-Identifier: Apache-2.0
// A kernel's config as fields and values in words (octavo/naming.hpp), and back.
#pragma once

#include <span>
#include <vector>

#include "kernels/contract/gemm_config.hpp"
#include "octavo/error.hpp"
#include "octavo/naming.hpp"

namespace octavo {

[[nodiscard]] std::vector<NameField> fields_of(const GemmConfig& config);

// What is left out is as in GemmConfig{}.
[[nodiscard]] Result<GemmConfig> config_of(std::span<const NameField> fields);

}  // namespace octavo
