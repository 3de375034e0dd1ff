// SPDX-License-Identifier: Apache-2.0
// Table lookups: with AVX-512 VBMI or AVX2 the table is held in registers; the portable loop looks up entry by entry.
#include "ndd/elementwise/lut.h"

#include <cstring>

#include "ndd/elementwise/lut_x86.h"

namespace ndd {
namespace {

#if defined(__x86_64__)
// The tables of interleaved channels, and masks of the bytes of a 64-byte vector that belong to each channel, where byte 0 belongs to channel 0.
template <int kChannels>
struct ChannelTables {
  TableRegisters table[kChannels];
  __mmask64 of_channel[kChannels];

  NDD_VBMI explicit ChannelTables(const uint8_t* tables) {
    for (int c = 0; c < kChannels; ++c) {
      table[c] = table_in_registers(tables + c * kLevels);
      of_channel[c] = 0;
      for (int b = c; b < 64; b += kChannels) of_channel[c] |= uint64_t{1} << b;
    }
  }
  // Maps the v-th vector of a group of kChannels vectors, after which the pattern of channels repeats.
  NDD_VBMI __m512i map(int v, __m512i levels) const {
    __m512i mapped = look_up(table[64 * v % kChannels], levels);
    for (int c = 1; c < kChannels; ++c) mapped = _mm512_mask_blend_epi8(of_channel[c], mapped, look_up(table[(64 * v + c) % kChannels], levels));
    return mapped;
  }
};

// Masked loads and stores only for the last vectors: when used throughout, a VGA image that is not in the caches takes 120 us instead of 30.
template <int kChannels>
NDD_VBMI void map_vbmi(const uint8_t* src, int64_t bytes, const uint8_t* entries, uint8_t* dst) {
  const ChannelTables<kChannels> tables(entries);
  int64_t i = 0;
  for (; i + 64 * kChannels <= bytes; i += 64 * kChannels)
    for (int v = 0; v < kChannels; ++v) _mm512_storeu_si512(dst + i + 64 * v, tables.map(v, _mm512_loadu_si512(src + i + 64 * v)));
  for (int v = 0; v < kChannels && i < bytes; ++v, i += 64) {
    const __mmask64 present = first_bytes(bytes - i);
    _mm512_mask_storeu_epi8(dst + i, present, tables.map(v, _mm512_maskz_loadu_epi8(present, src + i)));
  }
}

// Maps as many bytes as fill whole pairs of registers; returns their number.
NDD_LUT_AVX2 int64_t map_avx2(const uint8_t* src, int64_t bytes, const uint8_t* entries, uint8_t* dst) {
  const TableOfHalves table = table_in_halves(entries);
  int64_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    __m256i levels[2] = {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i)),
                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i + 32))};
    look_up(table, levels);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i), levels[0]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i + 32), levels[1]);
  }
  return i;
}

// Shuffles between three registers of interleaved pixels (16 pixels of three bytes) and one register per channel, in both directions.
struct ColorOrder {
  alignas(16) uint8_t split[3][3][16], join[3][3][16];

  constexpr ColorOrder() : split(), join() {
    for (int c = 0; c < 3; ++c)
      for (int v = 0; v < 3; ++v)
        for (int i = 0; i < 16; ++i) {
          // split: byte i of channel c is byte 3 i + c of the 48, which register v holds at `from`. join: byte `at` of the 48 is pixel at / 3 of
          // channel at % 3. 0x80 gives zero.
          const int from = 3 * i + c - 16 * v, at = 16 * v + i;
          split[c][v][i] = static_cast<uint8_t>(from >= 0 && from < 16 ? from : 0x80);
          join[v][c][i] = static_cast<uint8_t>(at % 3 == c ? at / 3 : 0x80);
        }
  }
};
constexpr ColorOrder kColorOrder;

// Combines the shuffles of three registers: exactly one provides each byte, the others give zero.
NDD_LUT_AVX2 inline __m256i picked(const __m256i (&from)[3], const uint8_t (&order)[3][16]) {
  __m256i picked_bytes = _mm256_setzero_si256();
  for (int v = 0; v < 3; ++v)
    picked_bytes = _mm256_or_si256(
        picked_bytes, _mm256_shuffle_epi8(from[v], _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(order[v])))));
  return picked_bytes;
}

