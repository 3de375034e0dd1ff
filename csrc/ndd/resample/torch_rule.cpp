// SPDX-License-Identifier: Apache-2.0
// Weights as in torch.nn.functional.interpolate: computed from the elements inside the source region only, which has an integer size; their sum is 1.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
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

// Elements of the output whose weights are computed side by side. A sum of weights must be in order, since its rounding depends on it: eight sums side
// by side take as long as a single sum, and each vector holds the same tap of eight elements. The tables of DINO's ten crops of an image take 66 us so,
// and 128 element by element.
constexpr int kLanes = 8;

// Whether the kernel is stretched over as many source elements as a reduction needs.
bool is_stretched(const Axis& a, int64_t in) { return in != a.whole && a.filter != Filter::nearest && (a.antialias || a.filter == Filter::lanczos3); }

// By type: loops over the lanes would be unrolled into scalars.
template <class T, int lanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * lanes)));
};

// Appends the weights of elements at[0] to at[lanes - 1] of the whole output, for `in` source elements: [tap][lane], with zeros after the last tap of
// each. Returns the largest weight.
template <int lanes>
double append_stretched(const Axis& a, const int64_t* at, int64_t in, int32_t* start, int32_t* count, std::vector<double>& all) {
  const double scale = static_cast<double>(in) / static_cast<double>(a.whole), stretch = std::max(scale, 1.0), shrink = 1.0 / stretch;
  const double support = support_radius(a.filter) * stretch;
  using Vector = typename VectorOf<double, lanes>::type;
  // Of each lane: its first source element, its center in the source, its number of taps, and its largest weight.
  double firsts[lanes], centers[lanes], counts[lanes], largest_of[lanes];
  int32_t most = 0;
  for (int i = 0; i < lanes; ++i) {
    centers[i] = scale * (static_cast<double>(at[i]) + 0.5);
    start[i] = static_cast<int32_t>(std::max<int64_t>(static_cast<int64_t>(centers[i] - support + 0.5), 0));
    count[i] = static_cast<int32_t>(std::max<int64_t>(std::min(static_cast<int64_t>(centers[i] + support + 0.5), in) - start[i], 0));
    firsts[i] = start[i];
    counts[i] = count[i];
    most = std::max(most, count[i]);
  }
  const size_t begin = all.size();
  all.resize(begin + static_cast<size_t>(most) * lanes);
  with_simd([=, w = all.data() + begin, filter = a.filter, first_of = firsts, center_of = centers, count_of = counts, to_largest = largest_of]()
                NDD_ALWAYS_INLINE {
                  double* __restrict to = w;
                  Vector first, center, used, sum = {}, largest = {};
                  std::memcpy(&first, first_of, sizeof first);
                  std::memcpy(&center, center_of, sizeof center);
                  std::memcpy(&used, count_of, sizeof used);
                  for (int32_t k = 0; k < most; ++k, to += lanes) {
                    const auto tap = static_cast<double>(k);
                    const Vector x = (first + tap - center + 0.5) * shrink, d = x < 0.0 ? -x : x;
                    Vector value;
                    if (filter == Filter::lanczos3) {
                      double values[lanes];
                      std::memcpy(values, &x, sizeof x);
                      for (double& v : values) v = std::fabs(v) < 3.0 ? sinc(v) * sinc(v / 3.0) : 0.0;
                      std::memcpy(&value, values, sizeof value);
                    } else if (filter == Filter::cubic) {
                      const Vector near = (1.5 * d - 2.5) * d * d + 1.0, far = (((d - 5.0) * d + 8.0) * d - 4.0) * -0.5, none = {};
                      value = d < 1.0 ? near : d < 2.0 ? far : none;
                    } else {
                      const Vector none = {};
                      value = d < 1.0 ? 1.0 - d : none;
                    }
                    const Vector none = {}, kept = tap < used ? value : none;
                    sum += kept;
                    std::memcpy(to, &kept, sizeof kept);
                  }
                  // Lanes without taps have no sum to be divided by.
                  sum = sum == 0.0 ? sum + 1.0 : sum;
                  to = w;
                  for (int32_t k = 0; k < most; ++k, to += lanes) {
                    Vector value;
                    std::memcpy(&value, to, sizeof value);
                    value /= sum;
                    largest = largest < value ? value : largest;
                    std::memcpy(to, &value, sizeof value);
                  }
                  std::memcpy(to_largest, &largest, sizeof largest);
                });
  return *std::max_element(largest_of, largest_of + lanes);
}

// The rows of elements side by side in an AxisTable, filled with zeros; `fine` is null for torch's rule.
struct Rows {
  float* weight;
  int16_t *whole, *fine;
  int64_t stride;
};

// Rounds the weights of elements side by side, [tap][lane], for their rows: one conversion for all lanes.
template <int lanes>
void round_weights(const double* all, int32_t taps, int32_t precision, const Rows& rows) {
  const auto store = [=](int64_t place, float weight, int32_t whole) NDD_ALWAYS_INLINE {
    rows.weight[place] = weight;
    rows.whole[place] = static_cast<int16_t>(rows.fine != nullptr ? whole >> kFineBits : whole);
    if (rows.fine != nullptr) rows.fine[place] = static_cast<int16_t>(whole & ((1 << kFineBits) - 1));
  };
  // Half away from zero, as torch and Pillow do.
  const auto unit = static_cast<double>(1 << precision);
  if constexpr (lanes == 1) {
    for (int32_t k = 0; k < taps; ++k) store(k, static_cast<float>(all[k]), static_cast<int32_t>(all[k] * unit + (all[k] < 0.0 ? -0.5 : 0.5)));
  } else {
    using Vector = typename VectorOf<double, lanes>::type;
    using Floats = typename VectorOf<float, lanes>::type;
    using Integers = typename VectorOf<int32_t, lanes>::type;
    with_simd([=]() NDD_ALWAYS_INLINE {
      for (int32_t k = 0; k < taps; ++k) {
        Vector w;
        std::memcpy(&w, all + int64_t{k} * lanes, sizeof w);
        const Vector scaled = w * unit, rounded = w < 0.0 ? scaled - 0.5 : scaled + 0.5;
        const Floats weights = __builtin_convertvector(w, Floats);
        const Integers whole = __builtin_convertvector(rounded, Integers);
        for (int lane = 0; lane < lanes; ++lane) store(lane * rows.stride + k, weights[lane], whole[lane]);
      }
    });
  }
}

