// SPDX-License-Identifier: Apache-2.0
// Rows of the slice driver on the CPU: moving items of a few bytes, mirrored or strided, and splitting uint8 pixels into normalized planes. Any
// alignment; no function reads or writes outside its rows unless its comment says so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ndd/simd.h"
#include "ndd/slice/slice.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd::slice {

template <int bytes>
void move_fixed(const char* src, int64_t in_step, char* dst, int64_t out_step, int64_t n) {
  for (int64_t i = 0; i < n; ++i, src += in_step, dst += out_step) std::memcpy(dst, src, bytes);
}

#if defined(__x86_64__)

// order[item][i]: the source of byte i when as many items as fit in `width` bytes are reversed; the unused bytes come first.
template <int width>
struct ReverseOrder {
  alignas(64) uint8_t order[9][width] = {};

  constexpr ReverseOrder() {
    for (int item = 1; item <= 8; ++item) {
      const int group = width / item, step = group * item;
      for (int i = 0; i < step; ++i) order[item][i] = static_cast<uint8_t>(width - step + (group - 1 - i / item) * item + i % item);
    }
  }
};
inline constexpr ReverseOrder<16> kReverse16;
inline constexpr ReverseOrder<64> kReverse64;

// Reverses items, e.g. 5 RGB pixels per 16-byte shuffle. Returns the number of bytes moved; the rest is too short for whole vectors. A store writes
// beyond its items, and the next one overwrites the excess.
__attribute__((target("avx2"))) inline int64_t reverse_16(const char* src_end, char* dst, int64_t bytes, int64_t item) {
  const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(kReverse16.order[item]));
  // Whole items only: a pixel of three bytes must not be cut at the end of a vector.
  const int64_t step = 16 / item * item;
  int64_t left = bytes;
  for (; left >= 16; left -= step, src_end -= step, dst += step)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src_end - 16)), order));
  return bytes - left;
}

// The same for items that divide 16 bytes, 32 bytes at a time.
__attribute__((target("avx2"))) inline int64_t reverse_32(const char* src_end, char* dst, int64_t bytes, int64_t item) {
  const __m256i order = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kReverse16.order[item])));
  int64_t left = bytes;
  for (; left >= 32; left -= 32, src_end -= 32, dst += 32) {
    const __m256i halves = _mm256_shuffle_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(src_end - 32)), order);
    // The shuffle reverses within each half; exchanging the halves completes it.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), _mm256_permute2x128_si256(halves, halves, 1));
  }
  return bytes - left;
}

// The same with 21 RGB pixels at a time.
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) inline int64_t reverse_64(const char* src_end, char* dst, int64_t bytes, int64_t item) {
  const __m512i order = _mm512_load_si512(kReverse64.order[item]);
  const int64_t step = 64 / item * item;
  int64_t left = bytes;
  for (; left >= 64; left -= step, src_end -= step, dst += step)
    _mm512_storeu_si512(dst, _mm512_maskz_permutexvar_epi8(~__mmask64{0}, order, _mm512_loadu_si512(src_end - 64)));
  return bytes - left;
}

inline bool has_byte_permutation() {
  static const bool has = cpu_isa() == Isa::avx512 && __builtin_cpu_supports("avx512vbmi");
  return has;
}

// memcpy that bypasses the caches, for data that is too large to stay in them: the destination's lines are then not read first. Only whole lines,
// because a line written partly this way is read from memory after all: 16 images of 256x320x3 floats with a border of one pixel took 4.2 ms instead
// of 1.0.
__attribute__((target("avx2"))) inline void stream_bytes(const char* src, char* dst, int64_t n) {
  // Up to the first whole line of the destination.
  const int64_t head = std::min<int64_t>(n, -reinterpret_cast<intptr_t>(dst) & 63);
  std::memcpy(dst, src, head);
  int64_t i = head;
  for (; i + 64 <= n; i += 64) {
    const auto* const from = reinterpret_cast<const __m256i*>(src + i);
    auto* const to = reinterpret_cast<__m256i*>(dst + i);
    _mm256_stream_si256(to, _mm256_loadu_si256(from));
    _mm256_stream_si256(to + 1, _mm256_loadu_si256(from + 1));
  }
  std::memcpy(dst + i, src + i, n - i);
}

