// SPDX-License-Identifier: Apache-2.0
// Histograms of uint8 images and lookups in 256-entry tables: the building blocks of lookup_table, equalize and clahe. All functions run on the
// calling thread and accept any alignment.
#pragma once

#include <cstdint>

namespace ndd {

constexpr int kLevels = 256;

// Counts levels in several histograms in turn: in flat regions, where consecutive pixels have the same level, each increment would otherwise wait for
// the store of the one before.
class LevelCounter {
 public:
  void add(const uint8_t* levels, int64_t count) {
    int64_t i = 0;
    for (; i + kParts <= count; i += kParts)
      for (int p = 0; p < kParts; ++p) ++parts_[p][levels[i + p]];
    for (; i < count; ++i) ++parts_[0][levels[i]];
  }
  void add_to(uint32_t* counts) const {
    for (int v = 0; v < kLevels; ++v)
      for (int p = 0; p < kParts; ++p) counts[v] += parts_[p][v];
  }

 private:
  static constexpr int kParts = 4;
  uint32_t parts_[kParts][kLevels] = {};
};

// Adds the number of occurrences of each level in channel c of interleaved pixels to counts[c * 256 + level].
void count_levels(const uint8_t* pixels, int64_t count, int64_t channels, uint32_t* counts);

// Whether 64 levels are looked up at a time, which is faster than any arithmetic on them.
bool maps_levels_in_registers();

// dst = tables[c * 256 + src] for every channel c of interleaved pixels. src and dst may be the same buffer.
void map_levels(const uint8_t* src, int64_t count, int64_t channels, const uint8_t* tables, uint8_t* dst);

// dst[i] = table[src[i]], for entries of 2, 4 or 8 bytes.
template <class Entry>
void map_levels_to(const uint8_t* src, int64_t count, const Entry* table, Entry* dst);

}  // namespace ndd
