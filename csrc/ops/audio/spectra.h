// SPDX-License-Identifier: Apache-2.0
// Power spectra of real signals on the CPU, for spectrogram and power_spectrum.
#pragma once

#include <cstdint>

#include "ndd/line_vector.h"
#include "ndd/simd.h"
#include "ops/audio/fft.h"
#include "ops/audio/lanes.h"

namespace ndd::audio {

// One stage. For a given p the lanes of all `stride` numbers are contiguous, so the inner loop vectorizes with constant twiddle factors.
template <int R, class T>
inline NDD_ALWAYS_INLINE void run_stage(const Stage& stage, const T* twiddles, int64_t lanes, const T* from_re, const T* from_im, T* to_re,
                                        T* to_im) {
  const int64_t row = stage.stride * lanes, step = stage.count * row;
  for (int64_t p = 0; p < stage.count; ++p) {
    const T* in_re = from_re + p * row;
    const T* in_im = from_im + p * row;
    T* out_re = to_re + p * row * R;
    T* out_im = to_im + p * row * R;
    T factors[2 * R];
    NDD_UNROLL
    for (int k = 0; k < 2 * R - 2; ++k) factors[k] = twiddles[p * (2 * R - 2) + k];
    const int64_t n = row;
#pragma GCC ivdep
    for (int64_t q = 0; q < n; ++q) butterfly<R>(in_re + q, in_im + q, step, factors, out_re + q, out_im + q, n);
  }
}

// Transforms `lanes` signals; element i of lane l is at i * lanes + l. Stockham's steps alternate between two buffers: on return re and im point at the
// result, and may have been exchanged with the others.
void transform(const ComplexPlan& plan, int64_t lanes, float*& re, float*& im, float*& other_re, float*& other_im);

// A group of signals. Either the elements of each are contiguous (in_step 1), or the signals are interleaved, in[l] = in[0] + l.
struct Signals {
  int64_t count;  // up to kMaxLanes
  const float* in[kMaxLanes];
  int64_t in_step;
  float* out[kMaxLanes];
  int64_t out_step;  // between bins, as in_step
};

// Returns how many of `signals` signals to transform together: fewer of long ones, whose buffers would leave the cache.
int64_t lanes_of(const RealPlan& plan, int64_t signals);

// out[k] = |X[k]|^power, power 1 or 2, for every bin k, of `length` elements multiplied by `window` (null: by 1) and zero-padded.
void spectra(const RealPlan& plan, int64_t lanes, const Signals& signals, int64_t length, const float* window, int64_t power,
             LineVector<float>& scratch);

}  // namespace ndd::audio
