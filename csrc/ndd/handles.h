// SPDX-License-Identifier: Apache-2.0
// Handles by which Python refers to objects of this library. Functions of torch.ops receive them as integers, and anyone can pass another one: they look
// each up before they use it. The C functions, which only this package calls, take them as pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ndd/error.h"
#include "ndd/fork_mutex.h"

namespace ndd {

// The handles of one type of object, which a Pointer (a shared_ptr) points to. A handle is the address of the pointer. Its memory is used for later
// handles but never given back, so find() can read what a handle of the past points to.
template <class Pointer>
class Handles {
 public:
  void* make(Pointer pointer) {
    const std::lock_guard<ForkMutex> lock(mutex_);
    if (free_ == nullptr) grow();
    Slot* const slot = free_;
    free_ = slot->next;
    slot->pointer = std::move(pointer);
    slot->live = true;
    return slot;
  }

  // Ends a handle, and returns what it stood for: the last pointer must not be destroyed under the lock.
  Pointer take(void* handle) {
    const std::lock_guard<ForkMutex> lock(mutex_);
    Slot* const slot = live_slot(reinterpret_cast<uintptr_t>(handle));
    if (slot == nullptr) return nullptr;
    slot->live = false;
    slot->next = free_;
    free_ = slot;
    return std::move(slot->pointer);
  }

  // Returns null for anything but a handle that has not ended. A look-up takes 24 ns, which include copying the pointer.
  Pointer find(int64_t handle) {
    const std::lock_guard<ForkMutex> lock(mutex_);
    const Slot* const slot = live_slot(static_cast<uintptr_t>(handle));
    return slot == nullptr ? nullptr : slot->pointer;
  }

 private:
  struct alignas(16) Slot {
    Pointer pointer;  // first: the address of a slot is that of its pointer
    Slot* next = nullptr;
    bool live = false;
  };
  struct Block {
    std::unique_ptr<Slot[]> slots;
    size_t count;
  };
  static constexpr size_t kFirst = 1024;  // slots of the first block; each further one has twice as many

  void grow() {
    const size_t count = blocks_.empty() ? kFirst : 2 * blocks_.back().count;
    blocks_.push_back({std::make_unique<Slot[]>(count), count});
    Slot* const slots = blocks_.back().slots.get();
    for (size_t k = count; k > 0; --k) {
      slots[k - 1].next = free_;
      free_ = &slots[k - 1];
    }
  }

  Slot* live_slot(uintptr_t address) const {
    for (const Block& block : blocks_) {
      const uintptr_t offset = address - reinterpret_cast<uintptr_t>(block.slots.get());
      if (offset >= block.count * sizeof(Slot)) continue;
      Slot* const slot = &block.slots[offset / sizeof(Slot)];
      return offset % sizeof(Slot) == 0 && slot->live ? slot : nullptr;
    }
    return nullptr;
  }

  ForkMutex mutex_;
  std::vector<Block> blocks_;
  Slot* free_ = nullptr;
};

template <class Pointer>
Handles<Pointer>& handles() {
  static auto* const all = new Handles<Pointer>;  // never destroyed: threads use it until the process exits
  return *all;
}

// Returns what an argument of a function of torch.ops stands for; throws if that does not exist.
template <class Pointer>
Pointer find_handle(const char* argument, int64_t handle) {
  Pointer found = handles<Pointer>().find(handle);
  if (!found) fail(Error::Value, argument, " must be a handle that is in use, got ", handle);
  return found;
}

}  // namespace ndd
