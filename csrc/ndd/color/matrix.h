// SPDX-License-Identifier: Apache-2.0
// Color matrix driver: applies a 3 x 4 matrix to every pixel, from one or three interleaved channels to one or three, for every pair of element
// types, on the device of the tensors. The kernel supplies a ColorMatrix per sample, or per frame. Any alignment.
//
// Use it for whatever is linear in the channels of a pixel: color spaces, saturation, contrast, a hue that is rotated. What else mixes channels
// goes through planes.h on the CPU and pixels.cuh on CUDA. What treats each channel alone is pointwise.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "ndd/elementwise/pointwise.h"

namespace ndd {

// out[c] = m[c][0] * in[0] + m[c][1] * in[1] + m[c][2] * in[2] + m[c][3], with fused multiply-adds on every processor, so results agree. A gray
// pixel is in[0] alone or out[0] alone.
struct ColorMatrix {
  float m[3][4];

  template <int kIn, int kOut>
  NDD_HD void apply(const float* in, float* out) const {
    for (int c = 0; c < kOut; ++c) {
      if (kIn == 1) out[c] = fmaf(m[c][0], in[0], m[c][3]);
      else out[c] = fmaf(m[c][0], in[0], fmaf(m[c][1], in[1], fmaf(m[c][2], in[2], m[c][3])));
    }
  }

  // Whether every output channel c is a copy of input channel from[c], as from RGB to BGR. Such a matrix is applied exactly for every type.
  template <int kIn, int kOut>
  NDD_HD bool copies(int* from) const {
    for (int c = 0; c < kOut; ++c) {
      int ones = 0, zeros = 0;
      for (int k = 0; k < kIn; ++k) {
        if (m[c][k] == 1.0f) from[c] = k, ++ones;
        zeros += m[c][k] == 0.0f;
      }
      if (ones != 1 || zeros != kIn - 1 || m[c][3] != 0.0f) return false;
    }
    return true;
  }
};

// The same for three channels of bytes, in integers: sums of 16-bit factors times levels, exact in any order, shifted right by `bits`. Before the
// final rounding (half up) the result is within 0.05 of the real value, and within 0.006 for factors below 1. Converts to false if a factor is 8 or
// more or an offset does not fit; floats are used then.
class FixedMatrix {
 public:
  explicit FixedMatrix(const ColorMatrix& matrix) {
    float most = 0.0f;
    for (const auto& row : matrix.m)
      for (int k = 0; k < 3; ++k) most = row[k] == row[k] ? std::max(most, std::fabs(row[k])) : INFINITY;
    while (bits > 0 && most * static_cast<float>(1 << bits) > 32767.0f) --bits;
    if (bits < 12) bits = 0;
    for (int c = 0; c < 3 && bits > 0; ++c) {
      const double scale = 1 << bits;
      double added = (matrix.m[c][3] + 0.5) * scale;
      for (int k = 0; k < 3; ++k) {
        const double exact = matrix.m[c][k] * scale, whole = std::rint(exact);
        factor[c][k] = static_cast<int32_t>(whole);
        added += 127.5 * (exact - whole);  // makes the rounded factor exact for the middle level, which halves the error of the others
      }
      if (!(std::fabs(added) < 1 << 30)) bits = 0;
      else offset[c] = static_cast<int32_t>(std::lrint(added));
    }
  }

  NDD_HD explicit operator bool() const { return bits > 0; }

  // Channel c of the resulting pixel.
  NDD_HD int32_t level(int c, int32_t red, int32_t green, int32_t blue) const {
    const int32_t v = (factor[c][0] * red + factor[c][1] * green + factor[c][2] * blue + offset[c]) >> bits;
    return v < 0 ? 0 : v > 255 ? 255 : v;
  }

  template <int kOut>
  NDD_HD void apply(const uint8_t* in, uint8_t* out) const {
    for (int c = 0; c < kOut; ++c) out[c] = static_cast<uint8_t>(level(c, in[0], in[1], in[2]));
  }

  int32_t factor[3][3] = {}, offset[3] = {};
  int32_t bits = 15;
};

namespace color_matrix_detail {

// About 0.13 ns per pixel for uint8 and 1 ns for the other types.
constexpr double kNanosecondsPerElement = 0.15;

// The number of channels of the input and of the output.
struct Channels {
  int in, out;
};

// Defined in matrix.cpp, which nvcc does not compile, and in matrix.cu.
void run_cpu(const PointwiseRun<ColorMatrix>& run, Channels channels, DType in, DType out);
void launch_gpu(const std::string& op, const std::vector<PointwiseRun<ColorMatrix>>& runs, Channels channels, DType in, DType out);

}  // namespace color_matrix_detail

// Applies the ColorMatrix make_matrix(i, f) to frame f of sample i. Throws if the number of channels is not `in_channels`. `arguments` lists those
// that may have a column per frame.
template <class Make>
static void color_matrix(const std::string& op, const Samples& in, const Samples& out, int in_channels, int out_channels,
                         std::initializer_list<const Args<float>*> arguments, Make make_matrix) {
  using namespace color_matrix_detail;
  const Channels channels{in_channels, out_channels};
  const int64_t columns = pointwise_detail::frame_arguments(arguments);
  if (out.size() != in.size()) fail(Error::Value, op, ": the output must have ", in.size(), " samples, got ", out.size());
  const auto visit_runs = [=](int64_t i, auto visit) {
    const int64_t found = in.ndim() < 1 ? 0 : in.shape(i)[in.ndim() - 1];
    if (found != channels.in) fail(op, ": the image must have ", channels.in == 1 ? "1 channel" : "3 channels", ", sample ", i, " has ", found);
    if (out.volume(i) != in.volume(i) / channels.in * channels.out) fail(Error::Value, op, ": sample ", i, " of the output has a wrong size");
    pointwise_detail::for_each_run(op, in, out, i, columns, make_matrix, visit);
  };
#ifdef NDD_CUDA
  if (in.values().is_cuda()) {
    std::vector<PointwiseRun<ColorMatrix>> runs;
    for (int64_t i = 0; i < in.size(); ++i) visit_runs(i, [&](const auto& run) { runs.push_back(run); });
    return launch_gpu(op, runs, channels, in.dtype(), out.dtype());
  }
#endif
  const double cost = in.size() > 0 ? kNanosecondsPerElement * static_cast<double>(in.volume(0)) : 0;
  launch_cpu(op, in.size(), cost, {}, [=](int64_t i) { visit_runs(i, [&](const auto& run) { run_cpu(run, channels, in.dtype(), out.dtype()); }); });
}

}  // namespace ndd
