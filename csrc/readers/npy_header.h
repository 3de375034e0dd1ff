// SPDX-License-Identifier: Apache-2.0
// The header of a .npy file: magic, version, length, and a dict of Python in text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ndd/dtypes.h"
#include "readers/open_files.h"

namespace ndd {

struct NpyHeader {
  DType dtype = DType::uint8;
  int64_t item_bytes = 1;
  bool swapped = false;        // big-endian
  bool fortran_order = false;  // the first axis is the contiguous one
  std::vector<int64_t> shape;
  int64_t data = 0;  // where the elements begin
  int64_t volume = 1;
};

// std::runtime_error says what is wrong, or what is not supported.
NpyHeader read_npy_header(const OpenFile& file);
// The dict alone.
NpyHeader parse_npy_header(std::string_view text);

}  // namespace ndd