#endif

// Writes `all` bytes of an item of 3, 6 or 12 bytes, more than eight.
__attribute__((noinline)) inline void repeat_in_24(const char* item, char* dst, int64_t all, int64_t bytes) {
  uint64_t low = 0, high = 0;
  if (bytes == 3) {
    uint16_t first = 0;
    std::memcpy(&first, item, 2);
    low = (first | static_cast<uint64_t>(static_cast<uint8_t>(item[2])) << 16) * 0x1000001u;
  } else {
    uint32_t first = 0;
    uint16_t last = 0;
    std::memcpy(&first, item, 4);
    std::memcpy(&last, item + 4, 2);
    low = first | static_cast<uint64_t>(last) << 32;
  }
  high = low;
  if (bytes == 12) {
    uint64_t last = 0;
    std::memcpy(&last, item + 4, 8);
    high = last >> 16;
  }
  // Two halves of 6 bytes alternate. In registers: the stack could not be read before the stores to it have finished.
  const uint64_t x = low | high << 48, y = high >> 16 | low << 32, z = low >> 32 | high << 16;
  const auto put = [&](char* to) NDD_ALWAYS_INLINE {
    std::memcpy(to, &x, 8);
    std::memcpy(to + 8, &y, 8);
    std::memcpy(to + 16, &z, 8);
  };
  if (all >= 24) {
    for (int64_t done = 0; done + 24 <= all; done += 24) put(dst + done);
    return put(dst + all - 24);  // in phase: 24 bytes hold whole items
  }
  // The last eight bytes overlap those before them.
  const int64_t odd = 8 * (all % 8);
  const uint64_t before = all >= 16 ? y : x, behind = all >= 16 ? z : y, last = odd == 0 ? before : before >> odd | behind << (64 - odd);
  std::memcpy(dst, &x, 8);
  if (all >= 16) std::memcpy(dst + 8, &y, 8);
  std::memcpy(dst + all - 8, &last, 8);
}

// Writes the same item n times.
inline void repeat_item(const char* item, char* dst, int64_t n, int64_t bytes) {
  if (n <= 0) return;
  const int64_t all = n * bytes;
  // Inline for short runs, which would be dominated by the call of memset, or by waiting for each doubling.
  if ((bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) && all >= 8 && all <= 256) {
    uint64_t pattern = 0;
    if (bytes == 1) pattern = static_cast<uint8_t>(*item) * 0x0101010101010101u;
    else if (bytes == 8) std::memcpy(&pattern, item, 8);
    else {
      uint32_t part = 0;
      if (bytes == 2) std::memcpy(&part, item, 2), part *= 0x00010001u;
      else std::memcpy(&part, item, 4);
      pattern = part * 0x0000000100000001u;
    }
    for (int64_t done = 0; done + 8 <= all; done += 8) std::memcpy(dst + done, &pattern, 8);
    std::memcpy(dst + all - 8, &pattern, 8);  // in phase: 8 bytes hold whole items
    return;
  }
  if (bytes == 1) {
    std::memset(dst, *item, n);
    return;
  }
  // Pixels of three channels: 16 images of 64x64x3 with their edges repeated 16 times take 48 us instead of 77.
  if ((bytes == 3 || bytes == 6 || bytes == 12) && all > 8 && all <= 768) return repeat_in_24(item, dst, all, bytes);
  std::memcpy(dst, item, bytes);
  constexpr int64_t kCached = 1 << 14;  // the doubled part stays in the L1 cache
  for (int64_t done = bytes; done < all;) {
    const int64_t step = std::min({done, all - done, std::max(kCached / bytes, int64_t{1}) * bytes});
    std::memcpy(dst + done, dst, step);
    done += step;
  }
}

// The hardware prefetcher does not recognize rows that are read from their end, or from the last row to the first. Prefetching two rows ahead makes a
// vertical flip of 16 VGA images take 0.37 ms instead of 0.9 on one thread, and a horizontal one 0.37 instead of 2.0.
constexpr int64_t kRowsAhead = 2;

