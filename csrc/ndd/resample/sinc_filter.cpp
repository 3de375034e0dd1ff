// SPDX-License-Identifier: Apache-2.0
// Builds and caches the filters, and applies them with AVX2 or portable loops.
#include "ndd/resample/sinc_filter.h"

#include <algorithm>
#include <tuple>

#include "ndd/kept.h"
#include "ndd/simd.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd {
namespace {

constexpr int64_t kMaxPhases = 1280;     // 44100 to 48000 Hz has 160 phases, to 16000 Hz as many
constexpr int64_t kBetweenPhases = 1024;  // with linear interpolation between them: an error of 4e-7
constexpr int64_t kMaxWeights = 1 << 22;  // of all phases together, above which phases are interpolated
// Filters are kept: those of up to kSmall weights (1 MB; 192 to 11.025 kHz with all lobes has 330,000 weights), and a few of the others, of 16 MB at most.
constexpr int64_t kSmall = 1 << 18, kKeptSmall = 32, kKeptLarge = 4;

// Finds advance / phases equal to the ratio, up to a millionth of an element at the last of `outputs`.
bool find_fraction(double ratio, int64_t outputs, int64_t& advance, int64_t& phases) {
  for (phases = 1; phases <= kMaxPhases; ++phases) {
    const double rounded = std::round(ratio * static_cast<double>(phases));
    if (rounded < 9e15 && std::fabs(ratio - rounded / static_cast<double>(phases)) * static_cast<double>(outputs) < 1e-6 && rounded >= 1.0) {
      advance = static_cast<int64_t>(rounded);
      return true;
    }
  }
  return false;
}

std::shared_ptr<const SincFilter> make_sinc_filter(int64_t advance, int64_t phases, double ratio, bool exact, int64_t lobes, double stretch) {
  constexpr double kPi = 3.14159265358979323846;
  auto filter = std::make_shared<SincFilter>();
  const double extent = static_cast<double>(lobes) * stretch;
  SincTable& table = filter->table;
  table.reach = static_cast<int64_t>(std::ceil(extent));
  // Padded with zero weights, so vector loops need no remainder.
  table.taps = (2 * table.reach + 15) / 16 * 16;
  table.phases = phases, table.advance = advance, table.exact = exact, table.ratio = ratio;
  // One phase more for interpolation: the last one is the first one of the next input.
  filter->weights.resize((phases + (exact ? 0 : 1)) * table.taps);
  for (int64_t p = 0; p < phases + (exact ? 0 : 1); ++p) {
    for (int64_t k = 0; k < 2 * table.reach; ++k) {
      // The distance of tap k from a position `p / phases` behind an input.
      const double x = (static_cast<double>(k - table.reach + 1) - static_cast<double>(p) / static_cast<double>(phases)) / stretch;
      if (std::fabs(x) >= static_cast<double>(lobes)) continue;
      // A sinc under a Hann window of `lobes` lobes.
      const double sinc = x == 0.0 ? 1.0 : std::sin(kPi * x) / (kPi * x);
      filter->weights[p * table.taps + k] = static_cast<float>(sinc * 0.5 * (1.0 + std::cos(kPi * x / static_cast<double>(lobes))) / stretch);
    }
  }
  return filter;
}

// The inputs and the weights of an output.
struct Taps {
  const float *values, *weights;
  float next;
};

// Steps through the taps of consecutive outputs, from `first` on, without the division in position_of(). Element i of the input is at signal[i + before].
class TapsInOrder {
 public:
  TapsInOrder(const SincFilter& filter, const float* signal, int64_t before, int64_t last_start, int64_t first)
      : table_(filter.table), weights_(filter.weights.data()), signal_(signal), before_(before), last_start_(last_start),
        whole_(table_.exact ? table_.advance / table_.phases : 0), part_(table_.exact ? table_.advance % table_.phases : 0), output_(first),
        position_(position_of(table_, first)) {}

  Taps next() {
    if (!table_.exact) position_ = position_of(table_, output_++);
    // Clamped: beyond the trailing zeros everything is zero as well.
    const Taps taps{signal_ + std::min(position_.first + before_, last_start_), weights_ + position_.phase * table_.taps, position_.next};
    // Adds advance / phases to the position, with a carry: the same as position_of(), in integers.
    position_.phase += part_;
    const bool carried = position_.phase >= table_.phases;
    position_.phase -= carried ? table_.phases : 0;
    position_.first += whole_ + carried;
    return taps;
  }