// Maps pixels of three bytes, 64 at a time, with a table per channel; returns how many pixels were mapped.
NDD_LUT_AVX2 int64_t map_colors_avx2(const uint8_t* src, int64_t count, const uint8_t* entries, uint8_t* dst) {
  const TableOfHalves tables[3] = {table_in_halves(entries), table_in_halves(entries + kLevels), table_in_halves(entries + 2 * kLevels)};
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    __m256i mapped[2][3];
    for (int half = 0; half < 2; ++half) {  // 16 pixels in each lane
      const auto* from = reinterpret_cast<const __m128i*>(src + 3 * (i + 32 * half));
      __m256i bytes[3];
      for (int v = 0; v < 3; ++v)
        bytes[v] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(from + v)), _mm_loadu_si128(from + 3 + v), 1);
      for (int c = 0; c < 3; ++c) mapped[half][c] = picked(bytes, kColorOrder.split[c]);
    }
    for (int c = 0; c < 3; ++c) {
      __m256i levels[2] = {mapped[0][c], mapped[1][c]};
      look_up(tables[c], levels);
      mapped[0][c] = levels[0];
      mapped[1][c] = levels[1];
    }
    for (int half = 0; half < 2; ++half) {
      auto* to = reinterpret_cast<__m128i*>(dst + 3 * (i + 32 * half));
      for (int v = 0; v < 3; ++v) {
        const __m256i joined = picked(mapped[half], kColorOrder.join[v]);
        _mm_storeu_si128(to + v, _mm256_castsi256_si128(joined));
        _mm_storeu_si128(to + 3 + v, _mm256_extracti128_si256(joined, 1));
      }
    }
  }
  return i;
}

// A table of wider entries is split into one byte table per byte of an entry. The levels are first permuted such that the looked-up bytes can be
// interleaved within the 128-bit quarters of a register. A VGA image becomes float32 in 38 us in the L1 cache, and in 240 us entry by entry.
template <class Entry>
NDD_VBMI int64_t map_wide_vbmi(const uint8_t* src, int64_t count, const Entry* entries, Entry* dst) {
  constexpr int kBytes = sizeof(Entry);
  static_assert(kBytes == 2 || kBytes == 4);
  constexpr __mmask64 kAll = ~__mmask64{0};  // gcc 12 warns of uninitialized values in the unmasked intrinsics
  TableRegisters table[kBytes];
  for (int b = 0; b < kBytes; ++b) {
    // Byte b of all entries, as a table of its own.
    alignas(64) uint8_t bytes[kLevels];
    for (int v = 0; v < kLevels; ++v) bytes[v] = static_cast<uint8_t>(entries[v] >> (8 * b));
    table[b] = table_in_registers(bytes);
  }
  // unpack works within quarters of 128 bits. In this order, what it puts side by side are the bytes of neighboring entries.
  const __m512i order = kBytes == 4 ? _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
                                    : _mm512_setr_epi32(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    const __m512i levels = _mm512_maskz_permutexvar_epi32(0xffff, order, _mm512_loadu_si512(src + i));
    __m512i byte[kBytes], joined[kBytes];
    for (int b = 0; b < kBytes; ++b) byte[b] = look_up(table[b], levels);
    if constexpr (kBytes == 2) {
      joined[0] = _mm512_maskz_unpacklo_epi8(kAll, byte[0], byte[1]);
      joined[1] = _mm512_maskz_unpackhi_epi8(kAll, byte[0], byte[1]);
    } else {
      const __m512i low = _mm512_maskz_unpacklo_epi8(kAll, byte[0], byte[1]), low_high = _mm512_maskz_unpacklo_epi8(kAll, byte[2], byte[3]);
      const __m512i high = _mm512_maskz_unpackhi_epi8(kAll, byte[0], byte[1]), high_high = _mm512_maskz_unpackhi_epi8(kAll, byte[2], byte[3]);
      constexpr __mmask32 kWords = ~__mmask32{0};
      joined[0] = _mm512_maskz_unpacklo_epi16(kWords, low, low_high);
      joined[1] = _mm512_maskz_unpackhi_epi16(kWords, low, low_high);
      joined[2] = _mm512_maskz_unpacklo_epi16(kWords, high, high_high);
      joined[3] = _mm512_maskz_unpackhi_epi16(kWords, high, high_high);
    }
    for (int b = 0; b < kBytes; ++b) _mm512_storeu_si512(dst + i + b * (64 / kBytes), joined[b]);
  }
  return i;
}
#endif

