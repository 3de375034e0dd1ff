// SPDX-License-Identifier: Apache-2.0
// All conversions go through rows of float: one loop for each color conversion instead of one for each pair of types.
#include "decoders/decoded_pixels.h"

#include "decoders/pixel_colors.h"
#include "ndd/error.h"

#include <algorithm>
#include <cstring>

namespace ndd {
namespace {

// Samples are copied out because they may be unaligned; compilers turn the copy into a load.
template <class T>
void load(const void* in, float* out, int64_t n) {
  const auto* bytes = static_cast<const uint8_t*>(in);
  for (int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    out[i] = as_fraction(value);
  }
}

// The types that decoders deliver.
void load(DType dtype, const void* in, float* out, int64_t n) {
  switch (dtype) {
    case DType::uint8: return load<uint8_t>(in, out, n);
    case DType::uint16: return load<uint16_t>(in, out, n);
    case DType::uint32: return load<uint32_t>(in, out, n);
    case DType::float32: return load<float>(in, out, n);
    default: fail("decoders.image: unexpected type of decoded samples");
  }
}

template <class T>
void store(const float* in, void* out, int64_t n) {
  T* __restrict values = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) values[i] = of_fraction<T>(in[i]);
}

void store(DType dtype, const float* in, void* out, int64_t n) {
  for_dtype(dtype, [&](auto tag) { store<typename decltype(tag)::type>(in, out, n); });
}

void gray_of(const float* in, int channels, float levels, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i, in += channels) out[i] = gray_of_pixel(in, channels, levels);
}

void ycbcr_of(const float* in, int channels, float offset, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i, in += channels, out += 3) ycbcr_of_pixel(in, channels, offset, out);
}

// The offset of luma in the studio range (16 of 256 levels), at the scale of the output type.
float studio_offset_of(DType out_dtype) {
  float offset = 0;
  for_dtype(out_dtype, [&](auto tag) { offset = studio_offset<typename decltype(tag)::type>(); });
  return offset;
}

// Sets output channel c to input channel `source[c]`.
void pick_channels(const float* in, int channels, const int* source, int out_channels, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i, in += channels) {
    for (int c = 0; c < out_channels; ++c) *out++ = in[source[c]];
  }
}

void recolor(const float* in, const DecodedPixels& pixels, ImageType type, int out_channels, DType out_dtype, float* out, int64_t n) {
  const int channels = pixels.channels;
  // Gray images, with or without alpha, repeat their only color in all three.
  const int green = channels < 3 ? 0 : 1, blue = channels < 3 ? 0 : 2;
  switch (type) {
    case ImageType::gray: return gray_of(in, channels, gray_levels(pixels.dtype), out, n);
    case ImageType::ycbcr: return ycbcr_of(in, channels, studio_offset_of(out_dtype), out, n);
    case ImageType::rgb: {
      const int source[] = {0, green, blue};
      return pick_channels(in, channels, source, out_channels, out, n);
    }
    case ImageType::bgr: {
      const int source[] = {blue, green, 0};
      return pick_channels(in, channels, source, out_channels, out, n);
    }
    // Only reached if the number of channels differs.
    case ImageType::any: {
      const int source[] = {0, channels - 1};  // gray and alpha, which the codec delivers as RGBA
      return pick_channels(in, channels, source, out_channels, out, n);
    }
  }
}

}  // namespace

void convert_pixels(const DecodedPixels& in, ImageType type, int out_channels, void* out, DType out_dtype) {
  const bool same_channels = type == ImageType::any && in.channels == out_channels;
  if (same_channels && in.dtype == out_dtype) {
    std::memcpy(out, in.data, static_cast<size_t>(in.count) * static_cast<size_t>(in.channels) * item_bytes(in.dtype));
    return;
  }
  // Convert through floats, one block at a time: one loop for each input type and one for each output type instead of one for each pair,
  // and the block stays in the first-level cache.
  constexpr int64_t kBlock = 1024;
  float loaded[kBlock], recolored[kBlock];
  const int64_t step = kBlock / std::max(in.channels, out_channels);
  if (step < 1) fail("decoders.image: too many channels");
  const auto* source = static_cast<const uint8_t*>(in.data);
  auto* target = static_cast<uint8_t*>(out);
  const size_t in_pixel = static_cast<size_t>(in.channels) * item_bytes(in.dtype),
               out_pixel = static_cast<size_t>(out_channels) * item_bytes(out_dtype);
  for (int64_t i = 0; i < in.count; i += step) {
    const int64_t n = std::min(step, in.count - i);
    load(in.dtype, source + static_cast<size_t>(i) * in_pixel, loaded, n * in.channels);
    if (!same_channels) recolor(loaded, in, type, out_channels, out_dtype, recolored, n);
    store(out_dtype, same_channels ? loaded : recolored, target + static_cast<size_t>(i) * out_pixel, n * out_channels);
  }
}

}  // namespace ndd
