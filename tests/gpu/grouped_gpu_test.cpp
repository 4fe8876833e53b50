// SPDX-License-Identifier: Apache-2.0
// Many products in one launch, against the CPU's emulation of each alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/gemm_launch.hpp"
#include "cuda/grouped_launch.hpp"
#include "cuda/plan/grouped_plan.hpp"
#include "cuda/plan/plan_parts.hpp"
#include "gpu/gemm_on_gpu.hpp"
#include "gpu/gpu_stream.hpp"
#include "naming/kernel_name.hpp"
#include "support/grouped_data.hpp"

namespace octavo::test {
namespace {

// As of gemm_candidates_gpu_test.cpp: so few that every thread block has many tiles.
constexpr int kMultiprocessors = 6;

struct DeviceGrouped {
  explicit DeviceGrouped(const GroupedGemmProblem& host)
      : a(host.a),
        b(host.b),
        d(host.d),
        a_scale(host.a_scale),
        b_scale(host.b_scale),
        bias(host.bias),
        ends(host.group_ends),
        rows(host.group_rows),
        problem(host) {
    problem.a = a.view();
    problem.b = b.view();
    problem.d = d.mutable_view();
    problem.a_scale = a_scale.view();
    problem.b_scale = b_scale.view();
    problem.bias = bias.view();
    problem.group_ends = ends.view();
    problem.group_rows = rows.view();
  }

  DeviceTensor a, b, d, a_scale, b_scale, bias, ends, rows;
  GroupedGemmProblem problem;
};

// What D must hold: every group as a product alone.
std::vector<std::uint8_t> emulated(GroupedData& data) {
  for (std::size_t g = 0; g < data.spec.rows.size(); ++g) {
    (void)gemm(data.group(static_cast<std::int64_t>(g)), kEmulated);
  }
  return data.d.bytes();
}

std::string first_difference(const std::vector<std::uint8_t>& got,
                             const std::vector<std::uint8_t>& want, const GroupedSpec& spec) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i]) continue;
    const auto element = static_cast<std::int64_t>(i) / size_bytes(spec.d);
    return "row " + std::to_string(element / spec.n) + " of D, column " +
           std::to_string(element % spec.n) + "\n" + to_string(spec);
  }
  return "";
}

// Every kernel that a plan may choose for it, however many rows it expects.
void expect_every_candidate_equal(const GroupedSpec& spec) {
  cuda::DeviceInfo gpu = cuda::device_info(0).value();
  gpu.num_multiprocessors = kMultiprocessors;
  GroupedData data(spec);
  GroupedGemmProblem host = data.problem();
  const DeviceGrouped device(host);
  const std::vector<std::uint8_t> before = device.d.bytes();
  const std::vector<std::uint8_t> want = emulated(data);
  cuda::GemmPlan plan = cuda::plan_grouped(device.problem, gpu.num_multiprocessors);
  std::map<std::string, cuda::PreparedGemm> kernels;
  for (const std::int64_t expected : {1, 10, 20, 40, 100, 250, 1000}) {
    GroupedGemmProblem problem = device.problem;
    problem.expected_rows = expected;
    // More than there are: then the plan would not offer the larger tiles.
    problem.a.shape[static_cast<std::size_t>(problem.a.rank - 2)] = 1000;
    for (const cuda::GemmCandidate& candidate :
         cuda::grouped_candidates(problem, gpu.num_multiprocessors)) {
      plan.config = candidate.config;
      // Every other one as if it took so long that scales are copied first.
      constexpr double kLong = 1e6;
      plan.product_microseconds = kernels.size() % 2 == 0 ? kLong : 0;
      cuda::plan_scales(spec.recipe, problem.a_scale, problem.b_scale, spec.n, plan);
      cuda::set_plan(plan, kernels[kernel_name(candidate.config)]);
    }
  }
  EXPECT_GE(kernels.size(), 5U);
  {
    std::vector<std::jthread> threads;
    for (const auto& [name, prepared] : kernels) {
      threads.emplace_back(
          [&gpu, &kernel = prepared] { EXPECT_TRUE(cuda::load_kernels(gpu, kernel).ok()); });
    }
  }
  for (const auto& [name, prepared] : kernels) {
    device.d.set_bytes(before);
    ASSERT_TRUE(cuda::launch_grouped(gpu, device.problem, {}, prepared).ok());
    Gpu::instance().synchronize();
    EXPECT_EQ(first_difference(device.d.bytes(), want, spec), "") << name;
  }
}

