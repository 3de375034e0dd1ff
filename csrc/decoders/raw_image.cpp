// SPDX-License-Identifier: Apache-2.0
// The samples are rows without padding and begin right after the prefix.
#include "decoders/raw_image.h"

#include "decoders/decoded_pixels.h"
#include "ndd/error.h"

#include <cstring>

namespace ndd {
namespace {

// Written by torch_ndd/decoders/_raw.py: little-endian, followed by dense rows of interleaved samples. Checked like any other header,
// because a file of a user may begin with these bytes too.
struct Prefix {
  char magic[8];
  int64_t height, width, channels, bits;
};

constexpr char kMagic[8] = {'\x89', 'N', 'D', 'D', 'R', 'A', 'W', '\n'};

}  // namespace

bool is_raw_image(const EncodedImage& image) { return image.size >= sizeof(Prefix) && !std::memcmp(image.data, kMagic, sizeof kMagic); }

ImageHeader read_raw_header(const EncodedImage& image) {
  Prefix prefix;
  std::memcpy(&prefix, image.data, sizeof prefix);
  ImageHeader header{};
  header.height = prefix.height;
  header.width = prefix.width;
  header.channels = static_cast<int>(prefix.channels);
  header.dtype = prefix.bits == 8 ? DType::uint8 : DType::uint16;
  header.codec = kRawCodec;
  const int64_t limit = static_cast<int64_t>(1) << 20;
  // With these bounds the product of all has at most 54 bits.
  const bool sane = prefix.height > 0 && prefix.height < limit && prefix.width > 0 && prefix.width < limit && prefix.channels > 0 &&
                    prefix.channels < 1024 && (prefix.bits == 8 || prefix.bits == 16) &&
                    static_cast<uint64_t>(prefix.height * prefix.width * prefix.channels * prefix.bits / 8) == image.size - sizeof prefix;
  if (!sane) fail("the file is damaged");
  return header;
}

void convert_raw_image(const EncodedImage& image, const ImageHeader& header, const DecodeOptions& options, void* out, DType out_dtype) {
  const ImageShape shape = decoded_shape(header, options);
  const CropWindow window = options.window ? *options.window : CropWindow{0, 0, shape.height, shape.width};
  const int64_t pixel_bytes = static_cast<int64_t>(header.channels) * static_cast<int64_t>(item_bytes(header.dtype));
  const int64_t out_row = shape.width * shape.channels * static_cast<int64_t>(item_bytes(out_dtype));
  const uint8_t* samples = image.data + sizeof(Prefix);
  for (int64_t y = 0; y < shape.height; ++y) {
    const uint8_t* row = samples + ((window.y + y) * header.width + window.x) * pixel_bytes;
    convert_pixels({row, header.dtype, shape.width, header.channels}, options.type, static_cast<int>(shape.channels),
                   static_cast<uint8_t*>(out) + y * out_row, out_dtype);
  }
}

}  // namespace ndd
