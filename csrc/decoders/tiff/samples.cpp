// SPDX-License-Identifier: Apache-2.0
#include "decoders/tiff/samples.h"

#include "ndd/half.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ndd {
namespace {

uint64_t read_number(const uint8_t* p, size_t bytes, bool little) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value = value << 8 | p[little ? bytes - 1 - i : i];
  return value;
}

void write_number(uint8_t* p, size_t bytes, bool little, uint64_t value) {
  for (size_t i = 0; i < bytes; ++i, value >>= 8) p[little ? i : bytes - 1 - i] = static_cast<uint8_t>(value);
}

// From the most significant bit on.
uint64_t read_bits(const uint8_t* row, int64_t at, int64_t bits) {
  uint64_t value = 0;
  while (bits > 0) {
    const int64_t left = 8 - at % 8, taken = std::min(left, bits);
    const uint64_t part = row[at / 8] >> (left - taken) & ((1 << taken) - 1);
    value = value << taken | part;
    at += taken;
    bits -= taken;
  }
  return value;
}

float float_of_pattern(uint64_t pattern, int64_t bits) {
  switch (bits) {
    case 16: return detail::half_value(static_cast<uint16_t>(pattern));
    case 24: {  // a sign, 7 bits of exponent, 16 of mantissa
      const int exponent = static_cast<int>(pattern >> 16 & 0x7f);
      const double mantissa = static_cast<double>(pattern & 0xffff) / 65536;
      const double size = exponent == 0     ? std::ldexp(mantissa, -62)
                          : exponent < 0x7f ? std::ldexp(1 + mantissa, exponent - 63)
                          : mantissa == 0   ? std::numeric_limits<double>::infinity()
                                            : std::numeric_limits<double>::quiet_NaN();
      return static_cast<float>(pattern >> 23 & 1 ? -size : size);
    }
    case 32: {
      const auto single = static_cast<uint32_t>(pattern);
      float value;
      std::memcpy(&value, &single, sizeof value);
      return value;
    }
    default: {
      double value;
      std::memcpy(&value, &pattern, sizeof value);
      return static_cast<float>(value);
    }
  }
}

// Fractions of the type's range, as everywhere in this library.
float fraction_of(uint64_t pattern, int64_t bits, TiffSampleKind kind) {
  if (kind == TiffSampleKind::floating) return float_of_pattern(pattern, bits);
  if (kind == TiffSampleKind::whole) return static_cast<float>(static_cast<double>(pattern) / (std::ldexp(1.0, static_cast<int>(bits)) - 1));
  const auto number = static_cast<int64_t>(pattern << (64 - bits)) >> (64 - bits);
  const double largest = bits == 1 ? 1 : std::ldexp(1.0, static_cast<int>(bits) - 1) - 1;
  return static_cast<float>(static_cast<double>(number) / largest);
}

}  // namespace

RowUnpacker::RowUnpacker(const TiffImage& image, bool scaled) : image_(image), scaled_(scaled), little_(image.tags.little_endian()) {
  if (image.predictor == 3) little_ = false;  // `undo_predictor` writes them so
}

void RowUnpacker::undo_predictor(const uint8_t* row) {
  const int64_t samples = image_.samples_in_piece(), count = image_.piece_width * samples;
  const size_t bytes = static_cast<size_t>(image_.bits / 8), size = static_cast<size_t>(image_.packed_row_bytes());
  differences_.assign(row, row + size);
  uint8_t* p = differences_.data();
  if (image_.predictor == 2) {
    for (int64_t i = samples; i < count; ++i) {
      uint8_t* sample = p + static_cast<size_t>(i) * bytes;
      const uint8_t* before = sample - static_cast<size_t>(samples) * bytes;
      write_number(sample, bytes, little_, read_number(sample, bytes, little_) + read_number(before, bytes, little_));
    }
    return;
  }
  // Differences of bytes: first all most significant ones of the row, and so on.
  for (size_t i = static_cast<size_t>(samples); i < size; ++i) p[i] = static_cast<uint8_t>(p[i] + p[i - static_cast<size_t>(samples)]);
  const std::vector<uint8_t> planes = differences_;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    for (size_t b = 0; b < bytes; ++b) p[i * bytes + b] = planes[b * static_cast<size_t>(count) + i];
  }
}

template <class T>
void RowUnpacker::unpack_samples(const uint8_t* row, int64_t first, int64_t count, T* out) const {
  const int64_t bits = image_.bits;
  const bool whole_bytes = bits % 8 == 0;
  const auto pattern = [&](int64_t i) {
    const int64_t at = first + i;
    return whole_bytes ? read_number(row + at * (bits / 8), static_cast<size_t>(bits / 8), little_) : read_bits(row, at * bits, bits);
  };
  if constexpr (std::is_floating_point_v<T>) {
    for (int64_t i = 0; i < count; ++i) out[i] = fraction_of(pattern(i), bits, image_.kind);
  } else {
    constexpr uint64_t full = std::numeric_limits<T>::max();
    const uint64_t largest = (static_cast<uint64_t>(1) << bits) - 1;
    if (sizeof(T) == 1 && bits == 8) {
      std::memcpy(out, row + first, static_cast<size_t>(count));
    } else if (!scaled_ || largest == full) {
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(pattern(i));
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>((pattern(i) * full + largest / 2) / largest);
    }
  }
}

template <class T>
void RowUnpacker::unpack_pixels(const uint8_t* row, int64_t first, int64_t pixels, T* out, int64_t step) {
  const int64_t samples = image_.samples_in_piece();
  if (step == samples) return unpack_samples(row, first * samples, pixels * samples, out);
  dense_.resize(static_cast<size_t>(pixels * samples) * sizeof(T));
  T* dense = reinterpret_cast<T*>(dense_.data());
  unpack_samples(row, first * samples, pixels * samples, dense);
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t s = 0; s < samples; ++s) out[i * step + s] = dense[i * samples + s];
  }
}

void RowUnpacker::unpack_blocks(const uint8_t* row, int64_t row_in_block, int64_t first, int64_t pixels, uint8_t* out, int64_t step) const {
  const int64_t wide = image_.chroma_x, luma = wide * image_.chroma_y;
  for (int64_t i = 0; i < pixels; ++i, out += step) {
    const int64_t x = first + i;
    const uint8_t* block = row + x / wide * image_.block_bytes();
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
