// SPDX-License-Identifier: Apache-2.0
// Plans are made on the host: pointers here are never followed.
#include "cuda/plan/gemm_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "cuda/plan/describe_plan.hpp"
#include "kernels/contract/rasterization.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "naming/kernel_name.hpp"

namespace octavo::cuda {
namespace {

constexpr int kH200Multiprocessors = 132;
constexpr int kMaxSharedBytes = 232448;  // 227 KiB

TensorView device_matrix(DType dtype, std::int64_t rows, std::int64_t cols) {
  return make_view(reinterpret_cast<const void*>(std::uintptr_t{1} << 20U), dtype, {rows, cols},
                   {DeviceKind::kCuda, 0});
}

GemmProblem block_problem(std::int64_t m, std::int64_t n, std::int64_t k) {
  GemmProblem problem;
  problem.a = device_matrix(DType::kE4M3, m, k);
  problem.b = device_matrix(DType::kE4M3, n, k);
  const TensorView d = device_matrix(DType::kBF16, m, n);
  problem.d = {const_cast<void*>(d.data), d.dtype, d.rank, d.shape, d.strides, d.device};
  problem.recipe = ScaleRecipe::kBlock;
  problem.a_scale = device_matrix(DType::kF32, m, (k + 127) / 128);
  problem.b_scale = device_matrix(DType::kF32, (n + 127) / 128, (k + 127) / 128);
  return problem;
}

// Boxes of 128-byte swizzle begin at atoms of 8 rows and have up to 256; vectors of scales at 16
// bytes (CUDA driver API, cuTensorMapEncodeTiled; PTX ISA, cp.async.bulk).
void expect_places_that_the_hardware_takes(const GemmConfig& config) {
  const GemmSharedMemory memory = gemm_shared_memory(config);
  if (config.schedule == Schedule::kStreamed) {
    constexpr int kMaxSharedBytesOfTwo = 115712;  // 113 KiB
    if (blocks_per_multiprocessor(config) == 2) {
      EXPECT_LE(memory.total_bytes, kMaxSharedBytesOfTwo);
    }
    EXPECT_LE(config.tile_m * config.tile_n * 4, memory.output) << "sums take the stages' place";
  }
  EXPECT_LE(memory.total_bytes, kMaxSharedBytes);
  for (const int box_rows : {config.tile_m / config.cluster_n, config.tile_n / config.cluster_m}) {
    EXPECT_EQ(box_rows * kSwizzleBytes % kSwizzleAtomBytes, 0) << kernel_name(config);
    EXPECT_LE(box_rows, 256) << kernel_name(config);
  }
  EXPECT_EQ(memory.a_stage_bytes % kSwizzleAtomBytes, 0);
  EXPECT_EQ(memory.b_stage_bytes % kSwizzleAtomBytes, 0);
  EXPECT_EQ(memory.output % kSwizzleAtomBytes, 0);
  constexpr int kVectorBytes = 16;
  for (const int begin : {memory.a_scale, memory.b_scale, memory.column_scale,
                          memory.a_scale_stage_bytes, memory.b_scale_stage_bytes}) {
    EXPECT_EQ(begin % kVectorBytes, 0) << kernel_name(config);
  }
  EXPECT_EQ(memory.full_barriers % kBarrierBytes, 0);
}

TEST(GemmPlan, C34_candidates_fit_into_shared_memory_and_have_names_of_their_own) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                   ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    for (const Accumulation accumulation : {Accumulation::kPromoted, Accumulation::kFast}) {
      if (is_block_scaled(recipe) && accumulation == Accumulation::kFast) continue;
      for (const std::int64_t m : {1, 16, 32, 64, 128, 4096}) {
        GemmProblem problem = block_problem(m, 7168, 2048);
        problem.recipe = recipe;
        problem.accumulation = accumulation;
        if (m == 64) problem.num_splits = 5;
        const auto candidates = gemm_candidates(problem, kH200Multiprocessors);
        ASSERT_FALSE(candidates.empty());
        std::set<std::string> names;
        for (const GemmCandidate& candidate : candidates) {
          EXPECT_GE(candidate.config.stages, 3);
          const std::string name = kernel_name(candidate.config);
          EXPECT_TRUE(names.insert(name).second) << name;
          ASSERT_TRUE(parse_kernel_name(name).ok()) << name;
          EXPECT_EQ(parse_kernel_name(name).value(), candidate.config) << name;
          expect_places_that_the_hardware_takes(candidate.config);
        }
      }
    }
  }
}

