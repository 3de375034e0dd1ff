// SPDX-License-Identifier: Apache-2.0
// Windows of arrays in .npy files: which one, and reading it.
#pragma once

#include <cstdint>
#include <vector>

#include "decoders/npy/npy_header.h"
#include "ndd/python_interface.h"
#include "readers/open_files.h"

namespace ndd {

// One of the limits of a window, for some axes.
struct NpyLimit {
  std::vector<double> values;  // none: not given; one: for all axes
  bool relative = false;       // to the extents
};

struct NpyRoi {
  NDD_PLAIN_ENUM("numpy.Policy", Policy, int, error, pad, trim_to_shape);

  NpyLimit start, end;
  bool is_shape = false;  // `end` counts from the start
  std::vector<int64_t> axes;
  bool has_axes = false;
  Policy policy = error;
  bool given() const { return !start.values.empty() || !end.values.empty(); }
};

struct NpyWindow {
  std::vector<int64_t> start, extent;
  int64_t volume = 1;
};

// Error for a window that cannot be.
NpyWindow npy_window(const NpyHeader& header, const NpyRoi& roi);
// Fills `out` with the window in C order; what lies outside of the array with `fill`.
void read_npy_window(const OpenFile& file, const NpyHeader& header, const NpyWindow& window, float fill, char* out);

}  // namespace ndd