// Weights of neighboring source elements from `start` on; `weight` refers to memory of the caller.
struct Weights {
  int64_t start;
  std::vector<double>& weight;
};

// The weights of element i of the whole output, for `in` source elements, unless the kernel is stretched. `memory` is reused between calls.
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
  // The ends of the region as integers, each rounded: its length may round to more than the image has. make_axis() stored the upper end in the scale,
  // so that it is exact up to rounding.
  const double length = std::fabs(static_cast<double>(axis.scale)) * static_cast<double>(axis.whole);
  const bool mirrored = axis.scale < 0.0f;
  const double low = mirrored ? axis.lo - length : static_cast<double>(axis.lo);
  const int64_t begin = std::clamp<int64_t>(std::llround(low), 0, std::max<int64_t>(axis.in - 1, 0));
  const int64_t in = std::clamp<int64_t>(std::llround(low + length) - begin, std::min<int64_t>(axis.in, 1), axis.in - begin);
  source = in;
  // The weights of `lanes` elements side by side first; then in rows as long as the longest. Few elements are computed one by one.
  const bool stretched = is_stretched(axis, in);
  // Vectors wider than the registers are slow.
  const int widest = cpu_isa() == Isa::avx512 ? kLanes : cpu_isa() == Isa::avx2 ? kLanes / 2 : 1;
  const int lanes = stretched && axis.out >= kLanes ? widest : 1;
  static thread_local std::vector<double> all, memory;
  static thread_local std::vector<int64_t> places;
  pillow_nearest(axis, in, places);
  // Appends the weights of the elements from i on, of which element k is number index(k) of the whole. Returns the largest.
  const auto append = [&](int64_t i, auto index, int32_t* starts, int32_t* counts) {
    if (!stretched) {
      const Weights weights = weights_of(axis, index(i), in, places, memory);
      starts[0] = static_cast<int32_t>(weights.start);
      counts[0] = static_cast<int32_t>(weights.weight.size());
      all.insert(all.end(), weights.weight.begin(), weights.weight.end());
      return *std::max_element(weights.weight.begin(), weights.weight.end());
    }
    int64_t at[kLanes];
    for (int k = 0; k < lanes; ++k) at[k] = index(i + k);
    return (lanes == 1        ? append_stretched<1>
            : lanes == kLanes ? append_stretched<kLanes>
                              : append_stretched<kLanes / 2>)(axis, at, in, starts, counts, all);
  };
  all.clear();
  const int64_t padded = (axis.out + lanes - 1) / lanes * lanes;
  start.resize(padded);
  count.resize(padded);
  double largest = 0.0;
  const auto index_of = [&](int64_t i) {
    const int64_t at = clamp_index(axis.first + std::min(i, axis.out - 1), axis.whole);  // beyond the border its pixels are repeated
    return mirrored ? axis.whole - 1 - at : at;
  };
  for (int64_t i = 0; i < axis.out; i += lanes) largest = std::max(largest, append(i, index_of, &start[i], &count[i]));
  const size_t used = all.size();
  for (int64_t i = 0; i < padded; ++i) {
    start[i] += static_cast<int32_t>(begin);
    most = std::max(most, count[i]);
  }
  stride = (most + 7) / 8 * 8;
  // As many bits as fit in 16-bit weights, or Pillow's number.
  const bool pillow = is_pillow(axis.rule);
  if (!pillow && axis.out != axis.whole) {  // a window uses the precision of the whole output
    int32_t starts[kLanes], counts[kLanes];
    for (int64_t i = 0; i < axis.whole; i += lanes) {
      largest = std::max(largest, append(i, [&](int64_t k) { return std::min(k, axis.whole - 1); }, starts, counts));
      all.resize(used);
    }
  }
  precision = pillow ? 22 : 0;
  // The largest precision at which the largest weight, rounded, is below 2^15.
  for (; !pillow && precision < 22 && static_cast<int64_t>(0.5 + largest * static_cast<double>(int64_t{1} << (precision + 1))) < (1 << 15);)
    ++precision;
  weight.assign(padded * stride, 0.0f);
  weight16.assign(padded * stride, 0);
  fine16.assign(pillow ? padded * stride : 0, 0);
  weight14.clear();
  const double* next = all.data();
  for (int64_t i = 0; i < axis.out; i += lanes) {
    const int32_t longest = *std::max_element(&count[i], &count[i] + lanes);
    const Rows rows{&weight[i * stride], &weight16[i * stride], pillow ? &fine16[i * stride] : nullptr, stride};
    (lanes == 1 ? round_weights<1> : lanes == kLanes ? round_weights<kLanes> : round_weights<kLanes / 2>)(next, longest, precision, rows);
    next += longest * lanes;
  }
  weight.resize(axis.out * stride);
  weight16.resize(axis.out * stride);
  if (pillow) fine16.resize(axis.out * stride);
  start.resize(axis.out);
  count.resize(axis.out);
}

}  // namespace ndd