TEST(GemmPlan, large_products_get_large_tiles_in_clusters_and_small_ones_fill_the_gpu) {
  const GemmPlan large = plan_gemm(block_problem(4096, 7168, 16384), kH200Multiprocessors);
  EXPECT_EQ(large.config.tile_m, 256);
  EXPECT_EQ(large.config.cluster_n, 2);
  const GemmPlan small = plan_gemm(block_problem(300, 2048, 2048), kH200Multiprocessors);
  EXPECT_EQ(small.config.tile_m, 128);
}

TEST(GemmPlan, bands_are_high_where_the_cache_holds_their_rows_of_a) {
  const auto height = [](std::int64_t m, std::int64_t k) {
    return plan_gemm(block_problem(m, 7168, k), kH200Multiprocessors).config.raster_group_m;
  };
  EXPECT_EQ(height(4096, 2048), 16);
  EXPECT_EQ(height(4096, 4096), 16);
  EXPECT_EQ(height(4096, 7168), 8);
  EXPECT_EQ(height(32768, 2048), 16);
  EXPECT_EQ(height(1024, 2048), 8) << "one band, whatever its height: one kernel";
}

TEST(GemmPlan, few_rows_are_streamed_and_k_is_split_where_tiles_are_few) {
  for (const std::int64_t m : {1, 16, 33, 64}) {
    const GemmPlan wide = plan_gemm(block_problem(m, 28672, 4096), kH200Multiprocessors);
    EXPECT_EQ(wide.config.schedule, Schedule::kStreamed);
    EXPECT_EQ(wide.config.num_splits, 1);
    EXPECT_GE(wide.config.tile_m, m);
    const GemmPlan deep = plan_gemm(block_problem(m, 2048, 16384), kH200Multiprocessors);
    EXPECT_EQ(deep.config.schedule, Schedule::kStreamed);
    EXPECT_GT(deep.config.num_splits, 1);
  }
}

// N of models' layers: one tile, or two, for nearly every multiprocessor.
TEST(GemmPlan, tiles_of_few_rows_give_every_multiprocessor_the_same_share) {
  for (const auto& [m, n, k] : {std::tuple{16, 4096, 14336},
                                {16, 28672, 4096},
                                {64, 7168, 16384},
                                {64, 24576, 1536},
                                {64, 28672, 4096}}) {
    const GemmConfig config = plan_gemm(block_problem(m, n, k), kH200Multiprocessors).config;
    const int tiles = (n + config.tile_n - 1) / config.tile_n;
    const int blocks = cluster_size(config) * tiles;
    const int rounds = (blocks + kH200Multiprocessors - 1) / kH200Multiprocessors;
    EXPECT_LE(rounds, 2) << n;
    EXPECT_GE(blocks, 0.9 * rounds * kH200Multiprocessors) << n;
  }
}

