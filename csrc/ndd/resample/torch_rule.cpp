// SPDX-License-Identifier: Apache-2.0
// Weights as in torch.nn.functional.interpolate: computed from the elements inside the source region only, which has an integer size; their sum is 1.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ndd/resample/table.h"
#include "ndd/simd.h"

namespace ndd {
namespace {

// Keys' kernel with parameter a: -0.5 (Catmull-Rom) with antialias, -0.75 without, as in torch.
double cubic(double x, double a) {
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

double sinc(double x) { return x == 0.0 ? 1.0 : std::sin(M_PI * x) / (M_PI * x); }

// Fills w[k] with the kernel at (first + k - center + 0.5) * shrink, over the sum of the `n` weights; `w` has room for whole vectors of eight. In vectors:
// both polynomials of the cubic kernel are computed for every k. The sum alone is in order, since its rounding depends on it.
void fill_weights(Filter filter, double first, double center, double shrink, int32_t n, double* w) {
  with_simd([=]() NDD_ALWAYS_INLINE {
    double* __restrict to = w;
    const int32_t padded = (n + 7) / 8 * 8;
    const auto x = [=](int32_t k) NDD_ALWAYS_INLINE { return (first + static_cast<double>(k) - center + 0.5) * shrink; };
    if (filter == Filter::lanczos3) {
      for (int32_t k = 0; k < n; ++k) to[k] = std::fabs(x(k)) < 3.0 ? sinc(x(k)) * sinc(x(k) / 3.0) : 0.0;
    } else if (filter == Filter::cubic) {
      for (int32_t k = 0; k < padded; ++k) {
        const double d = std::fabs(x(k)), near = (1.5 * d - 2.5) * d * d + 1.0, far = (((d - 5.0) * d + 8.0) * d - 4.0) * -0.5;
        to[k] = d < 1.0 ? near : d < 2.0 ? far : 0.0;
      }
    } else {
      for (int32_t k = 0; k < padded; ++k) to[k] = std::max(0.0, 1.0 - std::fabs(x(k)));
    }
    double sum = 0.0;
    for (int32_t k = 0; k < n; ++k) sum += to[k];
    if (sum == 0.0) return;
    for (int32_t k = 0; k < padded; ++k) to[k] = to[k] / sum;
  });
}

// Weights of neighboring source elements from `start` on; `weight` refers to memory of the caller.
struct Weights {
  int64_t start;
  std::vector<double>& weight;
};

// The weights of element i of the whole output, for `in` source elements. `memory` is reused between calls.
Weights weights_of(const Axis& a, int64_t i, int64_t in, const std::vector<int64_t>& places, std::vector<double>& memory) {
  const double scale = static_cast<double>(in) / static_cast<double>(a.whole);
  memory.assign(1, 1.0);
  // An axis that is not resized is copied. A single weight of 1 also serves the nearest neighbors below.
  if (in == a.whole) return {i, memory};
  if (!places.empty()) return {places[i], memory};
  if (a.filter == Filter::nearest) {
    // torch treats this ratio, and equal sizes, separately; the rounded products below could differ.
    if (a.whole == 2 * in) return {i / 2, memory};
    const float at = std::floor(static_cast<float>(i) * (static_cast<float>(in) / static_cast<float>(a.whole)));
    return {std::min(static_cast<int64_t>(at), in - 1), memory};
  }
  const bool is_cubic = a.filter == Filter::cubic;
  memory.clear();
  Weights weights{0, memory};
  if (a.antialias || a.filter == Filter::lanczos3) {
    const double stretch = std::max(scale, 1.0), support = support_radius(a.filter) * stretch, center = scale * (static_cast<double>(i) + 0.5);
    weights.start = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + support + 0.5), in);
    const auto n = static_cast<int32_t>(std::max<int64_t>(end - weights.start, 0));
    memory.resize((n + 7) / 8 * 8);
    fill_weights(a.filter, static_cast<double>(weights.start), center, 1.0 / stretch, n, memory.data());
    memory.resize(n);
    return weights;
  }
  // Two or four neighbors; those outside are replaced by the border element.
  double at = (static_cast<double>(i) + 0.5) * scale - 0.5;
  // torch clamps the position for linear, but not for cubic.
  if (!is_cubic) at = std::max(at, 0.0);
  const double low = std::min(std::floor(at), static_cast<double>(in - 1)), right = std::min(std::max(at - low, 0.0), 1.0);
  const int64_t first = static_cast<int64_t>(low) - is_cubic;
  const int taps = is_cubic ? 4 : 2;
  if (first >= 0 && first + taps <= in) {  // away from the border, which is nearly everywhere
    weights.start = first;
    if (is_cubic) weights.weight = {cubic(right + 1, -0.75), cubic(right, -0.75), cubic(right - 1, -0.75), cubic(right - 2, -0.75)};
    else weights.weight = {1.0 - right, 1.0 - std::fabs(right - 1)};
    return weights;
  }
  weights.start = clamp_index(first, in);
  weights.weight.assign(clamp_index(first + taps - 1, in) - weights.start + 1, 0.0);
  for (int k = 0; k < taps; ++k) {
    const double distance = right + (is_cubic ? 1 - k : -k);
    weights.weight[clamp_index(first + k, in) - weights.start] += is_cubic ? cubic(distance, -0.75) : 1.0 - std::fabs(distance);
  }
  return weights;
}

// Pillow's nearest elements. It accumulates the scale, which must be reproduced: from 6 elements to 11, element 5 is at 2.9999999999999996 and
// becomes 2.
void pillow_nearest(const Axis& a, int64_t in, std::vector<int64_t>& places) {
  places.clear();
  if (a.filter != Filter::nearest || !is_pillow(a.rule)) return;
  const double scale = static_cast<double>(in) / static_cast<double>(a.whole);
  double at = scale * 0.5;
  for (int64_t i = 0; i < a.whole; ++i, at += scale) places.push_back(std::min(static_cast<int64_t>(at), in - 1));
}

}  // namespace