// Empty groups, single rows, one row less and more than tiles have, in every recipe; groups begin
// at rows of any kind, so that tiles end in others.
TEST_F(GemmOnGpu, every_grouped_candidate_gives_the_emulations_bits) {
  const std::vector<std::int64_t> rows = {0, 5, 130, 1, 64, 0, 257, 63, 33, 0};
  for (const ScaleRecipe recipe : kRecipes) {
    for (const std::int64_t capacity : {0, 261}) {
      GroupedSpec spec{.rows = rows,
                       .n = 400,
                       .k = 712,
                       .capacity = capacity,
                       .gap = capacity > 0 ? 0 : 1,
                       .recipe = recipe,
                       .seed = 40};
      expect_every_candidate_equal(spec);
      spec.d = DType::kBF16;
      spec.gap = 0;
      spec.rest = capacity > 0 ? 0 : 7;  // a stride of a multiple of 4: scales come with the tiles
      spec.scales_by_k_block = true;
      if (capacity > 0) spec.capacity = 264;
      expect_every_candidate_equal(spec);
      if (!is_block_scaled(recipe)) spec.accumulation = Accumulation::kFast;
      spec.bias = true;
      spec.output_mode = OutputMode::kAccumulate;
      spec.n = 397;  // D's rows are no whole vectors
      if (is_block_scaled(recipe)) spec.scale = DType::kUE8M0;
      expect_every_candidate_equal(spec);
    }
  }
}

void expect_equal(const GroupedSpec& spec) {
  GroupedData data(spec);
  const DeviceGrouped device(data.problem());
  const GemmReport report = grouped_gemm(device.problem);
  Gpu::instance().synchronize();
  EXPECT_EQ(first_difference(device.d.bytes(), emulated(data), spec), "") << report.kernel;
}

// CASES C39, C40, C42, C43.
TEST_F(GemmOnGpu, C39_C43_groups_of_any_size) {
  for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{0, 5, 0, 0, 128, 1, 0, 3},
                                                {128, 130, 65},
                                                {1},
                                                {1, 1, 1, 1},
                                                {0, 0, 0},
                                                {}}) {
    expect_equal({.rows = rows, .n = 256, .k = 512, .rest = 3, .data = Data::kPositive});
  }
  for (const std::int64_t capacity : {8, 16, 32, 48}) {
    expect_equal({.rows = {capacity, 1, 0, 3}, .n = 256, .k = 512, .capacity = capacity});
  }
  // Operands that are copied first: rows of 100 bytes.
  expect_equal({.rows = {3, 70, 0, 9}, .n = 33, .k = 100, .recipe = ScaleRecipe::kRow});
  expect_equal({.rows = {3, 7, 0, 9}, .n = 33, .k = 100, .capacity = 11});
}

// CASES C45.
TEST_F(GemmOnGpu, C45_garbage_in_rows_of_no_group_stays_there) {
  for (const std::int64_t capacity : {0, 128}) {
    const GroupedSpec spec{
        .rows = {7, 1, 20}, .n = 256, .k = 512, .capacity = capacity, .gap = capacity > 0 ? 0 : 40};
    GroupedData data(spec);
    const std::vector<std::uint8_t> want = emulated(data);
    GroupedData dirty(spec);
    std::int64_t row = 0;
    for (std::size_t g = 0; g < spec.rows.size(); ++g) {
      row += spec.rows[g];
      const std::int64_t end =
          capacity > 0 ? static_cast<std::int64_t>(g + 1) * capacity : row + spec.gap;
      for (; row < end; ++row) {
        for (std::int64_t i = 0; i < spec.k; ++i) {
          dirty.a.bytes()[static_cast<std::size_t>(row * spec.k + i)] = 0x7F;
        }
        for (std::int64_t i = 0; i < 4; ++i) dirty.a_scale.set(row * 4 + i, NAN);
      }
    }
    const DeviceGrouped device(dirty.problem());
    (void)grouped_gemm(device.problem);
    Gpu::instance().synchronize();
    EXPECT_EQ(first_difference(device.d.bytes(), want, spec), "");
  }
}