inline void fetch(const char* begin, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(begin + b);
}

constexpr int64_t kLongestInline = 4096;  // longer rows are left to memcpy

template <int bytes>
struct Unaligned {
  typedef char Vector __attribute__((vector_size(bytes), aligned(1), may_alias));
  static NDD_ALWAYS_INLINE inline void move(const char* src, char* dst) { *reinterpret_cast<Vector*>(dst) = *reinterpret_cast<const Vector*>(src); }
};

// A row of at least 16 bytes in vectors, the last of which overlaps the one before.
template <int width>
NDD_ALWAYS_INLINE inline void copy_vectors(const char* src, char* dst, int64_t bytes) {
  for (int64_t i = 0; i + width < bytes; i += width) Unaligned<width>::move(src + i, dst + i);
  Unaligned<width>::move(src + bytes - width, dst + bytes - width);
}

// Copies rows of bytes without a call for each: cropping 16 uint8 images to 224x224 takes 55 us instead of 85. If `ahead` is not 0, prefetches that
// many bytes ahead.
inline void copy_rows(const char* src, int64_t in_step, char* dst, int64_t out_step, int64_t rows, int64_t bytes, int64_t ahead) {
  if (bytes < 16 || bytes > kLongestInline) {
    for (int64_t r = 0; r < rows; ++r, src += in_step, dst += out_step) {
      if (ahead != 0) fetch(src + ahead, bytes);
      std::memcpy(dst, src, bytes);
    }
    return;
  }
  with_simd([&]() NDD_ALWAYS_INLINE {
    const char* from = src;
    char* to = dst;
    const int64_t length = bytes, count = rows, fetched = ahead, from_step = in_step, to_step = out_step;
    for (int64_t r = 0; r < count; ++r, from += from_step, to += to_step) {
      if (fetched != 0) fetch(from + fetched, length);
      if (length >= 64) copy_vectors<64>(from, to, length);
      else copy_vectors<16>(from, to, length);
    }
  });
}

// Fills rows with n copies of an item, which is `in_step` bytes further in the next row. A border of 16 bytes around 16 images of 256x320x3 takes 20 us
// instead of 45.
inline void repeat_rows(const char* item, int64_t in_step, char* dst, int64_t out_step, int64_t rows, int64_t n, int64_t bytes) {
  const int64_t all = n * bytes;
  if (all < 16 || all > 256 || 16 % bytes != 0 || in_step != 0) {
    for (int64_t r = 0; r < rows; ++r, item += in_step, dst += out_step) repeat_item(item, dst, n, bytes);
    return;
  }
  char pattern[64];
  for (int k = 0; k < 64; ++k) pattern[k] = item[k % bytes];
  with_simd([&]() NDD_ALWAYS_INLINE {
    using Wide = Unaligned<64>::Vector;
    using Narrow = Unaligned<16>::Vector;
    const Wide wide = *reinterpret_cast<const Wide*>(pattern);
    const Narrow narrow = *reinterpret_cast<const Narrow*>(pattern);
    char* to = dst;
    const int64_t length = all, count = rows, step = out_step;
    for (int64_t r = 0; r < count; ++r, to += step) {
      if (length >= 64) {
        for (int64_t i = 0; i + 64 < length; i += 64) *reinterpret_cast<Wide*>(to + i) = wide;
        *reinterpret_cast<Wide*>(to + length - 64) = wide;  // in phase: 64 bytes hold whole items
      } else {
        for (int64_t i = 0; i + 16 < length; i += 16) *reinterpret_cast<Narrow*>(to + i) = narrow;
        *reinterpret_cast<Narrow*>(to + length - 16) = narrow;
      }
    }
  });
}

// Whether items are mirrored by mirror_rows, which requires byte permutations of wide vectors; steps are in bytes.
inline bool mirrors(int64_t in_step, int64_t out_step, int64_t bytes) {
#if defined(__x86_64__)
  return in_step == -bytes && out_step == bytes && bytes <= 8 && has_byte_permutation();
#else
  static_cast<void>(in_step), static_cast<void>(out_step), static_cast<void>(bytes);
  return false;
#endif
}

