// SPDX-License-Identifier: Apache-2.0
// Triangular filters whose corners are equally spaced on a mel scale.
#include <cmath>
#include <tuple>

#include "ndd/kept.h"
#include "ops/audio/bands.h"

namespace ndd::audio {
namespace {

// Slaney's: linear up to 1000 Hz, 15 mel there, then 27 mel for a factor of 6.4.
double slaney_of(double hertz) { return hertz < 1000.0 ? hertz * 3.0 / 200.0 : 15.0 + std::log(hertz / 1000.0) * 27.0 / std::log(6.4); }
double hertz_of_slaney(double mel) { return mel < 15.0 ? mel * 200.0 / 3.0 : 1000.0 * std::exp((mel - 15.0) * std::log(6.4) / 27.0); }
// O'Shaughnessy's, that of the HTK.
double htk_of(double hertz) { return 1127.0 * std::log1p(hertz / 700.0); }
double hertz_of_htk(double mel) { return 700.0 * std::expm1(mel / 1127.0); }

// Everything that the filters depend on: bins, sample rate, lowest and highest frequency, filters, formula, normalization.
using Key = std::tuple<int64_t, double, double, double, int64_t, bool, bool>;

// Filter m rises from corner m to 1 at corner m + 1 and falls to 0 at corner m + 2; `normalize` gives it the area 1 in hertz.
BandsPtr mel_bands(const Key& key) {
  const int64_t bins = std::get<0>(key), filters = std::get<4>(key);
  const double sample_rate = std::get<1>(key), low = std::get<2>(key), high = std::get<3>(key);
  const bool htk = std::get<5>(key), normalize = std::get<6>(key);
  auto bands = std::make_shared<Bands>();
  bands->inputs = bins;
  const double first = htk ? htk_of(low) : slaney_of(low), last = htk ? htk_of(high) : slaney_of(high);
  // In doubles: neighboring corners of many narrow filters differ in the last bits of a float.
  const auto corner = [&](int64_t m) {
    const double mel = first + (last - first) * static_cast<double>(m) / static_cast<double>(filters + 1);
    return htk ? hertz_of_htk(mel) : hertz_of_slaney(mel);
  };
  // Hertz from bin to bin: the last one is half of the sample rate.
  const double step = bins > 1 ? sample_rate / 2.0 / static_cast<double>(bins - 1) : 0.0;
  for (int64_t m = 0; m < filters; ++m) {
    const double left = corner(m), middle = corner(m + 1), right = corner(m + 2), factor = normalize ? 2.0 / (right - left) : 1.0;
    BandRow row{0, 0, static_cast<int64_t>(bands->weights.size())};
    // A single bin has no frequency but 0.
    const int64_t begin = step > 0 ? std::max<int64_t>(0, static_cast<int64_t>(std::floor(left / step))) : 0;
    for (int64_t k = begin; k < bins && static_cast<double>(k) * step <= right; ++k) {
      const double hertz = static_cast<double>(k) * step;
      // The lower one of both sides of the triangle; negative outside, and NaN for a triangle without width.
      const double weight = std::min((hertz - left) / (middle - left), (right - hertz) / (right - middle));
      if (!(weight > 0)) {
        if (row.count) break;
        continue;
      }
      if (row.count++ == 0) row.first = static_cast<int32_t>(k);
      bands->weights.push_back(static_cast<float>(weight * factor));
    }
    bands->rows.push_back(row);
  }
  return bands;
}

void mel_filter_bank(const Tensor& input, const MaybeTensor& input_shapes, int64_t axis, double sample_rate, double freq_low, double freq_high,
                     int64_t nfilter, bool htk, bool normalize, const Tensor& output, const MaybeTensor& output_shapes) {
  // Kept from call to call: the same few banks serve all batches, and 64 are more than a program has.
  static auto* const cache = new Kept<Key, Bands>(64);  // never destroyed: threads use it to the end of the process
  const Samples in(input, input_shapes), out(output, output_shapes);
  apply_bands(
      "mel_filter_bank", in, out, axis, 4.0, [=](int64_t) { return nfilter; },
      [=](int64_t bins) {
        const Key key{bins, sample_rate, freq_low, freq_high, nfilter, htk, normalize};
        return cache->get(key, [&] { return mel_bands(key); });
      });
}

}  // namespace
}  // namespace ndd::audio
NDD_HOST_KERNELS(mel_filter_bank, ndd::audio::mel_filter_bank)
