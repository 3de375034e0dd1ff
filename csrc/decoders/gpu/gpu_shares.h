// SPDX-License-Identifier: Apache-2.0
// Which part of a batch each of a GPU's three decoders gets: its JPEG engines ("hardware"), CUDA with the Huffman decoding on a CPU thread, and the
// CPU. The shares follow from the time that a pixel took lately, so that all of them end at the same time.
#pragma once

#include <algorithm>

namespace ndd {

// Nanoseconds a pixel. The first values: libjpeg-turbo takes 3.2 for 500x375 files on one thread (measured), the Huffman decoding is half of that; a
// guess for the hardware. Ten measurements later they are forgotten.
struct DecodeTimes {
  double hardware = 0.3;     // all engines together
  double cuda_host = 1.6;    // of a thread that feeds a CUDA stream which has nothing to do
  double cuda_stream = 1.6;  // of one that feeds it all the time, and waits where the stream is slower
  double cpu = 3.2;          // of a thread that decodes by itself
};

inline void measured(double& time, double now) { time += 0.1 * (now - time); }

// Of what a CPU thread works on, the part that goes to CUDA. All of it unless the thread waits for the GPU, which may have a model to train: then x for
// CUDA and 1 - x for the CPU keep the thread as long, x host + (1 - x) cpu, as the x keep the stream. Waits below 15 % are noise.
inline double cuda_share(const DecodeTimes& t) {
  if (t.cuda_stream <= 1.15 * t.cuda_host) return 1.0;
  return t.cpu / (t.cuda_stream - t.cuda_host + t.cpu);
}

// Of a batch, the part for the hardware. A little is left for either side, or its time would never be measured again.
inline double hardware_share(const DecodeTimes& t, int threads) {
  const double x = cuda_share(t);
  const double thread = std::max(x * t.cuda_host + (1 - x) * t.cpu, x * t.cuda_stream);
  return std::clamp(thread / (thread + t.hardware * threads), 0.05, 0.95);
}

}  // namespace ndd
