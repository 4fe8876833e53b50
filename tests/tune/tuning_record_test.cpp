// SPDX-License-Identifier: Apache-2.0
// What a record holds for, its text, and its folder.
#include "cuda/tune/tuning_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/plan/gemm_plan.hpp"
#include "cuda/tune/record_folder.hpp"
#include "cuda/tune/tuned_choice.hpp"
#include "naming/kernel_name.hpp"
#include "support/writer_process.hpp"

namespace octavo::cuda {
namespace {

GpuDescription h200() {
  GpuDescription gpu;
  gpu.name = "NVIDIA H200";
  gpu.compute_major = 9;
  gpu.num_multiprocessors = 132;
  gpu.driver = "580.1";
  gpu.nvrtc = "13.0";
  return gpu;
}

GemmProblem product(std::int64_t m = 64) {
  const Device where{DeviceKind::kCuda, 0};
  void* const memory = reinterpret_cast<void*>(std::uintptr_t{1} << 20U);
  GemmProblem problem;
  problem.a = make_view(memory, DType::kE4M3, {m, 4096}, where);
  problem.b = make_view(memory, DType::kE4M3, {4096, 4096}, where);
  problem.d = make_view(memory, DType::kBF16, {m, 4096}, where);
  problem.recipe = ScaleRecipe::kBlock;
  problem.num_splits = 1;
  return problem;
}

GemmConfig config_like(const GemmProblem& problem, int num_splits) {
  GemmConfig config;
  config.d = problem.d.dtype;
  config.accumulates = problem.output_mode == OutputMode::kAccumulate;
  config.has_bias = problem.bias.present();
  config.num_splits = num_splits;
  return config;
}

TuningRecord record_of(const GemmProblem& problem, const GpuDescription& gpu, std::string kernel) {
  return {environment_key(gpu),
          problem_key(problem, gpu, config_like(problem, 1)),
          std::move(kernel),
          12.5,
          "m",
          13,
          4};
}

std::filesystem::path new_folder(const char* name) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("octavo_tune_test_" + std::to_string(::getpid()) + "_" + name);
  std::filesystem::remove_all(folder);
  return folder;
}

TEST(TuningRecord, buckets_of_rows) {
  EXPECT_EQ(row_bucket(1), 8);
  EXPECT_EQ(row_bucket(8), 8);
  EXPECT_EQ(row_bucket(50), 64);
  EXPECT_EQ(row_bucket(128), 128);
  EXPECT_EQ(row_bucket(129), 256);
  EXPECT_EQ(row_bucket(257), 384);
  EXPECT_EQ(row_bucket(4096), 4096);
}

// CASES C73: everything that changes what is quickest changes the key.
TEST(TuningRecord, C73_variants_have_keys_of_their_own) {
  std::set<std::string> keys;
  const auto add = [&](auto change) {
    GemmProblem problem = product();
    GpuDescription gpu = h200();
    int num_splits = 1;
    change(problem, gpu, num_splits);
    const std::string key =
        environment_key(gpu) + "\n" + problem_key(problem, gpu, config_like(problem, num_splits));
    EXPECT_TRUE(keys.insert(key).second) << key;
  };
  using P = GemmProblem;
  using G = GpuDescription;
  add([](P&, G&, int&) {});
  add([](P& p, G&, int&) { p.d.dtype = DType::kF16; });
  add([](P& p, G&, int&) { p.a.dtype = DType::kE5M2; });
  add([](P& p, G&, int&) { p.b.dtype = DType::kE5M2; });
  add([](P& p, G&, int&) { p.recipe = ScaleRecipe::kTensor; });
  add([](P& p, G&, int&) {
    p.recipe = ScaleRecipe::kTensor;
    p.accumulation = Accumulation::kFast;
  });
  add([](P& p, G&, int&) { p.output_mode = OutputMode::kAccumulate; });
  add([](P& p, G&, int&) { p.bias = p.d; });
  add([](P&, G&, int& splits) { splits = 2; });
  add([](P& p, G&, int&) { p = product(65); });
  add([](P& p, G&, int&) { p.b.shape[0] = 4224; });
  add([](P& p, G&, int&) { p.a.shape[1] = 4224; });
  add([](P&, G& g, int&) { g.name = "NVIDIA H100"; });
  add([](P&, G& g, int&) { g.num_multiprocessors = 78; });
  add([](P&, G& g, int&) { g.driver = "580.2"; });
  add([](P&, G& g, int&) { g.nvrtc = "12.9"; });
  // What a driver calls a GPU cannot add a line.
  GpuDescription hostile = h200();
  hostile.name = "H200\nkernel x";
  EXPECT_EQ(problem_key(product(), hostile, config_like(product(), 1)).find('\n'),
            std::string::npos);
}

TEST(TuningRecord, text_goes_both_ways_and_a_change_is_seen) {
  const TuningRecord record = record_of(product(), h200(), "kernel");
  const std::string text = to_text(record);
  const Result<std::vector<TuningRecord>> parsed = parse_records(text + text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().what();
  EXPECT_EQ(parsed.value(), (std::vector<TuningRecord>{record, record}));
  EXPECT_TRUE(parse_records("").value().empty());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == 'x' ? 'y' : 'x';
    EXPECT_FALSE(parse_records(changed).ok()) << i;
    EXPECT_FALSE(parse_records(text.substr(0, i)).ok() && i > 0 && i + 1 < text.size()) << i;
  }
  EXPECT_THAT(parse_records(text + "rubbish\n").error().what(),
              testing::HasSubstr("tuning records: line 10 is no record's first line"));
}

TEST(RecordFolder, what_is_damaged_counts_as_absent) {
  const auto path = new_folder("damaged");
  const RecordFolder folder(path);
  const TuningRecord record = record_of(product(), h200(), "kernel");
  EXPECT_FALSE(folder.find(record.environment, record.problem));
  ASSERT_EQ(folder.put(record), WriteOutcome::kWritten);
  EXPECT_EQ(folder.find(record.environment, record.problem), record);
  EXPECT_FALSE(folder.find(record.environment, record.problem + " "));
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    std::ofstream(entry.path(), std::ios::app) << "x";
  }
  std::ofstream(path / "0123.tuning") << to_text(record);  // another's name
  EXPECT_FALSE(folder.find(record.environment, record.problem));
  EXPECT_EQ(folder.all().num_unusable, 2);
  ASSERT_EQ(folder.put(record), WriteOutcome::kWritten);
  EXPECT_EQ(folder.all().records, std::vector<TuningRecord>{record});
  std::filesystem::remove_all(path);
  // Without a folder nothing is kept, and nothing fails.
  EXPECT_EQ(RecordFolder("").put(record), WriteOutcome::kNotWritten);
  EXPECT_TRUE(RecordFolder("").all().records.empty());
}