#if defined(__x86_64__)
// Moves vectors in the order of the input's memory, two at a time, because the prefetcher recognizes that: 16 images of 256x320x3 take 83 us; in the
// order of the output 94, or 100 with explicit prefetching. memcpy takes 80.
__attribute__((target("avx512f,avx512bw,avx512vbmi"), always_inline)) inline void mirror_forward(const char* src, char* dst_end, int64_t vectors,
                                                                                                 __m512i order) {
  constexpr __mmask64 kAll = ~__mmask64{0};
  int64_t k = 0;
  for (; k + 2 <= vectors; k += 2) {
    const __m512i first = _mm512_maskz_permutexvar_epi8(kAll, order, _mm512_loadu_si512(src + k * 64));
    const __m512i second = _mm512_maskz_permutexvar_epi8(kAll, order, _mm512_loadu_si512(src + k * 64 + 64));
    _mm512_storeu_si512(dst_end - k * 64 - 128, second);
    _mm512_storeu_si512(dst_end - k * 64 - 64, first);
  }
  if (k < vectors) _mm512_storeu_si512(dst_end - k * 64 - 64, _mm512_maskz_permutexvar_epi8(kAll, order, _mm512_loadu_si512(src + k * 64)));
}

// 64 bytes at a time, the rest under a mask: the permutation takes its items from the end of the vector.
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) inline void mirror_rows_64(const char* end, int64_t in_step, char* dst, int64_t out_step,
                                                                                  int64_t rows, int64_t bytes, int64_t item, int64_t ahead) {
  constexpr __mmask64 kAll = ~__mmask64{0};
  const __m512i order = _mm512_load_si512(kReverse64.order[item]);
  const int64_t step = 64 / item * item, whole = bytes < 64 ? 0 : (bytes - 64) / step + 1, rest = bytes - whole * step;
  // The permutation leaves its items at the beginning of the vector: `high` selects what is read, `low` what is written.
  const __mmask64 low = rest > 0 ? kAll >> (64 - rest) : 0, high = rest > 0 ? kAll << (64 - rest) : 0;
  const bool forward = step == 64;  // otherwise a store writes beyond its items
  // The hardware follows rows that are read in the order of the memory.
  const bool foreseen = ahead == 0 || (forward && in_step > 0);
  for (int64_t r = 0; r < rows; ++r, end += in_step, dst += out_step) {
    if (!foreseen) fetch(end - bytes + ahead, bytes);
    const char* from = end - 64;
    char* to = dst;
    if (!forward) {
      for (int64_t k = 0; k < whole; ++k, from -= step, to += step)
        _mm512_storeu_si512(to, _mm512_maskz_permutexvar_epi8(kAll, order, _mm512_loadu_si512(from)));
    }
    if (rest > 0) {
      const int64_t skipped = forward ? whole * 64 : 0;
      _mm512_mask_storeu_epi8(to + skipped, low, _mm512_maskz_permutexvar_epi8(kAll, order, _mm512_maskz_loadu_epi8(high, from - skipped)));
    }
    if (forward) mirror_forward(end - whole * 64, dst + whole * 64, whole, order);
  }
}
#endif

// Mirrors rows of n items, `in_step` and `out_step` bytes apart. `last` is the last item of the first input row and becomes its first. Only if
// mirrors() holds.
inline void mirror_rows(const char* last, int64_t in_step, char* dst, int64_t out_step, int64_t rows, int64_t n, int64_t bytes, int64_t ahead) {
#if defined(__x86_64__)
  mirror_rows_64(last + bytes, in_step, dst, out_step, rows, n * bytes, bytes, ahead);
#else
  static_cast<void>(ahead);
  for (int64_t r = 0; r < rows; ++r, last += in_step, dst += out_step)
    for (int64_t i = 0; i < n; ++i) std::memcpy(dst + i * bytes, last - i * bytes, bytes);
#endif
}

