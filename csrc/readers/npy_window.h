// SPDX-License-Identifier: Apache-2.0
// Windows of arrays in .npy files: computing them from the arguments of the reader, and reading them.
#pragma once

#include <cstdint>
#include <vector>

#include "decoders/npy/npy_header.h"
#include "ndd/python_interface.h"
#include "readers/open_files.h"

namespace ndd {

// One limit of a window, for some axes.
struct NpyLimit {
  std::vector<double> values;  // empty: not set; one value: for all axes
  bool relative = false;       // to the extents
};

struct NpyRoi {
  NDD_PLAIN_ENUM("numpy.Policy", Policy, int, error, pad, trim_to_shape);

  NpyLimit start, end;
  bool is_shape = false;  // `end` counts from the start
  std::vector<int64_t> axes;
  bool has_axes = false;
  Policy policy = error;
  bool is_set() const { return !start.values.empty() || !end.values.empty(); }
};

struct NpyWindow {
  std::vector<int64_t> start, extent;
  int64_t volume = 1;
};

// Computes the window of an array. Throws Error if it is not valid for the array.
NpyWindow npy_window(const NpyHeader& header, const NpyRoi& roi);
// Fills `out` with the window in C order, and with `fill` outside the array.
void read_npy_window(const OpenFile& file, const NpyHeader& header, const NpyWindow& window, float fill, char* out);

}  // namespace ndd
