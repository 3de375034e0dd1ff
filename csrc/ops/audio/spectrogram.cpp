// SPDX-License-Identifier: Apache-2.0
#include "ops/audio/spectrogram.h"

#include <algorithm>

#include "ops/audio/scratch.h"
#include "ops/audio/spectra.h"

namespace ndd::audio {
namespace {

// An element of a window takes 1 to 3 ns.
constexpr double kNanosecondsPerElement = 1.5;

void spectrogram_of(const SpectrogramJob& job, int64_t i) {
  static thread_local LineVector<float> scratch, edges;
  const Framing& framing = job.framing;
  const auto* in = static_cast<const float*>(job.in.data(i));
  auto* out = static_cast<float*>(job.out.data(i));
  const int64_t length = job.in.volume(i), windows = framing.windows(length), bins = job.plan->bins(), size = framing.window_length;
  const int64_t lanes = lanes_of(*job.plan, windows);
  // One row for each lane: all windows of a group may reach beyond a short signal.
  float* const edge_rows = scratch_of(edges, lanes * size);
  for (int64_t first = 0; first < windows; first += lanes) {
    // Time-major spectra are rows of bins; otherwise bin k of all windows is a row, and neighboring windows lie side by side in it.
    Signals signals{std::min(lanes, windows - first), {}, 1, {}, framing.time_major ? 1 : windows};
    for (int64_t l = 0; l < signals.count; ++l) {
      const int64_t t = first + l, begin = t * framing.step - framing.before;
      signals.in[l] = in + begin;
      // Windows that reach beyond the signal are copied with their padding.
      if (begin < 0 || begin + size > length) {
        float* edge = edge_rows + l * size;
        for (int64_t k = 0; k < size; ++k) {
          const int64_t from = framing.source(begin + k, length);
          edge[k] = from < 0 ? 0.0f : in[from];
        }
        signals.in[l] = edge;
      }
      signals.out[l] = framing.time_major ? out + t * bins : out + t;
    }
    spectra(*job.plan, lanes, signals, size, job.window->data(), framing.power, scratch);
  }
}

void spectrogram(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& window, int64_t nfft, int64_t window_length,
                 int64_t window_step, int64_t power, bool center_windows, bool reflect_padding, bool time_major, const Tensor& output,
                 const MaybeTensor& output_shapes) {
  const SpectrogramJob job = spectrogram_job(input, input_shapes, window, nfft, window_length, window_step, power, center_windows, reflect_padding,
                                             time_major, output, output_shapes);
  const double elements = job.in.mean_volume() / static_cast<double>(window_step) * static_cast<double>(nfft);
  launch_cpu("spectrogram", job.in.size(), kNanosecondsPerElement * elements, {}, [job](int64_t i) { spectrogram_of(job, i); });
}

}  // namespace
}  // namespace ndd::audio
NDD_KERNEL(spectrogram, CPU, ndd::audio::spectrogram)