TEST(GemmPlan, splits_are_for_teams_of_a_thread_block_first_and_then_for_a_cluster) {
  struct Case {
    int tile_m;
    int tile_n;
    int num_splits;
    int teams;
    int cluster;
  };
  for (const Case& c : {Case{16, 32, 1, 1, 1},
                        {16, 32, 3, 3, 1},
                        {16, 32, 4, 4, 1},
                        {16, 32, 5, 1, 5},
                        {16, 64, 8, 4, 2},
                        {64, 56, 2, 2, 1},
                        {64, 56, 4, 4, 1},
                        {64, 64, 4, 2, 2},
                        {64, 64, 7, 1, 7}}) {
    GemmConfig config;
    config.schedule = Schedule::kStreamed;
    config.cluster_n = 1;
    config.tile_m = c.tile_m;
    config.tile_n = c.tile_n;
    config.num_splits = c.num_splits;
    EXPECT_EQ(streamed_teams(config), c.teams) << kernel_name(config);
    EXPECT_EQ(cluster_size(config), c.cluster) << kernel_name(config);
    EXPECT_LE(num_threads(config), 1024) << kernel_name(config);
  }
}

// So no tile is refused for them, whatever the recipe.
TEST(GemmPlan, threads_of_few_rows_have_registers_for_their_sums) {
  for (const std::int64_t m : {1, 16, 32, 64, 300}) {
    for (const ScaleRecipe recipe :
         {ScaleRecipe::kTensor, ScaleRecipe::kRow, ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
      for (int splits = 1; splits <= 8; ++splits) {
        GemmProblem problem = block_problem(m, 28672, 4096);
        problem.recipe = recipe;
        problem.num_splits = splits;
        int streamed = 0;
        int widest = 0;
        for (const GemmCandidate& candidate : gemm_candidates(problem, kH200Multiprocessors)) {
          const GemmConfig& config = candidate.config;
          if (config.schedule != Schedule::kStreamed) continue;
          ++streamed;
          widest = std::max(widest, config.tile_n);
          const int blocks = blocks_per_multiprocessor(config);
          EXPECT_LE(streamed_registers(config) + (config.unroll_k - 1) * streamed_sums(config),
                    registers_of_thread(blocks * num_threads(config)))
              << kernel_name(config);
        }
        EXPECT_EQ(streamed > 0, m <= 64 || splits > 1);
        if (m <= 64 && splits == 1) {
          EXPECT_EQ(widest, 224);
        }
      }
    }
  }
}

// The order of additions must not depend on what is done with the sum, nor on where it is stored.
TEST(GemmPlan, automatic_splits_depend_on_the_shape_alone) {
  std::set<int> seen;
  for (const std::int64_t m : {1, 33, 64, 72, 200, 300}) {
    for (const auto& [n, k] : {std::pair{17182, 4096}, {64, 2048}, {4096, 14336}}) {
      const int splits = plan_gemm(block_problem(m, n, k), kH200Multiprocessors).config.num_splits;
      seen.insert(splits);
      for (const ScaleRecipe recipe : {ScaleRecipe::kTensor, ScaleRecipe::kRow}) {
        for (const Accumulation accumulation : {Accumulation::kPromoted, Accumulation::kFast}) {
          for (const DType d : {DType::kBF16, DType::kF32, DType::kE4M3}) {
            for (const bool adds : {false, true}) {
              GemmProblem problem = block_problem(m, n, k);
              problem.recipe = recipe;
              problem.accumulation = accumulation;
              problem.d.dtype = d;
              if (d == DType::kF32) problem.d.strides = {1, m};
              if (adds)
                problem.bias = make_view(problem.a.data, DType::kF32, {n}, problem.a.device);
              if (adds && d != DType::kE4M3) problem.output_mode = OutputMode::kAccumulate;
              EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).config.num_splits, splits);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(seen.size(), 1U);
}

// The caller's number of splits is part of the numerics: no plan has another.
TEST(GemmPlan, given_splits_are_kept_whatever_the_number_of_rows) {
  for (const std::int64_t m : {1, 64, 200, 4096}) {
    for (const int splits : {1, 2, 3, 7, 8}) {
      GemmProblem problem = block_problem(m, 1000, 2000);
      problem.num_splits = splits;
      EXPECT_TRUE(gemm_refusals(problem, {}).empty());
      for (const GemmCandidate& candidate : gemm_candidates(problem, kH200Multiprocessors)) {
        EXPECT_EQ(candidate.config.num_splits, splits);
      }
      EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).config.num_splits, splits);
    }
  }
}

// A consumer with a tile of its own hides the epilogue, which counts where K is short; what is
// added to the result would need registers that it does not have.
TEST(GemmPlan, fast_sums_of_a_short_k_are_multiplied_in_turn_unless_something_is_added) {
  GemmProblem problem = block_problem(4096, 24576, 1536);
  problem.recipe = ScaleRecipe::kRow;
  problem.accumulation = Accumulation::kFast;
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).config.schedule, Schedule::kPingpong);
  problem.output_mode = OutputMode::kAccumulate;
  std::vector<RefusedGemmCandidate> refused;
  for (const GemmCandidate& candidate : gemm_candidates(problem, kH200Multiprocessors, &refused)) {
    EXPECT_EQ(candidate.config.schedule, Schedule::kCooperative);
  }
  EXPECT_THAT(refused, testing::Contains(testing::Field(&RefusedGemmCandidate::reason,
                                                        testing::HasSubstr("would spill"))));
}

// Shapes and layouts that the kernel cannot serve by itself are never a reason to refuse.
TEST(GemmPlan, every_shape_and_layout_of_fp8_is_served) {
  for (const std::int64_t extent : {0, 1, 17, 255}) {
    GemmProblem problem = block_problem(extent, 33, 129);
    EXPECT_TRUE(gemm_refusals(problem, {}).empty());
    (void)plan_gemm(problem, kH200Multiprocessors);
    problem = block_problem(33, extent, 129);
    EXPECT_TRUE(gemm_refusals(problem, {}).empty());
    (void)plan_gemm(problem, kH200Multiprocessors);
    problem = block_problem(33, 65, extent);
    EXPECT_TRUE(gemm_refusals(problem, {}).empty());
    (void)plan_gemm(problem, kH200Multiprocessors);
  }
  for (const std::int64_t row_stride : {-7, 0, 1, 128, 129}) {
    for (const std::int64_t col_stride : {-1, 0, 1, 2}) {
      GemmProblem problem = block_problem(33, 65, 128);
      problem.a.strides = {row_stride, col_stride};
      problem.d.dtype = DType::kE5M2;
      EXPECT_TRUE(gemm_refusals(problem, {}).empty());
    }
  }
}

TEST(GemmPlan, operands_are_repacked_only_where_tma_cannot_read_them) {
  const auto a_of = [](const TensorView& a) {
    GemmProblem problem = block_problem(a.shape[0], 256, a.shape[1]);
    problem.a = a;
    return plan_gemm(problem, kH200Multiprocessors).a;
  };
  EXPECT_EQ(a_of(device_matrix(DType::kE4M3, 64, 256)).path, OperandPath::kDirect);

  // K may be anything as long as rows begin at multiples of 16 bytes.
  TensorView odd_k = device_matrix(DType::kE4M3, 64, 257);
  OperandPlan plan = a_of(odd_k);
  EXPECT_EQ(plan.path, OperandPath::kRepacked);
  EXPECT_EQ(plan.from, RepackFrom::kRows);
  EXPECT_EQ(plan.row_stride, 272);
  EXPECT_EQ(plan.bytes, 64U * 272);
  EXPECT_GT(plan.microseconds, 0);
  odd_k.strides[0] = 272;
  EXPECT_EQ(a_of(odd_k).path, OperandPath::kDirect);
  EXPECT_EQ(a_of(device_matrix(DType::kE4M3, 1, 257)).path, OperandPath::kDirect);  // one row

  TensorView unaligned = device_matrix(DType::kE4M3, 64, 256);
  unaligned.data = static_cast<const std::uint8_t*>(unaligned.data) + 8;
  EXPECT_EQ(a_of(unaligned).from, RepackFrom::kRows);
  EXPECT_EQ(a_of(unaligned).path, OperandPath::kRepacked);

  plan = a_of(transposed(device_matrix(DType::kE4M3, 256, 64), 0, 1));
  EXPECT_EQ(plan.path, OperandPath::kRepacked);
  EXPECT_EQ(plan.from, RepackFrom::kColumns);

  TensorView strided = device_matrix(DType::kE4M3, 64, 256);
  strided.strides = {-512, 2};
  EXPECT_EQ(a_of(strided).from, RepackFrom::kAny);
  strided.strides = {0, 1};  // one row for all
  EXPECT_EQ(a_of(strided).path, OperandPath::kRepacked);
  strided.strides = {128, 1};  // rows that overlap
  EXPECT_EQ(a_of(strided).path, OperandPath::kRepacked);
}

TEST(GemmPlan, a_batch_that_shares_an_operand_gets_one_copy_of_it) {
  GemmProblem problem;
  const auto batch_of = [](std::int64_t rows, std::int64_t cols, DType dtype) {
    return make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 20U), dtype, {12, rows, cols},
                     {DeviceKind::kCuda, 0});
  };
  problem.a = batch_of(100, 65, DType::kE4M3);
  problem.b = batch_of(40, 65, DType::kE4M3);
  problem.b.strides[0] = 0;
  problem.d = batch_of(100, 40, DType::kF32);
  const GemmPlan plan = plan_gemm(problem, kH200Multiprocessors);
  EXPECT_EQ(plan.a.num_copies, 12);
  EXPECT_EQ(plan.a.bytes, 12U * 100 * 80);
  EXPECT_EQ(plan.b.num_copies, 1);
  EXPECT_EQ(plan.b.batch_stride, 0);
  EXPECT_EQ(plan.b.bytes, 40U * 80);
  EXPECT_EQ(plan.workspace_bytes(), plan.a.bytes + plan.b.bytes);
}

