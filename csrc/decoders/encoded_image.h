// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace ndd {

// A file in memory.
struct EncodedImage {
  const uint8_t* data;
  size_t size;
};

}  // namespace ndd
