// SPDX-License-Identifier: Apache-2.0
// Spectra of real signals on the CPU: what spectrogram and power_spectrum share.
#pragma once

#include <cstdint>

#include "ndd/line_vector.h"
#include "ops/audio/fft.h"
#include "ops/audio/lanes.h"

namespace ndd::audio {

// The transform of `lanes` signals; element i of lane l is at i * lanes + l. The result is in re and im, which may have been exchanged with the others.
void transform(const ComplexPlan& plan, int64_t lanes, float*& re, float*& im, float*& other_re, float*& other_im);

// Some signals. Either the elements of each lie one behind the other (step 1), or those of the signals lie side by side, in[l] = in[0] + l.
struct Signals {
  int64_t count;  // up to kMostLanes
  const float* in[kMostLanes];
  int64_t in_step;
  float* out[kMostLanes];
  int64_t out_step;  // between bins, as in_step
};

// How many signals are best transformed at a time, of `signals` in all.
int64_t lanes_of(const RealPlan& plan, int64_t signals);

// out[k] = |X[k]|^power, power 1 or 2, for every bin k, of `length` elements multiplied by `window` (null: by 1) and filled up with zeros.
void spectra(const RealPlan& plan, int64_t lanes, const Signals& signals, int64_t length, const float* window, int64_t power,
             LineVector<float>& scratch);

}  // namespace ndd::audio