// CASES C47: the same bits every time.
TEST_F(GemmOnGpu, C47_five_hundred_runs_are_equal) {
  const GroupedSpec spec{
      .rows = {128, 128, 256, 256, 128, 256, 256, 256}, .n = 768, .k = 2048, .d = DType::kBF16};
  GroupedData data(spec);
  const DeviceGrouped device(data.problem());
  const std::vector<std::uint8_t> before = device.d.bytes();
  const std::vector<std::uint8_t> want = emulated(data);
  for (int run = 0; run < 500; ++run) {
    if (run % 50 == 0) device.d.set_bytes(before);
    (void)grouped_gemm(device.problem);
    if (run % 10 != 9) continue;
    Gpu::instance().synchronize();
    ASSERT_EQ(first_difference(device.d.bytes(), want, spec), "") << "run " << run;
  }
}

// CASES C49: weights of more than 2^31 bytes; rows for the first group and the last but one.
TEST_F(GemmOnGpu, C49_the_last_groups_of_many_have_their_weights) {
  constexpr std::int64_t kGroups = 521;
  constexpr std::int64_t kN = 1024;
  constexpr std::int64_t kK = 4096;
  GroupedSpec spec{.rows = {3, 2}, .n = kN, .k = kK, .recipe = ScaleRecipe::kNone, .seed = 49};
  GroupedData data(spec);
  const DeviceGrouped small(data.problem());
  const std::vector<std::uint8_t> want = emulated(data);
  HostTensor ends(DType::kI32, {kGroups});
  for (std::int64_t g = 0; g < kGroups; ++g) {
    GroupedData::set_list(ends, g, g < kGroups - 2 ? 3 : 5);
  }
  const DeviceTensor device_ends(ends.view());
  constexpr std::int64_t kMatrix = kN * kK;
  const cuda::DevicePointer weights = Gpu::instance().allocate(kGroups * kMatrix);
  Gpu::instance().upload(weights, data.b.bytes().data(), kMatrix);
  Gpu::instance().upload(weights + (kGroups - 2) * kMatrix, data.b.bytes().data() + kMatrix,
                         kMatrix);
  GroupedGemmProblem problem = small.problem;
  problem.group_ends = device_ends.view();
  problem.b = make_view(reinterpret_cast<const void*>(weights), DType::kE4M3, {kGroups, kN, kK},
                        {DeviceKind::kCuda, 0});
  (void)grouped_gemm(problem);
  Gpu::instance().synchronize();
  EXPECT_EQ(first_difference(small.d.bytes(), want, spec), "");
  Gpu::instance().free(weights);
}