// Moves n items of `bytes` bytes; steps are in bytes.
inline void move_items(const char* src, int64_t in_step, char* dst, int64_t out_step, int64_t n, int64_t bytes) {
  if (in_step == bytes && out_step == bytes) {
    std::memcpy(dst, src, n * bytes);
    return;
  }
  if (in_step == 0 && out_step == bytes) return repeat_item(src, dst, n, bytes);
#if defined(__x86_64__)
  if (in_step == -bytes && out_step == bytes && bytes <= 8 && cpu_isa() != Isa::base) {
    int64_t done = has_byte_permutation() ? reverse_64(src + bytes, dst, n * bytes, bytes)
                   : 16 % bytes == 0      ? reverse_32(src + bytes, dst, n * bytes, bytes)
                                          : 0;
    // Shorter vectors for what is left, before single items.
    done += reverse_16(src + bytes - done, dst + done, n * bytes - done, bytes);
    src -= done, dst += done, n -= done / bytes;
  }
#endif
  switch (bytes) {
    case 1: return move_fixed<1>(src, in_step, dst, out_step, n);
    case 2: return move_fixed<2>(src, in_step, dst, out_step, n);
    case 3: return move_fixed<3>(src, in_step, dst, out_step, n);
    case 4: return move_fixed<4>(src, in_step, dst, out_step, n);
    case 6: return move_fixed<6>(src, in_step, dst, out_step, n);
    case 8: return move_fixed<8>(src, in_step, dst, out_step, n);
    case 12: return move_fixed<12>(src, in_step, dst, out_step, n);
    case 16: return move_fixed<16>(src, in_step, dst, out_step, n);
  }
  for (int64_t i = 0; i < n; ++i, src += in_step, dst += out_step) std::memcpy(dst, src, bytes);
}

// Copies rows of items from one array to another. A sample that fills half of an L2 cache is written past the caches: a vertical flip of VGA images
// takes 0.4 ms instead of 1.0.
constexpr int64_t kStreamedBytes = int64_t{1} << 19;

inline bool streams(int64_t output_bytes) {
#if defined(__x86_64__)
  return output_bytes >= kStreamedBytes && cpu_isa() != Isa::base;
#else
  (void)output_bytes;
  return false;
#endif
}

inline void move_streamed(const char* src, int64_t in_step, char* dst, int64_t n, int64_t bytes) {
#if defined(__x86_64__)
  // Items in another order are collected in the L1 cache first: only whole lines bypass the caches.
  if (in_step == bytes) return stream_bytes(src, dst, n * bytes);
  constexpr int64_t kStaged = 4096;
  alignas(64) char staged[kStaged];
  const int64_t chunk = kStaged / bytes;
  for (int64_t i = 0; i < n; i += chunk) {
    const int64_t count = std::min(chunk, n - i);
    move_items(src + i * in_step, in_step, staged, bytes, count, bytes);
    stream_bytes(staged, dst + i * bytes, count * bytes);
  }
#else
  move_items(src, in_step, dst, bytes, n, bytes);
#endif
}

inline void finish_stream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// Splits three-channel uint8 pixels into three rows of normalized floats. `src` is the first pixel of the output; if `mirrored`, the next one lies
// before it.
struct Planes {
  Channel channel[3];
  bool mirrored;

  void pixel(const uint8_t* src, int64_t x, float* const (&dst)[3]) const {
    const uint8_t* from = src + (mirrored ? -3 * x : 3 * x);
    for (int c = 0; c < 3; ++c) dst[c][x] = channel[c](static_cast<float>(from[c]));
  }
};

#if defined(__x86_64__)