template <int kChannels>
void count_interleaved(const uint8_t* pixels, int64_t count, uint32_t* counts) {
  // Two histograms, because neighboring pixels are often equal, and each increment would wait for the one before.
  uint32_t even[kChannels][kLevels] = {}, odd[kChannels][kLevels] = {};
  int64_t i = 0;
  for (; i + 2 <= count; i += 2, pixels += 2 * kChannels) {  // a VGA image takes 206 us; choosing the histogram by i % 2 takes 320
    for (int c = 0; c < kChannels; ++c) ++even[c][pixels[c]];
    for (int c = 0; c < kChannels; ++c) ++odd[c][pixels[kChannels + c]];
  }
  for (int c = 0; c < kChannels && i < count; ++c) ++even[c][pixels[c]];
  for (int c = 0; c < kChannels; ++c)
    for (int v = 0; v < kLevels; ++v) counts[c * kLevels + v] += even[c][v] + odd[c][v];
}

// With a constant number of channels, the compiler unrolls the inner loop.
template <int kChannels>
void map_interleaved(const uint8_t* src, int64_t count, const uint8_t* tables, uint8_t* dst) {
  for (int64_t i = 0; i < count; ++i, src += kChannels, dst += kChannels)
    for (int c = 0; c < kChannels; ++c) dst[c] = tables[c * kLevels + src[c]];
}

}  // namespace

void count_levels(const uint8_t* pixels, int64_t count, int64_t channels, uint32_t* counts) {
  if (channels == 1) {
    // Several histograms in turns, for the reason given at count_interleaved().
    LevelCounter counter;
    counter.add(pixels, count);
    return counter.add_to(counts);
  }
  if (channels == 2) return count_interleaved<2>(pixels, count, counts);
  if (channels == 3) return count_interleaved<3>(pixels, count, counts);
  if (channels == 4) return count_interleaved<4>(pixels, count, counts);
  for (int64_t i = 0; i < count; ++i, pixels += channels)
    for (int64_t c = 0; c < channels; ++c) ++counts[c * kLevels + pixels[c]];
}

bool maps_levels_in_registers() {
#if defined(__x86_64__)
  return has_vbmi();
#else
  return false;
#endif
}

void map_levels(const uint8_t* src, int64_t count, int64_t channels, const uint8_t* tables, uint8_t* dst) {
#if defined(__x86_64__)
  // All 256 entries of a table fit in four registers, which byte permutations look up 64 at a time.
  if (has_vbmi() && channels == 1) return map_vbmi<1>(src, count, tables, dst);
  if (has_vbmi() && channels == 2) return map_vbmi<2>(src, 2 * count, tables, dst);
  if (has_vbmi() && channels == 3) return map_vbmi<3>(src, 3 * count, tables, dst);
  if (has_vbmi() && channels == 4) return map_vbmi<4>(src, 4 * count, tables, dst);
#endif
#if defined(__x86_64__)
  // Below that, preparing the tables takes longer than looking the pixels up one by one.
  if (cpu_isa() != Isa::base && (channels == 1 || channels == 3) && count >= 2 * kLevels) {
    const int64_t done = channels == 1 ? map_avx2(src, count, tables, dst) : map_colors_avx2(src, count, tables, dst);
    src += done * channels, dst += done * channels, count -= done;
  }
#endif
  switch (channels) {
    case 1: return map_interleaved<1>(src, count, tables, dst);
    case 2: return map_interleaved<2>(src, count, tables, dst);
    case 3: return map_interleaved<3>(src, count, tables, dst);
    case 4: return map_interleaved<4>(src, count, tables, dst);
  }
  for (int64_t i = 0; i < count; ++i, src += channels, dst += channels)
    for (int64_t c = 0; c < channels; ++c) dst[c] = tables[c * kLevels + src[c]];
}

template <class Entry>
void map_levels_to(const uint8_t* src, int64_t count, const Entry* table, Entry* dst) {
  int64_t i = 0;
#if defined(__x86_64__)
  if constexpr (sizeof(Entry) <= 4) {
    if (has_vbmi() && count >= 4 * kLevels) i = map_wide_vbmi(src, count, table, dst);
  }
#endif
  // Unrolled by eight: the rolled loop took 1.7 times as long from uint8 to float32 in a build where it straddled a cache line of code; this one
  // takes 1.3.
  for (; i + 8 <= count; i += 8) {
    uint64_t keys;
    std::memcpy(&keys, src + i, 8);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k, keys >>= 8) dst[i + k] = table[keys & 255];
  }
  for (; i < count; ++i) dst[i] = table[src[i]];
}

template void map_levels_to(const uint8_t*, int64_t, const uint16_t*, uint16_t*);
template void map_levels_to(const uint8_t*, int64_t, const uint32_t*, uint32_t*);
template void map_levels_to(const uint8_t*, int64_t, const uint64_t*, uint64_t*);

}  // namespace ndd
