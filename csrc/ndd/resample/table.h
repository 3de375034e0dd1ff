// SPDX-License-Identifier: Apache-2.0
// What all passes over an axis on the CPU use: the weights of the whole axis, strips of it that fit in a cache, and the memory of a thread. Only taps
// inside the source are stored; the weights of those outside are added to the border element, so the loops need no bounds checks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ndd/resample/resample.h"

namespace ndd {

// The knots of all kernels, computed once per process.
inline const float* tabulated_knots(Filter filter) {
  struct Tables {
    float knots[6][kMaxKnots];
    Tables() {
      for (int f = 0; f < 6; ++f)
        for (int32_t n = 0; n < kMaxKnots; ++n) knots[f][n] = ComputedKnots{static_cast<Filter>(f)}[n];
    }
  };
  static const Tables tables;
  return tables.knots[static_cast<int>(filter)];
}

constexpr int32_t kFineBits = 11;

struct AxisTable {
  Axis axis{};
  int64_t stride = 0;  // weights per output element
  int32_t most = 0;  // the largest count
  int64_t source = 0;  // elements of the source region; not used by DALI's rule
  std::vector<int32_t> start, count;
  std::vector<float> weight;
  // For the rules other than DALI's: weight * 2^precision, rounded, followed by zeros after an element's last weight. With Pillow's rule the weight
  // is weight16 * 2^kFineBits + fine16.
  std::vector<int16_t> weight16, fine16;
  int32_t precision = 0;
  std::vector<uint32_t> weight14;  // weight * 2^14, rounded, as int16 in both halves; the weights of an element sum to exactly 2^14

  const float* weights(int64_t i) const { return weight.data() + i * stride; }
  const uint32_t* weights14(int64_t i) const { return weight14.data() + i * stride; }

  void build(const Axis& a) {
    axis = a;
    most = 0;
    if (a.rule != Rule::dali) return build_by_torch_rule();
    stride = std::min<int64_t>(a.taps, std::max<int64_t>(a.in, 1));
    start.resize(a.out);
    count.resize(a.out);
    weight.resize(a.out * stride);
    weight14.clear();
    if (a.in == 0) return;
    const float* knots = tabulated_knots(a.filter);
    for (int64_t i = 0; i < a.out; ++i) build_element(i, knots);
  }

  void build_by_torch_rule();  // for Pillow's rule as well; in torch_rule.cpp
  bool fine() const { return !fine16.empty(); }
  int32_t whole_weight(int64_t k) const { return fine() ? weight16[k] * (1 << kFineBits) + fine16[k] : weight16[k]; }

  void build_element(int64_t i, const float* knots) {
    float base = 0, *w = weight.data() + i * stride;
    const int64_t first = first_tap(axis, i, &base), begin = clamp_index(first, axis.in);
    const int64_t end = clamp_index(first + axis.taps - 1, axis.in) + 1;
    float sum = 0;
    // All taps inside: the common case needs no clamping.
    if (end - begin == axis.taps) {
      for (int32_t k = 0; k < axis.taps; ++k) sum += w[k] = tap_weight(axis, knots, k, base);
    } else {
      std::fill_n(w, end - begin, 0.0f);
      for (int32_t k = 0; k < axis.taps; ++k) {
        const float v = tap_weight(axis, knots, k, base);
        sum += v;
        w[clamp_index(first + k, axis.in) - begin] += v;
      }
    }
    // Drop zero weights at both ends: fewer taps to mix.
    int32_t skip = 0, n = static_cast<int32_t>(end - begin);
    while (n > 1 && w[n - 1] == 0) --n;
    while (skip + 1 < n && w[skip] == 0) ++skip;
    n -= skip;
    const float norm = 1 / sum;
    for (int32_t k = 0; k < n; ++k) w[k] = w[k + skip] * norm;
    start[i] = static_cast<int32_t>(begin) + skip;
    count[i] = n;
    most = std::max(most, n);
  }

  // Only for the paths that need them. The rounding error goes to the largest weight, so a constant image stays constant.
  void build_weights14() {
    if (!weight14.empty()) return;
    weight14.resize(weight.size());
    for (int64_t i = 0; i < axis.out; ++i) {
      const float* w = weights(i);
      uint32_t* q = weight14.data() + i * stride;
      int32_t rest = 1 << 14, largest = 0;
      for (int32_t k = 0; k < count[i]; ++k) {
        const int32_t v = static_cast<int32_t>(w[k] * 16384 + (w[k] < 0 ? -0.5f : 0.5f));
        if (w[k] > w[largest]) largest = k;
        rest -= v;
        // Twice in 32 bits, so one broadcast fills all 16-bit lanes.
        q[k] = static_cast<uint16_t>(v) * 0x10001u;
      }
      q[largest] = static_cast<uint16_t>(q[largest] + rest) * 0x10001u;
    }
  }
};

// Pillow starts with the height if that drops more than twice as many pixels as the width. The order matters for bytes, which are rounded in between.
inline bool height_first(const AxisTable& v, const AxisTable& h) {
  const int64_t loss = v.source - v.axis.whole;
  return v.axis.rule == Rule::pillow && loss > 0 && loss > 2 * (h.source - h.axis.whole);
}

// The table of an axis, cached per thread: samples of one shape, and the planes of one sample, build it once.
inline AxisTable& axis_table(int slot, const Axis& a) {
  static thread_local AxisTable tables[5];
  AxisTable& t = tables[slot];
  if (!same_axis(a, t.axis) || a.out == 0) t.build(a);
  return t;
}

// A buffer per thread that grows to the largest request and stays.
template <class T>
T* scratch(int slot, int64_t n) {
  static thread_local std::vector<char> buffers[5];
  std::vector<char>& b = buffers[slot];
  const size_t bytes = static_cast<size_t>(n) * sizeof(T) + 64;
  // Not resized: the old content need not be copied. 64 bytes more leave room for the alignment.
  if (b.size() < bytes) b = std::vector<char>(bytes);
  return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(b.data()) + 63) & ~uintptr_t{63});
}

struct ColumnStrip {  // output columns [begin, end), and the source columns [first, last) that they need
  int64_t begin, end, first, last;
};

// The widest strip from `begin` on whose source rows fit in the L1 cache together with its tile.
inline ColumnStrip next_strip(const AxisTable& h, int64_t begin, int64_t limit, int64_t least_source) {
  ColumnStrip s{begin, begin, h.axis.in, 0};
  for (; s.end < h.axis.out; ++s.end) {
    const int64_t first = std::min<int64_t>(s.first, h.start[s.end]), last = std::max<int64_t>(s.last, h.start[s.end] + h.count[s.end]);
    // At least one column, whatever it needs. An enlargement is limited by its output columns.
    if (s.end > begin && (last - first > limit || s.end - begin >= 2 * limit)) break;
    s.first = first;
    s.last = last;
  }
  // Vector loads need rows of a minimal length: the strip is extended to the right, or to the left at the end.
  if (s.last - s.first < least_source) {
    s.last = std::min(h.axis.in, s.first + least_source);
    s.first = s.last - least_source;
  }
  return s;
}

}  // namespace ndd
