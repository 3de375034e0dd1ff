// SPDX-License-Identifier: Apache-2.0
// The kernels are those of spectra.cuh; here is only how window w reads its signal, reflected or zero beyond the ends.
#include "ops/audio/spectrogram.h"

#include "ops/audio/spectra.cuh"

namespace ndd::audio {
namespace {

// The Access of launch_spectra(): signal w of a sample is its window w.
struct Windows {
  struct Run {
    const float* in;
    float* out;
    int64_t length, signals;
  };

  Framing framing;
  const float* window;
  int64_t bins;

  __device__ bool bins_last() const { return framing.time_major; }
  // The framing is applied on reading: windows overlap, and copies of them would be several times the signal.
  __device__ float load(const Run& run, int64_t w, int64_t i) const {
    if (i >= framing.window_length) return 0.0f;
    const int64_t from = framing.source(w * framing.step - framing.before + i, run.length);
    return from < 0 ? 0.0f : window[i] * run.in[from];
  }
  __device__ void store(const Run& run, int64_t w, int64_t k, float value) const {
    run.out[framing.time_major ? w * bins + k : k * run.signals + w] = value;
  }
};

void spectrogram(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& window, int64_t nfft, int64_t window_length,
                 int64_t window_step, int64_t power, bool center_windows, bool reflect_padding, bool time_major, const Tensor& output,
                 const MaybeTensor& output_shapes) {
  const SpectrogramJob job = spectrogram_job(input, input_shapes, window, nfft, window_length, window_step, power, center_windows, reflect_padding,
                                             time_major, output, output_shapes);
  std::vector<Windows::Run> runs;
  for (int64_t i = 0; i < job.in.size(); ++i)
    runs.push_back(
        {static_cast<const float*>(job.in.data(i)), static_cast<float*>(job.out.data(i)), job.in.volume(i), job.framing.windows(job.in.volume(i))});
  // Before the upload: a launch without blocks is an error.
  if (runs.empty()) return;
  const CudaTable<float> factors(*job.window);
  launch_spectra("spectrogram", runs, Windows{job.framing, factors.data(), job.plan->bins()}, *job.plan, power);
}

}  // namespace
}  // namespace ndd::audio
NDD_KERNEL(spectrogram, CUDA, ndd::audio::spectrogram)
