// SPDX-License-Identifier: Apache-2.0
// Power spectra of real signals on the CPU, for spectrogram and power_spectrum.
#pragma once

#include <cstdint>

#include "ndd/line_vector.h"
#include "ops/audio/fft.h"
#include "ops/audio/lanes.h"

namespace ndd::audio {

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
