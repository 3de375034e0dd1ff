// SPDX-License-Identifier: Apache-2.0
// Filters of a resampler: a windowed sinc at every position that an output has between two inputs.
//
// An output at position o * ratio of the input is the sum of in[i] * w((i - position) / stretch) / stretch, w(x) = sinc(x) * (1 + cos(pi x / lobes)) / 2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "ndd/hd.h"

namespace ndd {
namespace audio {

struct Position {
  int64_t first;  // input that the first weight is for
  int64_t phase;
  float next;     // how much of the weights of the next phase
};

struct SincTable {
  int64_t taps = 0, reach = 0;     // weights of a phase, a multiple of 16; those of inputs from first = floor(position) - reach + 1 on
  int64_t phases = 1, advance = 0;  // phases > 0 and exact: position o is o * advance / phases
  bool exact = true;               // otherwise phases are so close that what lies between is interpolated
  double ratio = 1.0;
};

// Where an output is taken from.
NDD_HD Position position_of(const SincTable& table, int64_t o) {
  if (table.exact) {
    const int64_t whole = o * table.advance / table.phases;
    return {whole - table.reach + 1, o * table.advance - whole * table.phases, 0.0f};
  }
  const double position = static_cast<double>(o) * table.ratio, whole = floor(position), phase = (position - whole) * static_cast<double>(table.phases);
  const auto below = static_cast<int64_t>(phase);
  return {static_cast<int64_t>(whole) - table.reach + 1, below, static_cast<float>(phase - static_cast<double>(below))};
}

struct SincFilter {
  SincTable table;
  std::vector<float> weights;  // phases rows of taps; one more where they are interpolated
};

constexpr int64_t kMostPhases = 1280;     // 44100 to 48000 has 160, to 16000 the same
constexpr int64_t kBetweenPhases = 1024;  // interpolated linearly: an error of 4e-7
constexpr int64_t kMostWeights = 1 << 22;  // of all phases, where these are a choice

// advance / phases is the ratio, up to a millionth of an element at the last of `outputs`.
inline bool find_fraction(double ratio, int64_t outputs, int64_t& advance, int64_t& phases) {
  for (phases = 1; phases <= kMostPhases; ++phases) {
    const double rounded = std::round(ratio * static_cast<double>(phases));
    if (rounded < 9e15 && std::fabs(ratio - rounded / static_cast<double>(phases)) * static_cast<double>(outputs) < 1e-6 && rounded >= 1.0) {
      advance = static_cast<int64_t>(rounded);
      return true;
    }
  }
  return false;
}

inline std::shared_ptr<const SincFilter> make_sinc_filter(int64_t advance, int64_t phases, double ratio, bool exact, int64_t lobes, double stretch) {
  constexpr double kPi = 3.14159265358979323846;
  auto made = std::make_shared<SincFilter>();
  const double extent = static_cast<double>(lobes) * stretch;
  SincTable& table = made->table;
  table.reach = static_cast<int64_t>(std::ceil(extent));
  table.taps = (2 * table.reach + 15) / 16 * 16;
  table.phases = phases, table.advance = advance, table.exact = exact, table.ratio = ratio;
  made->weights.resize((phases + (exact ? 0 : 1)) * table.taps);
  for (int64_t p = 0; p < phases + (exact ? 0 : 1); ++p) {
    for (int64_t k = 0; k < 2 * table.reach; ++k) {
      const double x = (static_cast<double>(k - table.reach + 1) - static_cast<double>(p) / static_cast<double>(phases)) / stretch;
      if (std::fabs(x) >= static_cast<double>(lobes)) continue;
      const double sinc = x == 0.0 ? 1.0 : std::sin(kPi * x) / (kPi * x);
      made->weights[p * table.taps + k] = static_cast<float>(sinc * 0.5 * (1.0 + std::cos(kPi * x / static_cast<double>(lobes))) / stretch);
    }
  }
  return made;
}

// The filter for a sample, kept for the next ones.
inline std::shared_ptr<const SincFilter> sinc_filter(double ratio, int64_t outputs, int64_t lobes, bool antialias) {
  using Key = std::tuple<int64_t, int64_t, double, int64_t, double>;
  constexpr size_t kKept = 32;
  static std::mutex mutex;
  static std::map<Key, std::shared_ptr<const SincFilter>> kept;
  const double stretch = antialias && ratio > 1.0 ? ratio : 1.0, taps = 2.0 * static_cast<double>(lobes) * stretch;
  int64_t advance = 0, phases = 0;
  const bool exact = find_fraction(ratio, outputs, advance, phases) && static_cast<double>(phases) * taps <= static_cast<double>(kMostWeights);
  // A filter that is stretched changes as much less from phase to phase.
  if (!exact) advance = 0, phases = std::max<int64_t>(32, static_cast<int64_t>(static_cast<double>(kBetweenPhases) / stretch));
  const Key key{advance, phases, exact ? 0.0 : ratio, lobes, stretch};
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = kept.find(key);
    if (found != kept.end()) return found->second;
  }
  auto made = make_sinc_filter(advance, phases, ratio, exact, lobes, stretch);
  const std::lock_guard<std::mutex> lock(mutex);
  if (kept.size() >= kKept) kept.clear();
  kept[key] = made;
  return made;
}

}  // namespace audio
}  // namespace ndd