TEST(GemmPlan, outputs_that_the_epilogue_cannot_write_go_through_f32_sums) {
  GemmProblem problem = block_problem(64, 250, 256);
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).output, OutputPath::kDirect);
  problem.bias = make_view(problem.a.data, DType::kBF16, {250}, problem.a.device);
  problem.d.dtype = DType::kE4M3;
  GemmPlan plan = plan_gemm(problem, kH200Multiprocessors);
  EXPECT_EQ(plan.output, OutputPath::kFinished);
  EXPECT_EQ(plan.config.d, DType::kF32);
  EXPECT_FALSE(plan.config.has_bias);  // added by the kernel that finishes
  EXPECT_EQ(plan.sums_bytes, 64U * 252 * 4);
  EXPECT_GE(plan.workspace_bytes(), plan.sums_bytes);

  problem.d.dtype = DType::kBF16;
  problem.output_mode = OutputMode::kAccumulate;
  problem.d.strides = {1, 64};
  plan = plan_gemm(problem, kH200Multiprocessors);
  EXPECT_EQ(plan.output, OutputPath::kFinished);
  EXPECT_FALSE(plan.config.accumulates);
  problem.d.strides = {-250, 1};
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).output, OutputPath::kFinished);
}

// TMA would write up to the next multiple of 16 bytes.
TEST(GemmPlan, rows_that_end_within_16_bytes_are_stored_directly) {
  GemmProblem problem = block_problem(64, 248, 256);
  problem.d.strides = {256, 1};
  EXPECT_FALSE(plan_gemm(problem, kH200Multiprocessors).stores_directly);
  problem = block_problem(64, 250, 256);
  problem.d.strides = {256, 1};
  EXPECT_TRUE(plan_gemm(problem, kH200Multiprocessors).stores_directly);
}

