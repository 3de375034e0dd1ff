// SPDX-License-Identifier: Apache-2.0
// Images that lie decoded in GPU memory and take part in a call as if they were encoded files: JPEG 2000, whose decoding Python begins, because
// only Python can decode what the GPU refuses. Such a file holds a token, and not an address, because a file of a user may look like one.
#pragma once

#include "decoders/image_decoder.h"

#include <cstdint>
#include <optional>

namespace ndd {

inline constexpr const char* kDeviceCodec = "device";

// Dense rows of interleaved samples, as decoded on the stream of the call.
struct DeviceImage {
  const void* data;
  int64_t height, width, channels, bits;
};

bool is_device_image(const EncodedImage& image);
// Looks an image up by the token in its file; the rest of the file is not read. Throws Error if no image has this token.
DeviceImage find_device_image(const EncodedImage& image);
ImageHeader header_of_device_image(const DeviceImage& image);

}  // namespace ndd
