// SPDX-License-Identifier: Apache-2.0
// Bits of a FLAC frame, from the highest bit of each byte, and the Rice codes in them.
#pragma once

#include "ndd/simd.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ndd::flac {

// Behind the end there are zeros: callers compare position() with the size when they have read a frame, and loops over bits are bounded.
// The next bits of the data stand at the top of `buffer_`; refill() adds as many whole bytes as fit.
class BitReader {
 public:
  BitReader(const uint8_t* data, size_t size) : begin_(data), at_(data), end_(data + size) {}

  // Bits that were read, or more than there are.
  // `count_` bits of the bytes that were taken into the buffer are still unread.
  size_t position() const { return static_cast<size_t>(at_ - begin_ + beyond_) * 8 - static_cast<size_t>(count_); }
  bool is_beyond() const { return position() > static_cast<size_t>(end_ - begin_) * 8; }

  // The next `bits` bits, 0 to 32.
  uint32_t read(int bits) {
    refill();
    // In two shifts, because a shift by 64, for bits = 0, is undefined.
    const auto value = static_cast<uint32_t>(buffer_ >> 1 >> (63 - bits));
    drop(bits);
    return value;
  }

  int32_t read_signed(int bits) {
    if (bits == 0) return 0;
    return static_cast<int32_t>(read(bits) << (32 - bits)) >> (32 - bits);
  }

  // Zeros before a one. Returns -1 at the end of the data.
  int64_t read_unary() {
    for (int64_t zeros = 0;;) {
      refill();
      // The added bit gives clz of an empty buffer a defined result.
      const int here = __builtin_clzll(buffer_ | 1);
      if (here < kRefilled) {
        drop(here + 1);
        return zeros + here;
      }
      if (is_beyond()) return -1;
      drop(kRefilled);
      zeros += kRefilled;
    }
  }

  // Reads Rice codes with this parameter, 0 to 30, and calls use(out + i, number) for each in order. Returns false at the end of the data, or for a
  // number beyond 32 bits.
  template <class F>
  NDD_ALWAYS_INLINE bool read_rice(int parameter, int32_t* out, int64_t count, F use) {
    // A group must usually fit into the 56 bits of a refill: a code has parameter + 1 bits and some zeros in front.
    if (parameter <= 8) return read_groups<4>(parameter, out, count, use);
    if (parameter <= 12) return read_groups<3>(parameter, out, count, use);
    return read_groups<2>(parameter, out, count, use);
  }

 private:
  static constexpr int kRefilled = 56;  // bits that are there after refill()

  void drop(int bits) {
    buffer_ <<= bits;
    count_ -= bits;
  }

  NDD_ALWAYS_INLINE void refill() {
    // The common case is one load of 8 bytes, which must lie within the data.
    if (end_ - at_ < 8) return refill_at_end();
    uint64_t next;
    std::memcpy(&next, at_, 8);
    buffer_ |= __builtin_bswap64(next) >> count_;  // bits beyond the count are set again to the same values
    // So many whole bytes were missing; afterwards 56 to 63 bits are there.
    at_ += (63 - count_) >> 3;
    count_ |= kRefilled;
  }

  // Byte by byte, and zeros behind the end. First clears the bits that refill() has set beyond the count.
  void refill_at_end() {
    buffer_ = count_ > 0 ? buffer_ >> (64 - count_) << (64 - count_) : 0;
    for (; count_ <= kRefilled; count_ += 8) {
      if (at_ < end_) buffer_ |= static_cast<uint64_t>(*at_++) << (kRefilled - count_);
      else ++beyond_;
    }
  }

  // Even codes are numbers from 0 up, odd ones from -1 down (RFC 9639, 9.2.7).
  static int32_t unfold(uint32_t code) { return static_cast<int32_t>(code >> 1 ^ (0 - (code & 1))); }

  // A Rice code: the high part in unary, then `parameter` low bits.
  bool read_code(int parameter, int32_t* out) {
    const int64_t high = read_unary();
    if (high < 0 || high >> (32 - parameter) != 0) return false;
    *out = unfold(static_cast<uint32_t>(high) << parameter | read(parameter));
    return true;
  }

  // Reads N codes per refill. If they have more bits than a refill provides, which is rare, reads them again one at a time.
  template <int N, class F>
  NDD_ALWAYS_INLINE bool read_groups(int parameter, int32_t* out, int64_t count, F use) {
    int64_t i = 0;
    for (; i + N <= count && end_ - at_ >= 8; i += N) {
      refill();
      uint64_t bits = buffer_;
      // Works on a copy of the buffer, which is kept only if it held all codes of the group.
      int used = N * (parameter + 1);
      int32_t values[N];
      for (int k = 0; k < N; ++k) {
        const int zeros = __builtin_clzll(bits | 1);
        bits <<= zeros;
        // The one that ends the zeros and the bits behind it are (1 << parameter) + low.
        values[k] = unfold((static_cast<uint32_t>(zeros - 1) << parameter) + static_cast<uint32_t>(bits >> (63 - parameter)));
        bits = bits << 1 << parameter;
        used += zeros;
      }
      if (used <= count_) {
        buffer_ = bits;
        count_ -= used;
        for (int k = 0; k < N; ++k) use(out + i + k, values[k]);
        continue;
      }
      for (int k = 0; k < N; ++k) {
        if (!read_code(parameter, values + k)) return false;
        use(out + i + k, values[k]);
      }
    }
    for (int32_t value; i < count; ++i) {
      if (!read_code(parameter, &value)) return false;
      use(out + i, value);
    }
    return true;
  }

  const uint8_t *begin_, *at_, *end_;
  int64_t beyond_ = 0;  // bytes
  uint64_t buffer_ = 0;
  int count_ = 0;  // bits of the buffer that are taken from the data
};

}  // namespace ndd::flac