TEST(GemmPlan, empty_products_do_as_little_as_they_can) {
  EXPECT_EQ(plan_gemm(block_problem(0, 256, 256), kH200Multiprocessors).work, GemmWork::kNothing);
  EXPECT_EQ(plan_gemm(block_problem(64, 0, 256), kH200Multiprocessors).work, GemmWork::kNothing);
  GemmProblem problem = block_problem(64, 256, 0);
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).work, GemmWork::kEpilogue);
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).workspace_bytes(), 0U);
  problem.output_mode = OutputMode::kAccumulate;
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).work, GemmWork::kNothing);
  problem.bias = make_view(problem.a.data, DType::kBF16, {256}, problem.a.device);
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).work, GemmWork::kEpilogue);
}

TEST(GemmPlan, describes_what_happens_in_sentences) {
  GemmProblem problem = block_problem(4096, 7168, 3072);
  problem.a = transposed(device_matrix(DType::kE4M3, 3072, 4096), 0, 1);
  problem.d.dtype = DType::kE5M2;
  const GemmPlan plan = plan_gemm(problem, kH200Multiprocessors);
  // 12.6 MB read and as many written at 3.3 TB/s, and a launch.
  EXPECT_THAT(describe(plan, problem),
              testing::IsSupersetOf({
                  std::string("a: repacked to K-major rows of 16-byte multiples (M-major given): "
                              "12.6 MB, about 10 us"),
                  std::string("b: read in place (K-major rows of 16-byte multiples)"),
                  std::string("a_scale: copied to f32 with neighbouring rows adjacent (f32 with "
                              "strides [24, 1] given): 0.39 MB, about 2 us"),
                  std::string("b_scale: read in place (f32)"),
              }));
  EXPECT_THAT(describe(plan, problem),
              testing::Contains(testing::StartsWith("d: f32 sums in workspace (117.4 MB), then "
                                                    "rounded to e5m2")));
  EXPECT_GT(plan.microseconds(), plan.product_microseconds);
  problem = block_problem(0, 7168, 3072);
  EXPECT_THAT(describe(plan_gemm(problem, kH200Multiprocessors), problem), testing::SizeIs(1));
}

