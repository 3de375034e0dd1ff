// SPDX-License-Identifier: Apache-2.0
// Filters for resampling audio: a windowed sinc for every position that an output can have between two inputs.
//
// An output at position o * ratio of the input is the sum of in[i] * w((i - position) / stretch) / stretch, with w(x) = sinc(x) * (1 + cos(pi x /
// lobes)) / 2.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>

#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/line_vector.h"

namespace ndd {

struct SincPosition {
  int64_t first;  // the input of the first weight
  int64_t phase;
  float next;  // the share of the next phase's weights
};

struct SincTable {
  int64_t taps = 0, reach = 0;  // taps: weights per phase, a multiple of 16; the first is for input floor(position) - reach + 1
  int64_t phases = 1, advance = 0;  // if exact, position o is o * advance / phases
  bool exact = true;  // otherwise the weights are interpolated between phases
  double ratio = 1.0;
};

// The position of an output in the input.
NDD_HD SincPosition position_of(const SincTable& table, int64_t o) {
  if (table.exact) {
    const int64_t whole = o * table.advance / table.phases;
    return {whole - table.reach + 1, o * table.advance - whole * table.phases, 0.0f};
  }
  const double position = static_cast<double>(o) * table.ratio, whole = floor(position),
               phase = (position - whole) * static_cast<double>(table.phases);
  const auto below = static_cast<int64_t>(phase);
  return {static_cast<int64_t>(whole) - table.reach + 1, below, static_cast<float>(phase - static_cast<double>(below))};
}

struct SincFilter {
  SincTable table;
  LineVector<float> weights;  // one row of taps per phase, and an additional one if they are interpolated
};

// The lobes of the sinc on each side for a quality from 0 to 100: the parabola through 3, 16 (at 50) and 64 lobes, as in DALI.
inline int64_t sinc_lobes(double quality) {
  if (!(quality >= 0.0 && quality <= 100.0)) fail(Error::Value, "the quality of resampling must be from 0 to 100, got ", quality);
  return std::lround(0.007 * quality * quality - 0.09 * quality + 3.0);
}

// The filter for `outputs` elements, `ratio` inputs apart; cached for later calls. With `antialias` it is stretched if the ratio exceeds 1.
std::shared_ptr<const SincFilter> sinc_filter(double ratio, int64_t outputs, int64_t lobes, bool antialias);

// The number of zeros that filter_signal() requires before and after a signal.
inline int64_t zeros_before(const SincFilter& filter) { return filter.table.reach; }
inline int64_t zeros_behind(const SincFilter& filter) { return 2 * filter.table.taps; }

// Computes the outputs from `first` on. `signal` points to zeros_before() zeros, behind which come `length` elements of the input from `origin` on and
// zeros_behind() zeros.
void filter_signal(const SincFilter& filter, const float* signal, int64_t origin, int64_t length, int64_t first, int64_t outputs, float* out);

}  // namespace ndd
