// SPDX-License-Identifier: Apache-2.0
// A row goes through up to three steps: the predictor is undone, numbers of any width are read as integers of 64 bits, and these become samples of
// the output's type, by a table where there are few levels.
#include "decoders/tiff/samples.h"

#include "ndd/half.h"
#include "ndd/same_bits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ndd {
namespace {

// Reads numbers of a fixed number of bits, from the most significant bit of a byte on. Callers ensure that the row has enough bytes.
// Bits wait in `held_`, most significant first. With up to 32 bits per number they fit beside the 7 that may remain of a byte.
class BitReader {
 public:
  // `at`: position of the first number, in bits. `bits` is at most 63: numbers of whole bytes are read without this class.
  BitReader(const uint8_t* row, int64_t at, int64_t bits) : next_(row + at / 8), bits_(bits), mask_((static_cast<uint64_t>(1) << bits) - 1) {
    if (at % 8 == 0) return;
    held_ = *next_++;
    count_ = 8 - at % 8;
  }

  uint64_t read() {
    if (bits_ > 32) return read_long();
    while (count_ < bits_) {
      held_ = held_ << 8 | *next_++;
      count_ += 8;
    }
    count_ -= bits_;
    return held_ >> count_ & mask_;
  }

 private:
  // For numbers that do not fit into 64 bits together with the remainder of a byte.
  uint64_t read_long() {
    uint64_t value = 0;
    for (int64_t left = bits_; left > 0;) {
      if (count_ == 0) {
        held_ = *next_++;
        count_ = 8;
      }
      const int64_t taken = std::min(left, count_);
      count_ -= taken;
      value = value << taken | (held_ >> count_ & ((static_cast<uint64_t>(1) << taken) - 1));
      left -= taken;
    }
    return value;
  }

  const uint8_t* next_;
  const int64_t bits_;
  const uint64_t mask_;
  uint64_t held_ = 0;
  int64_t count_ = 0;  // valid bits in held_
};

float float_of_pattern(uint64_t pattern, int64_t bits) {
  switch (bits) {
    case 16: return detail::half_value(static_cast<uint16_t>(pattern));
    // As in the IEEE formats, the exponent 0 is for subnormal numbers and the largest one for infinity and NaN; the bias is 63.
    case 24: {  // sign, 7 bits of exponent, 16 of mantissa: TIFF Technical Note 3
      const int exponent = static_cast<int>(pattern >> 16 & 0x7f);
      const double mantissa = static_cast<double>(pattern & 0xffff) / 65536;
      const double size = exponent == 0     ? std::ldexp(mantissa, -62)
                          : exponent < 0x7f ? std::ldexp(1 + mantissa, exponent - 63)
                          : mantissa == 0   ? std::numeric_limits<double>::infinity()
                                            : std::numeric_limits<double>::quiet_NaN();
      return static_cast<float>(pattern >> 23 & 1 ? -size : size);
    }
    case 32: return same_bits<float>(static_cast<uint32_t>(pattern));
    default: return static_cast<float>(same_bits<double>(pattern));
  }
}

// Integers become fractions of their range, as in all decoders.
float fraction_of(uint64_t pattern, int64_t bits, TiffSampleKind kind) {
  if (kind == TiffSampleKind::floating) return float_of_pattern(pattern, bits);
  if (kind == TiffSampleKind::whole) return static_cast<float>(static_cast<double>(pattern) / (std::ldexp(1.0, static_cast<int>(bits)) - 1));
  // Extends the sign.
  const auto number = static_cast<int64_t>(pattern << (64 - bits)) >> (64 - bits);
  // A sample of one bit with a sign is 0 or -1.
  const double largest = bits == 1 ? 1 : std::ldexp(1.0, static_cast<int>(bits) - 1) - 1;
  return static_cast<float>(static_cast<double>(number) / largest);
}

// Scales a number of `bits` bits to the full range of T, rounding to nearest.
template <class T>
uint64_t scale(uint64_t value, int64_t bits) {
  constexpr uint64_t full = std::numeric_limits<T>::max();
  const uint64_t largest = (static_cast<uint64_t>(1) << bits) - 1;
  return largest == full ? value : (value * full + largest / 2) / largest;
}

}  // namespace

RowUnpacker::RowUnpacker(const TiffImage& image, bool scaled) : image_(image), scaled_(scaled), little_(image.tags.little_endian()) {
  if (image.predictor == 3) little_ = false;  // undo_predictor() delivers big-endian samples
  // Tables for the depths where scaling takes a division: up to 15 bits, apart from 8, which need no scaling.
  if (!scaled || image.bits >= 16 || image.bits == 8 || image.kind != TiffSampleKind::whole) return;
  levels_.resize(static_cast<size_t>(1) << image.bits);
  for (size_t i = 0; i < levels_.size(); ++i) {
    levels_[i] = image.bits < 8 ? static_cast<uint16_t>(scale<uint8_t>(i, image.bits)) : static_cast<uint16_t>(scale<uint16_t>(i, image.bits));
  }
}

