// SPDX-License-Identifier: Apache-2.0
// Random bands of an axis (SpecAugment's masks; Park et al., 2019), for the masks alone and for spec_augment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/random/philox.h"
#include "ndd/simd.h"

namespace ndd::audio {

// So that a run has them all without further memory.
constexpr int64_t kMaxMasks = 64;

// The bands [begin, end) of a sample; empty where a mask is not applied.
struct Masks {
  int32_t begin[kMaxMasks], end[kMaxMasks];

  NDD_HD bool hide(int64_t place, int64_t count) const {
    bool hidden = false;
    for (int64_t m = 0; m < count; ++m) hidden |= place >= begin[m] && place < end[m];
    return hidden;
  }
};

// A mask is up to `widest` wide and lies anywhere within the extent. Three words are drawn for each, whether it is applied or not, so a probability
// does not change the places of the other masks.
inline Masks draw_masks(Philox stream, int64_t count, float widest, float probability, int64_t extent) {
  // With ends of 32 bits the masks of a run take 512 bytes.
  if (extent > std::numeric_limits<int32_t>::max()) fail("an axis of ", extent, " elements is too long; masks reach to 2^31 - 1");
  Masks masks{};
  for (int64_t m = 0; m < count; ++m) {
    const float width_draw = stream.uniform(), begin_draw = stream.uniform(), apply_draw = stream.uniform();
    // Rounded down, as in torchaudio.
    const float limited = std::min(widest, static_cast<float>(extent)), width = width_draw * limited;
    // Drawn before the width is rounded down, as in torchaudio: a mask never leaves the extent.
    const float begin = begin_draw * (static_cast<float>(extent) - width);
    if (!(apply_draw < probability)) continue;
    // A float product may round up to the extent itself, and the float of the extent to 2^31.
    const int64_t first = std::min(static_cast<int64_t>(begin), extent);
    masks.begin[m] = static_cast<int32_t>(first);
    masks.end[m] = static_cast<int32_t>(std::min(first + static_cast<int64_t>(width), extent));
  }
  return masks;
}

// Writes `value` over the bands of the middle axis of an array [outer][extent][inner].
template <class T>
void fill_masks(const Masks& masks, int64_t count, int64_t outer, int64_t extent, int64_t inner, T value, T* values) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T filling = value;
    for (int64_t o = 0; o < outer; ++o) {
      T* const row = values + o * extent * inner;
      for (int64_t m = 0; m < count; ++m) std::fill(row + masks.begin[m] * inner, row + masks.end[m] * inner, filling);
    }
  });
}

}  // namespace ndd::audio
