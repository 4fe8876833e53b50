// SPDX-License-Identifier: Apache-2.0
#include "cuda/prepared_gemm.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/jit/gemm_source.hpp"
#include "cuda/plan/grouped_plan.hpp"
#include "cuda/plan/plan_parts.hpp"
#include "cuda/tune/tuned_choice.hpp"
#include "kernels/contract/finish_output_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "naming/kernel_name.hpp"

namespace octavo::cuda {
namespace {

// Everything that a plan depends on: shapes, strides, types, modes and how addresses are aligned,
// not the addresses.
class PlanKey {
 public:
  PlanKey(int device, const GemmProblem& problem)
      : PlanKey(device, Grouping::kNone, problem, problem.num_splits) {}
  PlanKey(int device, const GroupedGemmProblem& problem)
      : PlanKey(device, Grouping::kRows, problem, problem.expected_rows) {}

  friend bool operator==(const PlanKey&, const PlanKey&) = default;

  [[nodiscard]] std::size_t hash() const {
    // PERF: four sums side by side; one would wait for its multiplication 45 times.
    constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;  // 2^64 over the golden ratio
    constexpr std::size_t kLanes = 4;
    std::array<std::uint64_t, kLanes> lanes{1, 2, 3, 4};
    static_assert(kWords % kLanes == 0);
    for (std::size_t i = 0; i < kWords; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = (lanes[lane] ^ static_cast<std::uint64_t>(words_[i + lane])) * kOdd;
        lanes[lane] ^= lanes[lane] >> 32U;
      }
    }
    return ((lanes[0] * kOdd ^ lanes[1]) * kOdd ^ lanes[2]) * kOdd ^ lanes[3];
  }

 private:
  // `own`: what only this kind of problem has.
  template <typename Problem>
  PlanKey(int device, Grouping grouping, const Problem& problem, std::int64_t own) {
    add(device);
    add(static_cast<std::int64_t>(grouping));
    add_view(problem.a);
    add_view(problem.b);
    add_view(problem.d);
    add(static_cast<std::int64_t>(problem.recipe));
    add(static_cast<std::int64_t>(problem.accumulation));
    add(static_cast<std::int64_t>(problem.output_mode));
    add(own);
    add(problem.bias.present() ? 1 : 0);
    add_scales(problem.recipe, problem.a_scale);
    add_scales(problem.recipe, problem.b_scale);
  }
  void add(std::int64_t word) { words_[count_++] = word; }
  void add_view(const TensorView& view) {
    constexpr std::size_t kDimensions = 3;  // a valid problem's tensors have no more
    constexpr std::uintptr_t kAlignment = 16;
    constexpr std::int64_t kTypes = 256;
    constexpr std::int64_t kRanks = 8;
    const auto offset =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data) % kAlignment);
    add((offset * kRanks + view.rank) * kTypes + static_cast<std::int64_t>(view.dtype));
    for (std::size_t i = 0; i < kDimensions; ++i) {
      const bool is_there = static_cast<int>(i) < view.rank;
      add(is_there ? view.shape[i] : 0);
      add(is_there ? view.strides[i] : 0);
    }
  }

  // Block scales are read where they are, if bulk copies bring them, or copied by matrices; others
  // in any layout.
  void add_scales(ScaleRecipe recipe, const TensorView& scale) {
    if (!is_block_scaled(recipe)) {
      add(-1);
      return;
    }
    const bool is_shared = scale.rank < 3 || scale.strides[0] == 0;
    add((static_cast<std::int64_t>(scale.dtype) * 2 + (is_bulk(scale) ? 1 : 0)) * 2 +
        (is_shared ? 1 : 0));
  }

  static constexpr std::size_t kWords = 32;
  std::array<std::int64_t, kWords> words_{};
  std::size_t count_ = 0;
};

struct HashOfKey {
  std::size_t operator()(const PlanKey& key) const { return key.hash(); }
  std::size_t operator()(const std::vector<PlanKey>& keys) const {
    std::size_t hash = 0;
    for (const PlanKey& key : keys) hash = hash * 31 + key.hash();
    return hash;
  }
};

}  // namespace

