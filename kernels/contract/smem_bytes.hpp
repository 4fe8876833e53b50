// SPDX-License-Identifier: Apache-2.0
// The shared memory of a GEMM kernel: what lies where, from its config alone.
#pragma once

#include "kernels/contract/gemm_config.hpp"

namespace octavo {

// Rows of an FP8 tile in shared memory are 128 bytes, one period of the 128-byte swizzle; 8 rows
// are an atom of 1024 bytes, to which tiles are aligned.
inline constexpr int kSwizzleBytes = 128;
inline constexpr int kSwizzleAtomBytes = 1024;

// One box of D on its way out: 64 rows of 128 bytes.
inline constexpr int kOutputBoxBytes = kWarpGroupRows * kSwizzleBytes;

// Boxes that the columns of a tile make.
[[nodiscard]] constexpr int boxes_across(const GemmConfig& config) noexcept {
  const int columns = kSwizzleBytes / size_bytes(config.d);
  return (config.tile_n + columns - 1) / columns;
}

// Boxes of each consumer. PERF: two parts that are stored while the tensor core goes on must not
// wait for their turn (docs/experiments.md, "The epilogue").
[[nodiscard]] constexpr int output_boxes(const GemmConfig& config) noexcept {
  const int all = num_parts(config) * boxes_across(config);
  const int most = config.schedule == Schedule::kCooperative ? 2 * num_parts(config) : 2;
  return all < most ? all : most;
}

// Streamed: what a consumer's 16-bit results take on their way out. Swapped, 64 columns of rows
// that come by 16; otherwise 64 rows, in chunks of 8 columns that come by 4, and one more where
// rows would begin at the same bank.
inline constexpr int kStepRows = 16;
inline constexpr int kStepChunks = 4;
inline constexpr int kChunkBytes = 16;
inline constexpr int kChunkColumns = 8;
[[nodiscard]] constexpr int streamed_row_bytes(const GemmConfig& config) noexcept {
  if (is_swapped(config)) return kSwizzleBytes;
  constexpr int kStepColumns = kStepChunks * kChunkColumns;
  const int steps = (streamed_b_rows(config) + kStepColumns - 1) / kStepColumns;
  return (steps * kStepChunks + 1) * kChunkBytes;
}
[[nodiscard]] constexpr int streamed_output_bytes(const GemmConfig& config) noexcept {
  return (config.tile_m > kStepRows ? config.tile_m : kStepRows) * streamed_row_bytes(config);
}
// Streamed: the F32 sums of all teams, which take the place of tiles that were read.
[[nodiscard]] constexpr int shared_sums_bytes(const GemmConfig& config) noexcept {
  return streamed_teams(config) * streamed_consumers(config) * kWarpGroupThreads *
         streamed_sums(config) * static_cast<int>(sizeof(float));
}

// Results on their way out. Where streamed splits are shared nothing else is under way, and results
// follow the sums in the tiles' place.
[[nodiscard]] constexpr int output_bytes(const GemmConfig& config) noexcept {
  if (config.schedule != Schedule::kStreamed) {
    return kConsumers * output_boxes(config) * kOutputBoxBytes;
  }
  return config.num_splits > 1 || config.d == DType::kF32
             ? 0
             : streamed_consumers(config) * streamed_output_bytes(config);
}

// Stages of all teams.
[[nodiscard]] constexpr int all_stages(const GemmConfig& config) noexcept {
  return config.schedule == Schedule::kStreamed ? streamed_teams(config) * config.stages
                                                : config.stages;
}

inline constexpr int kBarrierBytes = 8;

inline constexpr int kTicketBytes = 4;
// Tickets of drawn tiles on their way (tile_tickets.cuh): one more than there are stages.
[[nodiscard]] constexpr int num_tickets(const GemmConfig& config) noexcept {
  return draws_tiles(config) ? config.stages + 1 : 0;
}

// Where groups of rows begin anywhere, so do the scales of their tiles; bulk copies begin at
// multiples of 4 of them, and bring up to this many others first.
[[nodiscard]] constexpr int max_scale_shift(const GemmConfig& config) noexcept {
  constexpr int kVector = 4;
  return config.grouping == Grouping::kRows && config.schedule != Schedule::kStreamed ? kVector : 0;
}

struct GemmSharedMemory {
  int a_stage_bytes;
  int b_stage_bytes;
  int a_scale_stage_bytes;
  int b_scale_stage_bytes;
  int column_scale_bytes;  // of one consumer
  // Offsets from the start, which is aligned to kSwizzleAtomBytes.
  int a;
  int b;
  int output;
  int a_scale;
  int b_scale;
  int column_scale;
  int full_barriers;
  int empty_barriers;
  int ticket_barriers;
  int tickets;
  int total_bytes;
};

[[nodiscard]] constexpr GemmSharedMemory gemm_shared_memory(const GemmConfig& config) noexcept {
  constexpr int kScaleBytes = 4;
  constexpr int kFewScalesBytes = 16;  // up to four, padded, so that what follows is aligned
  GemmSharedMemory memory{};
  memory.a_stage_bytes = config.tile_m * config.tile_k;
  memory.b_stage_bytes = config.tile_n * config.tile_k;
  memory.a_scale_stage_bytes =
      is_block_scaled(config.recipe) ? (config.tile_m + max_scale_shift(config)) * kScaleBytes : 0;
  // Swapped, a consumer reads the scales of 64 rows, whether or not the tile has all of them.
  const int b_rows = config.schedule == Schedule::kStreamed
                         ? streamed_consumers(config) * streamed_b_rows(config)
                         : config.tile_n;
  memory.b_scale_stage_bytes = config.recipe == ScaleRecipe::kBlock1d ? b_rows * kScaleBytes
                               : config.recipe == ScaleRecipe::kBlock ? kFewScalesBytes
                                                                      : 0;
  memory.column_scale_bytes =
      config.recipe == ScaleRecipe::kRow && config.schedule != Schedule::kStreamed
          ? config.tile_n * kScaleBytes
          : 0;
  const int stages = all_stages(config);
  memory.b = 0;
  memory.a = memory.b + stages * memory.b_stage_bytes;
  memory.output = memory.a + stages * memory.a_stage_bytes;
  memory.a_scale = memory.output + output_bytes(config);
  memory.b_scale = memory.a_scale + stages * memory.a_scale_stage_bytes;
  memory.column_scale = memory.b_scale + stages * memory.b_scale_stage_bytes;
  memory.full_barriers = memory.column_scale + kConsumers * memory.column_scale_bytes;
  memory.empty_barriers = memory.full_barriers + stages * kBarrierBytes;
  memory.ticket_barriers = memory.empty_barriers + stages * kBarrierBytes;
  memory.tickets = memory.ticket_barriers + num_tickets(config) * kBarrierBytes;
  memory.total_bytes = memory.tickets + num_tickets(config) * kTicketBytes;
  return memory;
}

}  // namespace octavo
