// SPDX-License-Identifier: Apache-2.0
// The header of an .npy file: magic, version, length, and a Python dict as text. Shared by decoders.numpy and the reader of .npy files.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ndd/dtypes.h"

namespace ndd {

struct NpyHeader {
  DType dtype = DType::uint8;
  int64_t item_bytes = 1;
  bool swapped = false;        // big-endian
  bool fortran_order = false;  // the first axis is the contiguous one
  std::vector<int64_t> shape;
  int64_t data = 0;  // offset of the elements
  int64_t volume = 1;
};

// Offset and length of the dict.
// `bytes` is where the dict begins: 10 or 12.
struct NpyPrefix {
  int64_t bytes, length;
};

// Parse the beginning of a file (`available` bytes are in memory) and the dict. Throw Error for damaged and for unsupported headers.
NpyPrefix parse_npy_prefix(const char* file, int64_t available);
NpyHeader parse_npy_header(std::string_view dict);

// Reverses the bytes of each item, in place.
void swap_bytes(char* data, int64_t items, int64_t item_bytes);

}  // namespace ndd