// A shuffle of 12 bytes (four pixels) in every 128-bit lane that widens byte c of each pixel to 32 bits.
inline void pixel_order(int c, bool mirrored, int8_t* order, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    const int k = i % 16 / 4, pixel = mirrored ? 3 - k : k;
    order[i] = static_cast<int8_t>(i % 4 == 0 ? 3 * pixel + c : -1);
  }
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) inline void split_avx512(const Planes& planes, const uint8_t* src, int64_t n,
                                                                                       float* const (&dst)[3]) {
  constexpr __mmask16 kAll = 0xffff;  // gcc 12 warns of uninitialized values in the unmasked intrinsics
  alignas(64) int8_t order[64];
  __m512i shuffle[3];
  __m512 mean[3], scale[3], shift[3];
  for (int c = 0; c < 3; ++c) {
    pixel_order(c, planes.mirrored, order, 64);
    shuffle[c] = _mm512_load_si512(order);
    mean[c] = _mm512_set1_ps(planes.channel[c].mean);
    scale[c] = _mm512_set1_ps(planes.channel[c].scale);
    shift[c] = _mm512_set1_ps(planes.channel[c].shift);
  }
  // 12 bytes to each lane, with the lanes reversed if mirrored
  const __m512i spread = planes.mirrored ? _mm512_setr_epi32(9, 10, 11, 0, 6, 7, 8, 0, 3, 4, 5, 0, 0, 1, 2, 0)
                                         : _mm512_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0, 6, 7, 8, 0, 9, 10, 11, 0);
  // The last group overlaps the one before it, so no pixel remains to be computed separately.
  for (int64_t x = 0; x < n; x = x + 32 <= n || x + 16 == n ? x + 16 : n - 16) {
    const __m512i bytes = _mm512_maskz_loadu_epi32(0x0fff, src + (planes.mirrored ? -3 * (x + 15) : 3 * x));
    const __m512i pixels = _mm512_maskz_permutexvar_epi32(kAll, spread, bytes);
    for (int c = 0; c < 3; ++c) {
      const __m512 v = _mm512_maskz_cvtepi32_ps(kAll, _mm512_shuffle_epi8(pixels, shuffle[c]));
      _mm512_storeu_ps(dst[c] + x, _mm512_add_ps(_mm512_mul_ps(_mm512_sub_ps(v, mean[c]), scale[c]), shift[c]));
    }
  }
}

__attribute__((target("avx2"))) inline void split_avx2(const Planes& planes, const uint8_t* src, int64_t n, float* const (&dst)[3]) {
  alignas(32) int8_t order[32];
  __m256i shuffle[3];
  __m256 mean[3], scale[3], shift[3];
  for (int c = 0; c < 3; ++c) {
    pixel_order(c, planes.mirrored, order, 32);
    shuffle[c] = _mm256_load_si256(reinterpret_cast<const __m256i*>(order));
    mean[c] = _mm256_set1_ps(planes.channel[c].mean);
    scale[c] = _mm256_set1_ps(planes.channel[c].scale);
    shift[c] = _mm256_set1_ps(planes.channel[c].shift);
  }
  const __m256i spread = planes.mirrored ? _mm256_setr_epi32(3, 4, 5, 0, 0, 1, 2, 0) : _mm256_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0);
  const __m256i six = _mm256_setr_epi32(-1, -1, -1, -1, -1, -1, 0, 0);
  for (int64_t x = 0; x < n; x = x + 16 <= n || x + 8 == n ? x + 8 : n - 8) {
    const uint8_t* from = src + (planes.mirrored ? -3 * (x + 7) : 3 * x);
    const __m256i pixels = _mm256_permutevar8x32_epi32(_mm256_maskload_epi32(reinterpret_cast<const int*>(from), six), spread);
    for (int c = 0; c < 3; ++c) {
      const __m256 v = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(pixels, shuffle[c]));
      _mm256_storeu_ps(dst[c] + x, _mm256_add_ps(_mm256_mul_ps(_mm256_sub_ps(v, mean[c]), scale[c]), shift[c]));
    }
  }
}

#endif

inline void split_pixels(const Planes& planes, const uint8_t* src, int64_t n, float* const (&dst)[3]) {
#if defined(__x86_64__)
  if (n >= 16 && cpu_isa() == Isa::avx512) return split_avx512(planes, src, n, dst);
  if (n >= 8 && cpu_isa() != Isa::base) return split_avx2(planes, src, n, dst);
#endif
  for (int64_t x = 0; x < n; ++x) planes.pixel(src, x, dst);
}

}  // namespace ndd::slice