void AxisTable::build_by_torch_rule() {
  // The ends of the region as integers, each rounded: its length may round to more than the image has. make_axis() stored the upper one in the scale,
  // so that it is exact up to rounding.
  const double length = std::fabs(static_cast<double>(axis.scale)) * static_cast<double>(axis.whole);
  const bool mirrored = axis.scale < 0.0f;
  const double low = mirrored ? axis.lo - length : static_cast<double>(axis.lo);
  const int64_t begin = std::clamp<int64_t>(std::llround(low), 0, std::max<int64_t>(axis.in - 1, 0));
  const int64_t in = std::clamp<int64_t>(std::llround(low + length) - begin, std::min<int64_t>(axis.in, 1), axis.in - begin);
  source = in;
  // All weights one after the other first; then in rows as long as the longest.
  static thread_local std::vector<double> all, memory;
  static thread_local std::vector<int64_t> places;
  pillow_nearest(axis, in, places);
  all.clear();
  start.resize(axis.out);
  count.resize(axis.out);
  double largest = 0.0;
  for (int64_t i = 0; i < axis.out; ++i) {
    const int64_t at = clamp_index(axis.first + i, axis.whole);  // beyond the border its pixels are repeated
    const Weights weights = weights_of(axis, mirrored ? axis.whole - 1 - at : at, in, places, memory);
    start[i] = static_cast<int32_t>(begin + weights.start);
    count[i] = static_cast<int32_t>(weights.weight.size());
    most = std::max(most, count[i]);
    for (const double weight : weights.weight) largest = std::max(largest, weight);
    all.insert(all.end(), weights.weight.begin(), weights.weight.end());
  }
  stride = (most + 7) / 8 * 8;
  // As many bits as fit in 16-bit weights, or Pillow's number.
  const bool pillow = is_pillow(axis.rule);
  if (!pillow && axis.out != axis.whole)  // a window uses the precision of the whole output
    for (int64_t i = 0; i < axis.whole; ++i)
      for (const double weight : weights_of(axis, i, in, places, memory).weight) largest = std::max(largest, weight);
  precision = pillow ? 22 : 0;
  // The largest precision at which the largest weight, rounded, is below 2^15.
  for (; !pillow && precision < 22 && static_cast<int64_t>(0.5 + largest * static_cast<double>(int64_t{1} << (precision + 1))) < (1 << 15);)
    ++precision;
  weight.assign(axis.out * stride, 0.0f);
  weight16.assign(axis.out * stride, 0);
  fine16.assign(pillow ? axis.out * stride : 0, 0);
  weight14.clear();
  const double* next = all.data();
  for (int64_t i = 0; i < axis.out; ++i) {
    for (int32_t k = 0; k < count[i]; ++k) {
      const double w = *next++;
      weight[i * stride + k] = static_cast<float>(w);
      // Rounds half away from zero, as torch and Pillow do.
      const auto whole = static_cast<int32_t>(w * static_cast<double>(1 << precision) + (w < 0.0 ? -0.5 : 0.5));
      weight16[i * stride + k] = static_cast<int16_t>(pillow ? whole >> kFineBits : whole);
      if (pillow) fine16[i * stride + k] = static_cast<int16_t>(whole & ((1 << kFineBits) - 1));
    }
  }
}

}  // namespace ndd
