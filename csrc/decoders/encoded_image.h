// SPDX-License-Identifier: Apache-2.0
// A file in memory, and numbers in it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ndd {

struct EncodedImage {
  const uint8_t* data;
  size_t size;
};

// The caller has checked that the bytes lie within the file.
inline uint32_t big16(const uint8_t* p) { return static_cast<uint32_t>(p[0]) << 8 | p[1]; }
inline uint32_t big32(const uint8_t* p) { return big16(p) << 16 | big16(p + 2); }
inline uint32_t little16(const uint8_t* p) { return static_cast<uint32_t>(p[1]) << 8 | p[0]; }
inline uint32_t little24(const uint8_t* p) { return static_cast<uint32_t>(p[2]) << 16 | little16(p); }
inline uint32_t little32(const uint8_t* p) { return little16(p + 2) << 16 | little16(p); }

}  // namespace ndd
