// SPDX-License-Identifier: Apache-2.0
// The first coefficients of discrete cosine transforms of types 1 to 4 along an axis, with liftering. As a dense matrix, because only a
// few coefficients of a short axis are computed.
#include <cmath>
#include <tuple>

#include "ndd/kept.h"
#include "ops/audio/bands.h"

namespace ndd::audio {
namespace {

// Everything that the matrix depends on: extent, coefficients, type, normalization, liftering.
using Key = std::tuple<int64_t, int64_t, int64_t, bool, double>;

// Element i of basis function k, before normalization.
double cosine_of(int64_t type, int64_t k, int64_t i, int64_t n) {
  const auto a = static_cast<double>(k), b = static_cast<double>(i), length = static_cast<double>(n);
  if (type == 1) return i == 0 ? 0.5 : i == n - 1 ? (k % 2 ? -0.5 : 0.5) : std::cos(M_PI * a * b / (length - 1.0));
  if (type == 2) return std::cos(M_PI * a * (b + 0.5) / length);
  if (type == 3) return i == 0 ? 0.5 : std::cos(M_PI * (a + 0.5) * b / length);
  return std::cos(M_PI * (a + 0.5) * (b + 0.5) / length);
}

BandsPtr cosines(const Key& key) {
  const auto [n, coefficients, type, normalize, lifter] = key;
  auto bands = std::make_shared<Bands>();
  bands->inputs = n;
  for (int64_t k = 0; k < std::min(coefficients, n); ++k) {
    bands->rows.push_back({0, static_cast<int32_t>(n), static_cast<int64_t>(bands->weights.size())});
    // Liftering scales coefficients, which are rows: it is folded into the matrix and costs nothing per sample.
    const double lift = lifter != 0.0 ? 1.0 + lifter / 2.0 * std::sin(M_PI * static_cast<double>(k + 1) / lifter) : 1.0;
    for (int64_t i = 0; i < n; ++i) {
      double scale = normalize ? std::sqrt(2.0 / static_cast<double>(n)) : 1.0;
      // Orthonormal transforms have other factors for the constant function.
      if (normalize && type == 2 && k == 0) scale *= std::sqrt(0.5);
      if (normalize && type == 3 && i == 0) scale *= std::sqrt(2.0);
      bands->weights.push_back(static_cast<float>(lift * scale * cosine_of(type, k, i, n)));
    }
  }
  return bands;
}

void mfcc(const Tensor& input, const MaybeTensor& input_shapes, int64_t axis, int64_t dct_type, double lifter, int64_t n_mfcc, bool normalize,
          const Tensor& output, const MaybeTensor& output_shapes) {
  static auto* const cache = new Kept<Key, Bands>(64);  // never destroyed: threads use it to the end of the process
  const Samples in(input, input_shapes), out(output, output_shapes);
  const double weights = in.size() > 0 && axis >= 0 && axis < in.ndim() ? static_cast<double>(in.shape(0)[axis]) : 1.0;
  apply_bands(
      "mfcc", in, out, axis, weights, [=](int64_t n) { return std::min(n_mfcc, n); },
      [=](int64_t n) {
        // Checked for each extent, as ragged samples have several. The formula divides by n - 1.
        if (dct_type == 1 && n < 2) fail("mfcc: dct_type=1 needs at least 2 elements, got ", n);
        const Key key{n, n_mfcc, dct_type, normalize, lifter};
        return cache->get(key, [&] { return cosines(key); });
      });
}

}  // namespace
}  // namespace ndd::audio
NDD_HOST_KERNELS(mfcc, ndd::audio::mfcc)
