// SPDX-License-Identifier: Apache-2.0
// Scratch memory for the threads of one loop: as many equal slots as threads may run, kept by the
// calling thread from one call to the next. A task takes a slot and gives it back; it never
// allocates, since a task must not throw.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

namespace octavo::cpu {

class ScratchSlots {
 public:
  // Slots start at multiples of this: a page, so that no two share a cache line.
  static constexpr std::size_t kAlignment = 4096;

  // Throws std::bad_alloc. Not while a slot is taken.
  void reserve(int num_slots, std::size_t slot_bytes) {
    slot_bytes = (slot_bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::size_t bytes = static_cast<std::size_t>(num_slots) * slot_bytes;
    if (bytes > capacity_bytes_) {
      memory_.reset();
      capacity_bytes_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})));
      capacity_bytes_ = bytes;
    }
    if (num_slots > num_slots_) {
      num_slots_ = 0;
      taken_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(num_slots));
      num_slots_ = num_slots;
    }
    slot_bytes_ = slot_bytes;
  }

  // At most num_slots tasks hold one at a time, so a free one is always found.
  class Slot {
   public:
    explicit Slot(ScratchSlots& slots) noexcept {
      int idx = 0;
      while (
          slots.taken_[static_cast<std::size_t>(idx)].exchange(true, std::memory_order_acquire)) {
        idx = (idx + 1) % slots.num_slots_;
      }
      taken_ = &slots.taken_[static_cast<std::size_t>(idx)];
      data_ = slots.memory_.get() + static_cast<std::size_t>(idx) * slots.slot_bytes_;
    }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    // ORDER: release hands the slot's memory to the task that acquires it next.
    ~Slot() { taken_->store(false, std::memory_order_release); }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }

   private:
    std::atomic<bool>* taken_;
    std::byte* data_;
  };

 private:
  struct Delete {
    void operator()(std::byte* memory) const {
      ::operator delete (memory, std::align_val_t{kAlignment});
    }
  };

  std::unique_ptr<std::byte, Delete> memory_;
  std::unique_ptr<std::atomic<bool>[]> taken_;
  std::size_t capacity_bytes_ = 0;
  std::size_t slot_bytes_ = 0;
  int num_slots_ = 0;
};

}  // namespace octavo::cpu