template <class T>
T RowUnpacker::sample_of(uint64_t pattern) const {
  if constexpr (std::is_floating_point_v<T>) {
    return fraction_of(pattern, image_.bits, image_.kind);
  } else {
    if (!levels_.empty()) return static_cast<T>(levels_[pattern]);
    return static_cast<T>(scaled_ ? scale<T>(pattern, image_.bits) : pattern);
  }
}

void RowUnpacker::undo_predictor(const uint8_t* row) {
  const int64_t samples = image_.samples_in_piece(), count = image_.piece_width * samples;
  const size_t bytes = static_cast<size_t>(image_.bits / 8), size = static_cast<size_t>(image_.packed_row_bytes());
  differences_.assign(row, row + size);
  uint8_t* p = differences_.data();
  // Horizontal differencing (TIFF 6.0, section 14): each sample is stored as its difference from the same sample of the pixel to the left, modulo
  // the range of its type.
  if (image_.predictor == 2) {
    for (int64_t i = samples; i < count; ++i) {
      uint8_t* sample = p + static_cast<size_t>(i) * bytes;
      const uint8_t* before = sample - static_cast<size_t>(samples) * bytes;
      write_number(sample, bytes, little_, read_number(sample, bytes, little_) + read_number(before, bytes, little_));
    }
    return;
  }
  // Floating-point predictor (Technical Note 3): a row holds the most significant bytes of all samples, then the next ones, and so on, all
  // as differences.
  // The differences are of bytes, at the distance of one pixel's samples.
  for (size_t i = static_cast<size_t>(samples); i < size; ++i) p[i] = static_cast<uint8_t>(p[i] + p[i - static_cast<size_t>(samples)]);
  // Back from planes of bytes to samples, whose most significant byte comes first.
  const std::vector<uint8_t> planes = differences_;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    for (size_t b = 0; b < bytes; ++b) p[i * bytes + b] = planes[b * static_cast<size_t>(count) + i];
  }
}

// Samples of whole bytes are numbers in the file's byte order; all others are a string of bits without gaps between pixels.
template <class T>
void RowUnpacker::unpack_samples(const uint8_t* row, int64_t first, int64_t count, T* out) const {
  const int64_t bits = image_.bits, bytes = bits / 8;
  if (sizeof(T) == 1 && bits == 8) {
    std::memcpy(out, row + first, static_cast<size_t>(count));
  } else if (bits % 8 == 0) {
    const uint8_t* p = row + first * bytes;
    for (int64_t i = 0; i < count; ++i, p += bytes) out[i] = sample_of<T>(read_number(p, static_cast<size_t>(bytes), little_));
  } else {
    BitReader reader(row, first * bits, bits);
    for (int64_t i = 0; i < count; ++i) out[i] = sample_of<T>(reader.read());
  }
}

template <class T>
void RowUnpacker::unpack_pixels(const uint8_t* row, int64_t first, int64_t pixels, T* out, int64_t step) {
  const int64_t samples = image_.samples_in_piece();
  // Samples are adjacent in the output, too; otherwise they are only some of a pixel's channels, one plane at a time.
  if (step == samples) return unpack_samples(row, first * samples, pixels * samples, out);
  dense_.resize(static_cast<size_t>(pixels * samples) * sizeof(T));
  T* dense = reinterpret_cast<T*>(dense_.data());
  unpack_samples(row, first * samples, pixels * samples, dense);
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t s = 0; s < samples; ++s) out[i * step + s] = dense[i * samples + s];
  }
}

void RowUnpacker::unpack_blocks(const uint8_t* row, int64_t row_in_block, int64_t first, int64_t pixels, uint8_t* out, int64_t step) const {
  // A block stores luma row by row, then Cb and Cr. Chroma is repeated, not interpolated.
  const int64_t wide = image_.chroma_x, luma = wide * image_.chroma_y;
  for (int64_t i = 0; i < pixels; ++i, out += step) {
    const int64_t x = first + i;
    const uint8_t* block = row + x / wide * image_.block_bytes();
    // Y, Cb and Cr; TiffColorConverter makes RGB of them.
    out[0] = block[row_in_block * wide + x % wide];
    out[1] = block[luma];
    out[2] = block[luma + 1];
  }
}

void RowUnpacker::unpack(const uint8_t* row, int64_t row_in_block, int64_t first, int64_t pixels, void* out, int64_t step) {
  if (image_.has_blocks()) return unpack_blocks(row, row_in_block, first, pixels, static_cast<uint8_t*>(out), step);
  if (image_.predictor != 1) {
    undo_predictor(row);
    row = differences_.data();
  }
  switch (image_.dtype()) {
    case DType::uint8: return unpack_pixels(row, first, pixels, static_cast<uint8_t*>(out), step);
    case DType::uint16: return unpack_pixels(row, first, pixels, static_cast<uint16_t*>(out), step);
    case DType::uint32: return unpack_pixels(row, first, pixels, static_cast<uint32_t*>(out), step);
    default: return unpack_pixels(row, first, pixels, static_cast<float*>(out), step);
  }
}

}  // namespace ndd
