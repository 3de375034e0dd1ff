// SPDX-License-Identifier: Apache-2.0
// Power spectra of windows of a signal. Window t begins at t * step, or half its length before where windows are centered.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ops/audio/fft.h"

namespace ndd::audio {

struct Framing {
  int64_t window_length, step, before;  // before: how far in front of t * step a window begins
  int64_t power;
  bool centered, reflect, time_major;

  // The middles of centered windows lie within the signal, or at its end; other windows lie in it entirely.
  NDD_HD int64_t windows(int64_t length) const {
    if (!centered && length < window_length) return 0;
    return (centered ? length : length - window_length) / step + 1;
  }

  // The index that element `at` of a padded signal is read from; -1 for a zero. The reflection does not repeat the border.
  NDD_HD int64_t source(int64_t at, int64_t length) const {
    if (at >= 0 && at < length) return at;
    if (!reflect) return -1;
    if (length == 1) return 0;
    // Reflected again and again where the padding is longer than the signal.
    const int64_t period = 2 * (length - 1), within = (at < 0 ? -at : at) % period;
    return within < length ? within : period - within;
  }
};

struct SpectrogramJob {
  Samples in, out;
  Framing framing;
  std::shared_ptr<const RealPlan> plan;
  std::shared_ptr<const std::vector<float>> window;
};

// A Hann window sampled at the middles of equal parts, as in DALI; SciPy's and torch's begin with 0.
inline std::shared_ptr<const std::vector<float>> hann_window(int64_t length) {
  std::vector<float> window(length);
  for (int64_t i = 0; i < length; ++i)
    window[i] = static_cast<float>(0.5 - 0.5 * std::cos(2.0 * M_PI * (static_cast<double>(i) + 0.5) / static_cast<double>(length)));
  return std::make_shared<const std::vector<float>>(std::move(window));
}

inline SpectrogramJob spectrogram_job(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& window, int64_t nfft,
                                      int64_t window_length, int64_t window_step, int64_t power, bool center_windows, bool reflect_padding,
                                      bool time_major, const Tensor& output, const MaybeTensor& output_shapes) {
  // Python checks these, but torch.ops can call the kernel directly, and windows of other sizes would be read out of bounds.
  if (nfft < 1 || window_length < 1 || window_length > nfft || window_step < 1)
    fail(Error::Value, "spectrogram: window_length must be from 1 to nfft, and window_step positive");
  check_transform("spectrogram", nfft, output);
  const Framing framing{window_length, window_step, center_windows ? window_length / 2 : 0, power, center_windows, reflect_padding, time_major};
  SpectrogramJob job{Samples(input, input_shapes), Samples(output, output_shapes), framing, real_plan(nfft), nullptr};
  if (input.dtype() != DType::float32 || output.dtype() != DType::float32) fail(Error::Type, "spectrogram: the signal must be float32");
  if (job.out.size() != job.in.size()) fail(Error::Value, "spectrogram: the output must have ", job.in.size(), " samples, got ", job.out.size());
  for (int64_t i = 0; i < job.in.size(); ++i) {
    const int64_t length = job.in.volume(i), count = framing.windows(length);
    for (int64_t d = 0; d < job.in.ndim(); ++d)
      if (job.in.shape(i)[d] != 1 && job.in.shape(i)[d] != length)
        fail("spectrogram: sample ", i, " must be a signal of one channel: only one extent may differ from 1");
    if (length < 1 || count < 1)
      fail("spectrogram: sample ", i, " has ", length, " elements, which is too short for windows of ", window_length,
           "; pad it, or use center_windows=True");
    if (job.out.volume(i) < count * job.plan->bins()) fail("spectrogram: the output is too small");
  }
  if (window) {
    check_numbers(*window);
    if (window->numel() != window_length || window->dtype() != DType::float32)
      fail(Error::Value, "spectrogram: window_fn must have window_length values, float32");
    const auto* values = static_cast<const float*>(window->data_ptr());
    job.window = std::make_shared<const std::vector<float>>(values, values + window_length);
  } else {
    static thread_local std::shared_ptr<const std::vector<float>> last;  // the window of the call before
    if (!last || static_cast<int64_t>(last->size()) != window_length) last = hann_window(window_length);
    job.window = last;
  }
  return job;
}

}  // namespace ndd::audio
