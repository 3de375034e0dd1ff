// SPDX-License-Identifier: Apache-2.0
// First the window in elements, which may leave the array where it is padded; then the bytes that it takes, in the order of the file, which may
// be Fortran's.
#include "readers/npy_window.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "ndd/elementwise/saturate.h"
#include "ndd/error.h"

namespace ndd {
namespace {

// Gaps of up to so many bytes are read too: some more pages cost less than another system call.
constexpr int64_t kMaxGap = 64 << 10;
constexpr int64_t kTile = 32;  // elements along each side

// Returns the axes to which the limits refer: all, or those of the argument, counted from the end if negative.
std::vector<int64_t> find_axes(const NpyRoi& roi, int64_t ndim) {
  std::vector<int64_t> axes;
  if (!roi.has_axes) {
    for (int64_t axis = 0; axis < ndim; ++axis) axes.push_back(axis);
    return axes;
  }
  for (const int64_t axis : roi.axes) {
    if (axis < -ndim || axis >= ndim) fail("roi_axes: axis ", axis, " is out of range for ", ndim, " dimensions");
    const int64_t positive = axis < 0 ? axis + ndim : axis;
    if (std::find(axes.begin(), axes.end(), positive) != axes.end()) fail("roi_axes: axis ", positive, " occurs twice");
    axes.push_back(positive);
  }
  return axes;
}

// Returns limit k in elements. DALI multiplies floats, unless it adds two relative limits: as slice does (ops/geometry/windows.cpp).
double value_of(const NpyLimit& limit, size_t k, size_t axes, int64_t extent, bool in_double) {
  if (limit.values.size() != 1 && limit.values.size() != axes) {
    fail("the ROI has ", limit.values.size(), " values for ", axes, " axes");
  }
  double value = limit.values[limit.values.size() == 1 ? 0 : k];
  if (limit.relative)
    value = in_double ? value * static_cast<double>(extent) : static_cast<double>(static_cast<float>(value) * static_cast<float>(extent));
  // Below 2^53, so rounding to an integer is exact; also false for NaN.
  if (!(std::abs(value) < 9e15)) fail("the ROI must be finite");
  return value;
}

// Copies strided elements. Axes are ordered from the outermost to the innermost; the last two are traversed in tiles, so an array in
// Fortran order does not cause a cache miss for each element.
template <class T>
void copy_axes(const T* in, const int64_t* in_strides, T* out, const int64_t* out_strides, const int64_t* extents, int64_t ndim) {
  if (ndim == 0) {
    *out = *in;
  } else if (ndim == 1) {
    for (int64_t i = 0; i < extents[0]; ++i) out[i * out_strides[0]] = in[i * in_strides[0]];
  } else if (ndim == 2) {
    for (int64_t i = 0; i < extents[0]; i += kTile) {
      for (int64_t j = 0; j < extents[1]; j += kTile) {
        for (int64_t y = i; y < std::min(i + kTile, extents[0]); ++y) {
          for (int64_t x = j; x < std::min(j + kTile, extents[1]); ++x)
            out[y * out_strides[0] + x * out_strides[1]] = in[y * in_strides[0] + x * in_strides[1]];
        }
      }
    }
  } else {
    for (int64_t i = 0; i < extents[0]; ++i)
      copy_axes(in + i * in_strides[0], in_strides + 1, out + i * out_strides[0], out_strides + 1, extents + 1, ndim - 1);
  }
}

// Reads a window of an array; the axes are in the order of the file. Whether a window is read with one call, with its gaps, or row by row,
// is decided for each axis from the outermost on.
class Reading {
 public:
  Reading(const OpenFile& file, const NpyHeader& header, std::vector<int64_t> shape, std::vector<int64_t> begin, std::vector<int64_t> extent,
          std::vector<int64_t> out_strides)
      : file_(file), header_(header), begin_(std::move(begin)), extent_(std::move(extent)), out_strides_(std::move(out_strides)),
        strides_(shape.size()) {
    int64_t stride = 1;
    // C order: the last axis is contiguous. Callers reverse the axes of arrays in Fortran order.
    for (size_t k = shape.size(); k-- > 0; stride *= shape[k]) strides_[k] = stride;
  }

  // Reads the axes from `axis` on. `at` is the offset in the array in elements, `out` the place of the first element.
  void read(size_t axis, int64_t at, char* out) {
    const size_t ndim = extent_.size();
    // The smallest range of the file with all elements of the window is [first, last]; `needed` of its `span` elements belong to the window.
    int64_t last = 0, needed = 1, first = 0;
    bool in_order = true;
    int64_t out_stride = 1;
    for (size_t k = ndim; k-- > axis;) {
      first += begin_[k] * strides_[k];
      last += (begin_[k] + extent_[k] - 1) * strides_[k];
      in_order = in_order && (extent_[k] == 1 || out_strides_[k] == out_stride);
      needed *= extent_[k];
      out_stride *= extent_[k];
    }
    const int64_t item = header_.item_bytes, span = last - first + 1;
    // Without gaps and in the output's order: straight to the output.
    if (span == needed && in_order) {
      file_.read(out, header_.data + (at + first) * item, span * item);
      if (header_.swapped) swap_bytes(out, span, item);
      // Few gaps: one read into scratch memory, from which the elements are copied.
    } else if ((span - needed) * item <= kMaxGap || span <= 2 * needed) {
      scratch_.resize(span * item);
      file_.read(scratch_.data(), header_.data + (at + first) * item, span * item);
      if (header_.swapped) swap_bytes(scratch_.data(), span, item);
      copy(axis, out);
    } else {
      // Many gaps: each slice of the outermost axis decides for itself.
      for (int64_t i = 0; i < extent_[axis]; ++i) read(axis + 1, at + (begin_[axis] + i) * strides_[axis], out + i * out_strides_[axis] * item);
    }
  }

