// SPDX-License-Identifier: Apache-2.0
// Which counter a launch draws its tiles from (kernels/gemm/tile_tickets.cuh).
#pragma once

#include "cuda/driver.hpp"

namespace octavo::cuda {

// One that no other launch uses at the same time: the stream's, whose launches follow one another,
// or, for one that is captured, one of its own, for nobody knows where its graph will run. (Two
// copies of one graph that run at once would share it, as they share what they write.) -1 if there
// is none left or the driver does not say: tiles are then taken in turn, which is slower.
[[nodiscard]] int tile_counter(const Driver& api, void* stream);

}  // namespace octavo::cuda
