// SPDX-License-Identifier: Apache-2.0
// A bounded queue of open sounds, guarded by one mutex: adding to a full queue closes the sound at its front, which was added first.
#include "decoders/audio/opened_sounds.h"

#include "ndd/fork_mutex.h"

#include <deque>
#include <mutex>
#include <utility>

namespace ndd {
namespace {

// Each may have a descriptor (a process usually has 1024) and the tables of a codec.
constexpr size_t kMaxOpened = 64;

struct Kept {
  int64_t number;
  const void* contents;  // null for a place
  int64_t size;
  std::string place;
  std::unique_ptr<OpenedSound> sound;
};

struct Sounds {
  ForkMutex mutex;
  std::deque<Kept> kept;  // by number
  int64_t next = 1;
};

// Never destroyed: other threads may decode while the process ends.
Sounds& sounds() {
  static auto* const all = new Sounds;
  return *all;
}

std::string place_of(const void* source, int64_t size, bool is_place) {
  return is_place ? std::string(static_cast<const char*>(source), static_cast<size_t>(size)) : std::string();
}

}  // namespace

int64_t keep_sound(std::unique_ptr<OpenedSound> sound, const void* source, int64_t size, bool is_place) {
  Kept entry{0, is_place ? nullptr : source, size, place_of(source, size, is_place), std::move(sound)};
  Kept surplus{};  // closed after the lock is released
  auto& [mutex, kept, next] = sounds();
  const std::lock_guard<ForkMutex> lock(mutex);
  const int64_t number = entry.number = next++;
  kept.push_back(std::move(entry));
  if (kept.size() > kMaxOpened) {
    surplus = std::move(kept.front());
    kept.pop_front();
  }
  return number;
}

std::unique_ptr<OpenedSound> take_sound(int64_t number, const void* source, int64_t size, bool is_place) {
  const std::string place = place_of(source, size, is_place);
  auto& [mutex, kept, next] = sounds();
  const std::lock_guard<ForkMutex> lock(mutex);
  for (auto entry = kept.begin(); entry != kept.end(); ++entry) {
    if (entry->number != number) continue;
    // The contents that were opened are those of this call if they are at the same place.
    if (entry->contents != (is_place ? nullptr : source) || entry->size != size || entry->place != place) return nullptr;
    auto sound = std::move(entry->sound);
    kept.erase(entry);
    return sound;
  }
  return nullptr;
}

}  // namespace ndd