GemmProblem with_scales(GemmProblem problem, DType type, std::int64_t a_row, std::int64_t a_k) {
  problem.a_scale.dtype = problem.b_scale.dtype = type;
  problem.a_scale.strides = {a_row, a_k};
  return problem;
}

TEST(GemmPlan, scales_of_long_products_are_copied_where_bulk_copies_do_not_bring_them) {
  const GemmProblem large = block_problem(4095, 7168, 16384);
  const auto planned = [](const GemmProblem& problem) {
    return plan_gemm(problem, kH200Multiprocessors);
  };
  const GemmPlan row_major = planned(large);
  EXPECT_TRUE(row_major.a_scale.is_staged);
  EXPECT_FALSE(row_major.b_scale.is_staged) << "one for 128 columns is read from anywhere";
  EXPECT_EQ(row_major.a_scale.k_stride, 4096);
  EXPECT_EQ(row_major.workspace_bytes(), 4096U * 128 * sizeof(float));
  EXPECT_THAT(describe(row_major, large),
              testing::Contains("a_scale: copied to f32 with neighbouring rows adjacent (f32 with "
                                "strides [128, 1] given): 2.10 MB, about 4 us"));
  const GemmPlan in_place = planned(with_scales(large, DType::kF32, 1, 4096));
  EXPECT_FALSE(in_place.a_scale.is_staged);
  EXPECT_EQ(in_place.workspace_bytes(), 0U);
  EXPECT_LT(in_place.microseconds(), row_major.microseconds());
  EXPECT_TRUE(planned(with_scales(large, DType::kF32, 1, 4095)).a_scale.is_staged);
  const GemmPlan decoded = planned(with_scales(large, DType::kUE8M0, 1, 4096));
  EXPECT_TRUE(decoded.a_scale.is_staged && decoded.b_scale.is_staged);

  const GemmProblem small = block_problem(300, 512, 1024);
  EXPECT_FALSE(planned(small).a_scale.is_staged) << "the copy would take longer than it saves";
  EXPECT_GT(planned(small).microseconds(),
            planned(with_scales(small, DType::kF32, 1, 300)).microseconds());
  const GemmPlan streamed = planned(block_problem(16, 131072, 16384));
  EXPECT_EQ(streamed.config.schedule, Schedule::kStreamed);
  EXPECT_FALSE(streamed.a_scale.is_staged) << "memory is what takes time";
}