// Two writers, killed at random moments: every file is sound each time.
TEST(RecordFolder, killed_writers_leave_a_valid_folder) {
  const auto path = new_folder("killed");
  const RecordFolder folder(path);
  std::mt19937 random(50);
  const auto put_from = [&](int seed) {
    return [&folder, seed](int i) {
      const int n = seed + i;
      (void)folder.put(record_of(product(8 << (n % 5)), h200(), "kernel" + std::to_string(n)));
    };
  };
  for (int attempt = 0; attempt < 50; ++attempt) {
    test::WriterProcess one(put_from(attempt));
    test::WriterProcess other(put_from(attempt + 1000));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    EXPECT_TRUE(one.kill());
    EXPECT_TRUE(other.kill());
    EXPECT_EQ(folder.all().num_unusable, 0) << attempt;
  }
  EXPECT_FALSE(folder.all().records.empty());
  std::filesystem::remove_all(path);
}

// Records that come with the library hold, or they would be dead weight.
TEST(ShippedRecords, are_sound_and_name_candidates) {
  const Result<std::vector<TuningRecord>> records = parse_records(shipped_records_text());
  ASSERT_TRUE(records.ok()) << records.error().what();
  std::set<std::string> problems;
  for (const TuningRecord& record : records.value()) {
    EXPECT_TRUE(problems.insert(record.problem).second) << record.problem;
    EXPECT_TRUE(parse_kernel_name(record.kernel).ok()) << record.kernel;
    EXPECT_LE(record.us, record.model_us * 1.01) << record.problem;
  }
}

}  // namespace
}  // namespace octavo::cuda