 private:
  const SincTable& table_;
  const float *weights_, *signal_;
  int64_t before_, last_start_, whole_, part_, output_;
  SincPosition position_;
};

float filtered(const SincTable& table, const Taps& taps) {
  float sum = 0.0f;
  for (int64_t k = 0; k < table.taps; ++k) {
    float weight = taps.weights[k];
    if (!table.exact) weight += taps.next * (taps.weights[table.taps + k] - weight);
    sum += taps.values[k] * weight;
  }
  return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"), always_inline)) inline __m256 products(const SincTable& table, const Taps& taps) {
  __m256 sum = _mm256_setzero_ps(), other = _mm256_setzero_ps();
  if (table.exact) {
    // Two sums, so the additions of one do not wait for those of the other.
    for (int64_t k = 0; k < table.taps; k += 16) {
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(taps.values + k), _mm256_loadu_ps(taps.weights + k), sum);
      other = _mm256_fmadd_ps(_mm256_loadu_ps(taps.values + k + 8), _mm256_loadu_ps(taps.weights + k + 8), other);
    }
  } else {
    const __m256 next = _mm256_set1_ps(taps.next);
    for (int64_t k = 0; k < table.taps; k += 8) {
      const __m256 weight = _mm256_loadu_ps(taps.weights + k);
      const __m256 blended = _mm256_fmadd_ps(next, _mm256_sub_ps(_mm256_loadu_ps(taps.weights + table.taps + k), weight), weight);
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(taps.values + k), blended, sum);
    }
  }
  return _mm256_add_ps(sum, other);
}

// Four outputs at a time, whose horizontal sums are combined; returns how many were computed.
__attribute__((target("avx2,fma"))) int64_t filter_fours(const SincTable& table, TapsInOrder& taps, int64_t outputs, float* out) {
  int64_t o = 0;
  for (; o + 4 <= outputs; o += 4) {
    const __m256 a = products(table, taps.next()), b = products(table, taps.next()), c = products(table, taps.next()),
                 d = products(table, taps.next());
    // Three horizontal additions leave one sum per half and output; adding the halves gives four outputs in order.
    const __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out + o, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
  return o;
}
#endif

}  // namespace

std::shared_ptr<const SincFilter> sinc_filter(double ratio, int64_t outputs, int64_t lobes, bool antialias) {
  using Key = std::tuple<int64_t, int64_t, double, int64_t, double>;
  // Never destroyed: threads use them until the process exits.
  static auto *const small = new Kept<Key, SincFilter>(kKeptSmall), *const large = new Kept<Key, SincFilter>(kKeptLarge);
  const double stretch = antialias && ratio > 1.0 ? ratio : 1.0, taps = 2.0 * static_cast<double>(lobes) * stretch;
  int64_t advance = 0, phases = 0;
  // Ratios of usual rates have few phases, whose weights are tabulated exactly. Others interpolate in a table.
  const bool exact = find_fraction(ratio, outputs, advance, phases) && static_cast<double>(phases) * taps <= static_cast<double>(kMaxWeights);
  // The more a filter is stretched, the less it changes from phase to phase. With fewer phases it has about as many weights as one that is not: the least
  // number of phases is one, not more, or a ratio of 8000 takes 140 MB.
  if (!exact) advance = 0, phases = static_cast<int64_t>(std::ceil(static_cast<double>(kBetweenPhases) / stretch));
  // Exact filters depend on the fraction, not on the ratio: 44.1 to 48 kHz is the same as 88.2 to 96 kHz.
  const Key key{advance, phases, exact ? 0.0 : ratio, lobes, stretch};
  auto* const kept = static_cast<double>(phases) * taps <= static_cast<double>(kSmall) ? small : large;
  return kept->get(key, [&] { return make_sinc_filter(advance, phases, ratio, exact, lobes, stretch); });
}

void filter_signal(const SincFilter& filter, const float* signal, int64_t origin, int64_t length, int64_t first, int64_t outputs, float* out) {
  const int64_t before = zeros_before(filter);
  TapsInOrder taps(filter, signal, before - origin, before + length + filter.table.taps, first);
  int64_t o = 0;
#if defined(__x86_64__)
  if (cpu_isa() != Isa::base) o = filter_fours(filter.table, taps, outputs, out);
#endif
  for (; o < outputs; ++o) out[o] = filtered(filter.table, taps.next());
}

}  // namespace ndd