TEST(GemmPlan, scales_of_a_batch_are_copied_once_if_it_shares_them) {
  GemmProblem problem = block_problem(4096, 7168, 2048);
  for (TensorView* view : {&problem.a, &problem.b, &problem.a_scale, &problem.b_scale}) {
    view->shape = {2, view->shape[0], view->shape[1]};
    view->strides = {view->shape[1] * view->shape[2], view->strides[0], view->strides[1]};
    view->rank = 3;
  }
  problem.d.shape = {2, 4096, 7168};
  problem.d.strides = {std::int64_t{4096} * 7168, 7168, 1};
  problem.d.rank = 3;
  const std::size_t once = 4096U * 16 * sizeof(float);
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).a_scale.bytes, 2 * once);
  problem.a_scale.strides[0] = 0;
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).a_scale.bytes, once);
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).a_scale.batch_stride, 0);
}

TEST(GemmPlan, refusals_name_the_argument_and_the_rule) {
  GemmProblem problem = block_problem(64, 256, 256);
  EXPECT_TRUE(gemm_refusals(problem, {}).empty());
  const auto only_reason = [](const GemmProblem& p) {
    const std::vector<Reason> reasons = gemm_refusals(p, {});
    return reasons.size() == 1 ? to_string(reasons[0]) : "not one reason";
  };
  problem.num_splits = 9;
  EXPECT_THAT(only_reason(problem), testing::HasSubstr("num_splits"));
  problem = block_problem(64, 256, 256);
  problem.b.dtype = DType::kBF16;
  EXPECT_THAT(only_reason(problem), testing::HasSubstr("FP8 operands only"));
  problem = block_problem(64, 256, 256);
  problem.a.device = {};
  EXPECT_THAT(only_reason(problem), testing::HasSubstr("device memory"));
}

TEST(Rasterization, every_cluster_once_and_groups_of_rows_together) {
  for (const int clusters_m : {1, 2, 7, 8, 9, 16, 33}) {
    for (const int clusters_n : {1, 3, 28}) {
      for (const int group : {1, 4, 8, 16}) {
        const Rasterization raster = rasterization(clusters_m, clusters_n, 1, 1, 1, 1, group);
        std::set<std::pair<int, int>> seen;
        int group_now = 0;
        for (int i = 0; i < raster.num_clusters(); ++i) {
          const TileIndex at = raster.cluster(i);
          ASSERT_GE(at.m, 0);
          ASSERT_LT(at.m, clusters_m);
          ASSERT_GE(at.n, 0);
          ASSERT_LT(at.n, clusters_n);
          EXPECT_TRUE(seen.insert({at.m, at.n}).second);
          EXPECT_GE(at.m / group, group_now);  // a group is finished before the next begins
          group_now = at.m / group;
        }
      }
    }
  }
}

TEST(Divisor, equals_division_up_to_the_largest_int) {
  constexpr int kLargest = std::numeric_limits<int>::max();
  std::mt19937 random(20261130);
  for (const int d : {1, 2, 3, 7, 8, 9, 127, 128, 641, 65535, 65536, 1 << 30, kLargest}) {
    const Divisor by = divisor(d);
    const auto expect_quotient = [&](int n) { EXPECT_EQ(by.divide(n), n / d) << n << " / " << d; };
    for (const int n : {0, 1, d - 1, d, kLargest - 1, kLargest}) expect_quotient(n);
    for (int i = 0; i < 1000; ++i) {
      const int n = static_cast<int>(random() >> 1U);
      expect_quotient(n);
      expect_quotient(n / d * d);
      expect_quotient(std::max(0, n / d * d - 1));
    }
  }
}

}  // namespace
}  // namespace octavo::cuda