// Lists in device memory cannot be refused: octavo/grouped_gemm.hpp says what they then mean.
TEST_F(GemmOnGpu, lists_out_of_bounds_touch_nothing_else) {
  struct Case {
    std::vector<std::int32_t> ends;
    std::vector<std::int32_t> counts;
    std::vector<std::int64_t> rows;  // what they mean, of 40
  };
  for (const Case& c : {Case{{10, 1000, 1000}, {}, {10, 30, 0}}, Case{{-5, 10, 2}, {}, {0, 10, 0}},
                        Case{{10, 30, 40}, {100, -3, 11}, {10, 0, 10}}}) {
    GroupedSpec spec{.rows = c.rows, .n = 72, .k = 256, .rest = 40};
    for (const std::int64_t rows : c.rows) spec.rest -= rows;
    GroupedData data(spec);
    DeviceGrouped device(data.problem());
    const std::vector<std::uint8_t> before = device.d.bytes();
    HostTensor ends(DType::kI32, {3});
    HostTensor counts(DType::kI32, {3});
    std::memcpy(ends.bytes().data(), c.ends.data(), 12);
    const DeviceTensor device_ends(ends.view());
    if (!c.counts.empty()) std::memcpy(counts.bytes().data(), c.counts.data(), 12);
    const DeviceTensor device_counts(counts.view());
    device.problem.group_ends = device_ends.view();
    if (!c.counts.empty()) device.problem.group_rows = device_counts.view();
    std::vector<std::uint8_t> want = before;
    (void)grouped_gemm(device.problem);
    Gpu::instance().synchronize();
    // Where the groups are that the lists mean: with counts they are not one after another.
    const std::vector<std::uint8_t> got = device.d.bytes();
    std::int64_t begin = 0;
    for (std::size_t g = 0; g < c.rows.size(); ++g) {
      GemmProblem one = data.group(static_cast<std::int64_t>(g));
      one.a = data.problem().a;
      one.a_scale = data.problem().a_scale;
      one.d = data.problem().d;
      const auto slice = [&](auto view) {
        view.data =
            static_cast<
                std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                   const std::uint8_t*, std::uint8_t*>>(
                const_cast<void*>(view.data)) +
            begin * view.strides[0] * size_bytes(view.dtype);
        view.shape[0] = c.rows[g];
        return view;
      };
      one.a = slice(one.a);
      one.a_scale = slice(one.a_scale);
      one.d = slice(one.d);
      (void)gemm(one, kEmulated);
      const auto first = static_cast<std::ptrdiff_t>(begin * spec.n * 4);
      const auto bytes = static_cast<std::ptrdiff_t>(c.rows[g] * spec.n * 4);
      std::copy_n(data.d.bytes().begin() + first, bytes, want.begin() + first);
      const std::int32_t end =
          std::clamp<std::int32_t>(c.ends[g], static_cast<std::int32_t>(begin), 40);
      begin = end;
    }
    EXPECT_EQ(first_difference(got, want, spec), "");
  }
}

// A captured call reads its lists when the graph runs.
TEST_F(GemmOnGpu, captured_grouped_products_follow_their_lists) {
  GroupedSpec spec{.rows = {4, 0, 16, 9}, .n = 256, .k = 384, .capacity = 16};
  GroupedData data(spec);
  const DeviceGrouped device(data.problem());
  const std::vector<std::uint8_t> before = device.d.bytes();
  GpuStream stream;
  stream.capture([&] { (void)grouped_gemm(device.problem, {.stream = stream.get()}); });
  for (const std::vector<std::int64_t>& rows :
       {std::vector<std::int64_t>{4, 0, 16, 9}, {0, 1, 0, 16}, {16, 16, 16, 16}}) {
    spec.rows = rows;
    GroupedData now(spec);
    device.rows.set_bytes(now.counts.bytes());
    device.d.set_bytes(before);
    Gpu::instance().synchronize();
    stream.replay();
    stream.wait();
    EXPECT_EQ(first_difference(device.d.bytes(), emulated(now), spec), "");
  }
}

