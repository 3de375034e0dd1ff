// SPDX-License-Identifier: Apache-2.0
#include "ndd/lut.h"

#include "ndd/lut_x86.h"

namespace ndd {
namespace {

#if defined(__x86_64__)
template <int kChannels>
NDD_VBMI void map_vbmi(const uint8_t* src, int64_t bytes, const uint8_t* tables, uint8_t* dst) {
  TableRegisters table[kChannels];
  for (int c = 0; c < kChannels; ++c) table[c] = table_in_registers(tables + c * kLevels);
  __mmask64 of_channel[kChannels];  // which bytes of 64 are of this channel, where the first byte is of the first one
  for (int c = 0; c < kChannels; ++c) {
    uint64_t mask = 0;
    for (int b = c; b < 64; b += kChannels) mask |= uint64_t{1} << b;
    of_channel[c] = mask;
  }
  for (int64_t i = 0; i < bytes; i += 64 * kChannels) {
    for (int v = 0; v < kChannels; ++v) {
      const int64_t begin = i + 64 * v, left = bytes - begin;
      if (left <= 0) return;
      const __mmask64 present = first_bytes(left);
      const __m512i levels = _mm512_maskz_loadu_epi8(present, src + begin);
      __m512i mapped = look_up(table[(64 * v) % kChannels], levels);
      for (int c = 1; c < kChannels; ++c) mapped = _mm512_mask_blend_epi8(of_channel[c], mapped, look_up(table[(64 * v + c) % kChannels], levels));
      _mm512_mask_storeu_epi8(dst + begin, present, mapped);
    }
  }
}
#endif

template <int kChannels>
void count_interleaved(const uint8_t* pixels, int64_t count, uint32_t* counts) {
  uint32_t parts[2][kChannels][kLevels] = {};  // neighbouring pixels are often alike
  for (int64_t i = 0; i < count; ++i, pixels += kChannels)
    for (int c = 0; c < kChannels; ++c) ++parts[i % 2][c][pixels[c]];
  for (int c = 0; c < kChannels; ++c)
    for (int v = 0; v < kLevels; ++v) counts[c * kLevels + v] += parts[0][c][v] + parts[1][c][v];
}

}  // namespace

void count_levels(const uint8_t* pixels, int64_t count, int64_t channels, uint32_t* counts) {
  if (channels == 1) {
    LevelCounter counter;
    counter.add(pixels, count);
    return counter.add_to(counts);
  }
  if (channels == 3) return count_interleaved<3>(pixels, count, counts);
  for (int64_t i = 0; i < count; ++i, pixels += channels)
    for (int64_t c = 0; c < channels; ++c) ++counts[c * kLevels + pixels[c]];
}

void map_levels(const uint8_t* src, int64_t count, int64_t channels, const uint8_t* tables, uint8_t* dst) {
#if defined(__x86_64__)
  if (has_vbmi() && channels == 1) return map_vbmi<1>(src, count, tables, dst);
  if (has_vbmi() && channels == 3) return map_vbmi<3>(src, 3 * count, tables, dst);
#endif
  if (channels == 1) {
    for (int64_t i = 0; i < count; ++i) dst[i] = tables[src[i]];
  } else if (channels == 3) {
    for (int64_t i = 0; i < count; ++i, src += 3, dst += 3)
      for (int c = 0; c < 3; ++c) dst[c] = tables[c * kLevels + src[c]];
  } else {
    for (int64_t i = 0; i < count; ++i, src += channels, dst += channels)
      for (int64_t c = 0; c < channels; ++c) dst[c] = tables[c * kLevels + src[c]];
  }
}

}  // namespace ndd