 private:
  void copy(size_t axis, char* out) const {
    switch (header_.item_bytes) {
      case 1: return copy_items<uint8_t>(axis, out);
      case 2: return copy_items<uint16_t>(axis, out);
      case 4: return copy_items<uint32_t>(axis, out);
      default: return copy_items<uint64_t>(axis, out);
    }
  }

  template <class T>
  void copy_items(size_t axis, char* out) const {
    // The innermost axes are the one that is contiguous in the file and the one that is contiguous in the output; if they differ, they form
    // the tiles.
    std::vector<size_t> order;
    for (size_t k = axis; k < extent_.size(); ++k) order.push_back(k);
    if (order.size() > 2) {
      // The last axis is contiguous in the file; the one with the smallest step in the output comes second to last.
      const auto smallest = std::min_element(order.begin(), order.end() - 1, [&](size_t a, size_t b) { return out_strides_[a] < out_strides_[b]; });
      std::rotate(smallest, smallest + 1, order.end() - 1);
    }
    std::vector<int64_t> in_strides, out_strides, extents;
    for (const size_t k : order) {
      in_strides.push_back(strides_[k]);
      out_strides.push_back(out_strides_[k]);
      extents.push_back(extent_[k]);
    }
    copy_axes(reinterpret_cast<const T*>(scratch_.data()), in_strides.data(), reinterpret_cast<T*>(out), out_strides.data(), extents.data(),
              static_cast<int64_t>(order.size()));
  }

  const OpenFile& file_;
  const NpyHeader& header_;
  const std::vector<int64_t> begin_, extent_, out_strides_;
  std::vector<int64_t> strides_;
  std::vector<char> scratch_;
};

void fill_with(DType dtype, float value, char* out, int64_t items) {
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::fill_n(reinterpret_cast<T*>(out), items, saturate<T>(value));
  });
}

}  // namespace

NpyWindow npy_window(const NpyHeader& header, const NpyRoi& roi) {
  const auto ndim = static_cast<int64_t>(header.shape.size());
  NpyWindow window{std::vector<int64_t>(static_cast<size_t>(ndim)), header.shape, header.volume};
  if (!roi.is_set() || ndim == 0) return window;
  const auto axes = find_axes(roi, ndim);
  for (size_t k = 0; k < axes.size(); ++k) {
    const auto axis = static_cast<size_t>(axes[k]);
    const int64_t length = header.shape[axis];
    const bool is_sum = roi.is_shape && roi.start.relative && roi.end.relative;
    const auto start = [&](bool in_double) { return roi.start.values.empty() ? 0.0 : value_of(roi.start, k, axes.size(), length, in_double); };
    const double begin = start(false);
    // Limits that are missing are those of the array.
    double end = roi.end.values.empty() ? static_cast<double>(length) : value_of(roi.end, k, axes.size(), length, is_sum);
    // Added before rounding, as fractions of both may sum up to a whole element.
    if (roi.is_shape) {
      if (end < 0) fail("the shape of the ROI must not be negative");
      end += start(is_sum);
    }
    int64_t first = std::llround(begin), last = std::llround(end);
    const auto text = "the ROI [" + std::to_string(first) + ", " + std::to_string(last) + ") of axis " + std::to_string(axis);
    if (end < begin) fail(text, " ends before its start");
    if (roi.policy == NpyRoi::trim_to_shape) {
      first = std::clamp<int64_t>(first, 0, length);
      last = std::clamp<int64_t>(last, 0, length);
    } else if (roi.policy == NpyRoi::error && (first < 0 || last > length)) {
      fail(text, " leaves the extent ", length, "; out_of_bounds_policy=\"pad\" or \"trim_to_shape\" allows it");
    }
    window.start[axis] = first;
    window.extent[axis] = last - first;
  }
  // Bounded as in parse_npy_header(): sizes in bytes cannot overflow.
  window.volume = 1;
  const bool empty = std::find(window.extent.begin(), window.extent.end(), 0) != window.extent.end();
  for (const int64_t extent : window.extent) {
    if (!empty && window.volume > (int64_t{1} << 58) / extent) fail("the ROI has too many elements");
    window.volume = empty ? 0 : window.volume * extent;
  }
  return window;
}

void read_npy_window(const OpenFile& file, const NpyHeader& header, const NpyWindow& window, float fill, char* out) {
  if (window.volume == 0) return;
  const size_t ndim = header.shape.size();
  std::vector<int64_t> shape = header.shape, begin(ndim), extent(ndim), strides(ndim);
  int64_t stride = 1, out_begin = 0;
  bool padded = false, inside = true;
  for (size_t k = ndim; k-- > 0; stride *= window.extent[k]) {
    // The part of the window inside the array; the rest is padding.
    const int64_t first = std::clamp<int64_t>(window.start[k], 0, shape[k]),
                  last = std::clamp<int64_t>(window.start[k] + window.extent[k], 0, shape[k]);
    begin[k] = first;
    extent[k] = last - first;
    strides[k] = stride;
    padded = padded || extent[k] < window.extent[k];
    inside = inside && extent[k] > 0;
    out_begin += (first - window.start[k]) * stride;
  }
  if (padded) fill_with(header.dtype, fill, out, window.volume);
  if (!inside) return;
  // The file then holds the transposed array in C order, and all that changes is where elements go in the output.
  if (header.fortran_order) {
    for (auto* axes : {&shape, &begin, &extent, &strides}) std::reverse(axes->begin(), axes->end());
  }
  Reading(file, header, shape, begin, extent, strides).read(0, 0, out + out_begin * header.item_bytes);
}

}  // namespace ndd