// Launches that are under way at the same time draw tiles from counters of their own: those of
// different streams, and those of graphs, wherever they run. (On so few multiprocessors that they
// do run at the same time, and each thread block draws many.)
TEST_F(GemmOnGpu, launches_at_the_same_time_draw_tiles_of_their_own) {
  const GroupedSpec spec{.rows = {300, 0, 257, 70, 512}, .n = 640, .k = 384, .d = DType::kBF16};
  GroupedData data(spec);
  const GroupedGemmProblem host = data.problem();
  const std::vector<std::uint8_t> before = data.d.bytes();
  struct Lane {
    explicit Lane(const GroupedGemmProblem& problem) : device(problem) {}

    DeviceGrouped device;
    GpuStream stream;
  };
  std::vector<std::unique_ptr<Lane>> lanes;
  for (int i = 0; i < 6; ++i) lanes.push_back(std::make_unique<Lane>(host));
  const std::vector<std::uint8_t> want = emulated(data);
  cuda::DeviceInfo gpu = cuda::device_info(0).value();
  gpu.num_multiprocessors = kMultiprocessors;
  for (const int cluster_n : {1, 2}) {
    cuda::GemmPlan plan = cuda::plan_grouped(lanes[0]->device.problem, kMultiprocessors);
    plan.config.schedule = Schedule::kCooperative;
    plan.config.tile_m = 256;
    plan.config.tile_n = 128;
    plan.config.cluster_n = cluster_n;
    plan.config.stages = 3;
    plan.config.unroll_k = 4;
    ASSERT_TRUE(draws_tiles(plan.config));
    cuda::PreparedGemm prepared;
    cuda::set_plan(plan, prepared);
    ASSERT_TRUE(cuda::load_kernels(gpu, prepared).ok());
    const auto launch = [&](Lane& lane) {
      ASSERT_TRUE(
          cuda::launch_grouped(gpu, lane.device.problem, {.stream = lane.stream.get()}, prepared)
              .ok());
    };
    // The second half are graphs of two launches each.
    const std::size_t first_graph = lanes.size() / 2;
    if (cluster_n == 1) {
      for (std::size_t i = first_graph; i < lanes.size(); ++i) {
        lanes[i]->stream.capture([&] {
          launch(*lanes[i]);
          launch(*lanes[i]);
        });
      }
    }
    for (int round = 0; round < 10; ++round) {
      for (const std::unique_ptr<Lane>& lane : lanes) lane->device.d.set_bytes(before);
      Gpu::instance().synchronize();
      for (int repeat = 0; repeat < 3; ++repeat) {
        for (std::size_t i = 0; i < lanes.size(); ++i) {
          if (i < first_graph) {
            launch(*lanes[i]);
          } else {
            lanes[i]->stream.replay();
          }
        }
      }
      for (const std::unique_ptr<Lane>& lane : lanes) {
        lane->stream.wait();
        ASSERT_EQ(first_difference(lane->device.d.bytes(), want, spec), "")
            << "clusters of " << cluster_n << ", round " << round;
      }
    }
  }
}

// Products of their own shapes in one launch; those of another kind, or that need a copy, in
// others.
TEST_F(GemmOnGpu, fused_products_have_the_emulations_bits) {
  for (const ScaleRecipe recipe : kRecipes) {
    for (const std::int64_t m : {3, 50, 300}) {
      std::vector<GemmSpec> specs;
      for (const auto& [rows, n, k] : std::vector<std::array<std::int64_t, 3>>{
               {m, 256, 512}, {m, 72, 512}, {1, 640, 128}, {m + 9, 136, 1040}, {0, 64, 64}}) {
        specs.push_back({.m = rows, .n = n, .k = k, .recipe = recipe, .seed = 60});
      }
      if (is_block_scaled(recipe)) specs[1].scale = DType::kUE8M0;
      specs.push_back({.m = m, .n = 40, .k = 100, .recipe = recipe});
      specs.push_back({.m = m, .n = 40, .k = 0, .recipe = recipe});
      specs.push_back(
          {.m = m, .n = 64, .k = 256, .d = DType::kBF16, .recipe = recipe, .bias = true});
      specs.push_back(
          {.m = m, .n = 61, .k = 256, .d = DType::kBF16, .recipe = recipe, .bias = true});
      std::vector<GemmData> data(specs.begin(), specs.end());
      std::vector<std::unique_ptr<DeviceGemm>> device;
      std::vector<GemmProblem> problems;
      for (GemmData& one : data) {
        device.push_back(std::make_unique<DeviceGemm>(one.problem()));
        problems.push_back(device.back()->problem);
      }
      const FusedGemmReport report = fused_gemm(problems);
      Gpu::instance().synchronize();
      EXPECT_EQ(report.kernels.size(), 5U);
      for (std::size_t i = 0; i < data.size(); ++i) {
        GemmProblem host = data[i].problem();
        (void)gemm(host, kEmulated);
        EXPECT_TRUE(same_output(*device[i], host, repeat_line(specs[i], Numerics::kEmulated)))
            << report.kernels.front() << ", problem " << i;
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