void set_plan(const GemmPlan& plan, PreparedGemm& prepared) {
  prepared.plan = plan;
  switch (prepared.plan.work) {
    case GemmWork::kNothing: prepared.kernel = "none"; break;
    case GemmWork::kEpilogue: prepared.kernel = kFinishOutputEntry; break;
    case GemmWork::kProduct:
      prepared.kernel = kernel_name(prepared.plan.config);
      prepared.shared_bytes = gemm_shared_memory(prepared.plan.config).total_bytes;
      break;
  }
}

namespace {

std::shared_ptr<const PreparedGemm> prepare(const GemmPlan& plan) {
  auto prepared = std::make_shared<PreparedGemm>();
  set_plan(plan, *prepared);
  return prepared;
}

// What was made for a key before, or what `make` makes of it now. Thread-safe.
template <typename Key, typename Value>
class Memory {
 public:
  template <typename Make>
  std::shared_ptr<const Value> get(const Key& key, const Make& make) {
    // About a kilobyte each, fused calls up to ten. Prompts of all lengths would fill memory
    // otherwise; what is dropped is planned again.
    constexpr std::size_t kMaxRemembered = 4096;
    {
      const std::shared_lock lock(mutex_);
      if (const auto found = made_.find(key); found != made_.end()) return found->second;
    }
    std::shared_ptr<const Value> made = make();
    const std::scoped_lock lock(mutex_);
    if (made_.size() >= kMaxRemembered) made_.clear();
    return made_.emplace(key, std::move(made)).first->second;
  }
  void clear() {
    const std::scoped_lock lock(mutex_);
    made_.clear();
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const Value>, HashOfKey> made_;
};

struct Choices {
  std::atomic<std::size_t> records{0};
  std::atomic<std::size_t> shipped_records{0};
  std::atomic<std::size_t> model{0};
};
Choices& choices() {
  static Choices choices;
  return choices;
}

GemmPlan counted_plan(const DeviceInfo& device, const GemmProblem& problem) {
  // PERF: asked once, for the answer takes milliseconds.
  static const std::vector<GpuDescription> descriptions = gpus();
  const auto ordinal = static_cast<std::size_t>(device.ordinal);
  GpuDescription gpu;
  if (ordinal < descriptions.size()) gpu = descriptions[ordinal];
  gpu.num_multiprocessors = device.num_multiprocessors;
  const TunedPlan tuned = tuned_plan(problem, gpu);
  if (tuned.plan.work != GemmWork::kProduct) return tuned.plan;
  if (!tuned.choice) {
    ++choices().model;
  } else {
    ++(tuned.choice->is_shipped ? choices().shipped_records : choices().records);
  }
  return tuned.plan;
}

using Plans = Memory<PlanKey, PreparedGemm>;

Plans& plans() {
  static Plans plans;
  return plans;
}

}  // namespace

std::shared_ptr<const PreparedGemm> prepared_gemm(const DeviceInfo& device,
                                                  const GemmProblem& problem) {
  return plans().get(PlanKey(device.ordinal, problem),
                     [&] { return prepare(counted_plan(device, problem)); });
}

void forget_plans() { plans().clear(); }

TuningStatistics plan_statistics() {
  return {choices().records, choices().shipped_records, choices().model};
}

std::shared_ptr<const PreparedGemm> prepared_grouped(const DeviceInfo& device,
                                                     const GroupedGemmProblem& problem) {
  return plans().get(PlanKey(device.ordinal, problem),
                     [&] { return prepare(plan_grouped(problem, device.num_multiprocessors)); });
}

std::shared_ptr<const std::list<PreparedFusedLaunch>> prepared_fused(
    const DeviceInfo& device, std::span<const GemmProblem> problems) {
  static Memory<std::vector<PlanKey>, std::list<PreparedFusedLaunch>> calls;
  std::vector<PlanKey> key;
  for (const GemmProblem& problem : problems) key.emplace_back(device.ordinal, problem);
  return calls.get(key, [&] {
    auto launches = std::make_shared<std::list<PreparedFusedLaunch>>();
    for (FusedLaunch& launch : plan_fused(problems, device.num_multiprocessors)) {
      PreparedFusedLaunch& prepared = launches->emplace_back();
      prepared.problems = std::move(launch.problems);
      set_plan(launch.plan, prepared.product);
    }
    return std::shared_ptr<const std::list<PreparedFusedLaunch>>(std::move(launches));
  });
}

}  // namespace octavo::cuda
