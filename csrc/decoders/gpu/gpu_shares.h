// SPDX-License-Identifier: Apache-2.0
// How a batch is divided among the three decoders of a GPU: its JPEG engines ("hardware"), CUDA with Huffman decoding on a CPU thread, and
// the CPU. The shares follow from recent times per pixel, so that all three end at the same time.
#pragma once

#include <algorithm>

namespace ndd {

// Nanoseconds per pixel. Initial values: libjpeg-turbo takes 3.2 for 500x375 files on one thread (measured), half of it for Huffman
// decoding; the value of the hardware is a guess. After some ten measurements they no longer matter.
struct DecodeTimes {
  double hardware = 0.3;  // all engines together
  double cuda_host = 1.6;  // a thread that feeds an idle CUDA stream
  double cuda_stream = 1.6;  // a thread that feeds it continuously, and waits if the stream is slower
  double cpu = 3.2;  // a thread that decodes without CUDA
};

// Exponential moving average.
inline void update_average(double& time, double now) { time += 0.1 * (now - time); }

// Returns the share of a CPU thread's images that goes to CUDA: all of them unless the thread waits for the GPU, which may be busy training
// a model. Then x is chosen such that the thread, x host + (1 - x) cpu, takes as long as the stream, x stream. Waits below 15 % are noise.
inline double cuda_share(const DecodeTimes& t) {
  if (t.cuda_stream <= 1.15 * t.cuda_host) return 1.0;
  return t.cpu / (t.cuda_stream - t.cuda_host + t.cpu);
}

// Returns the share of a batch for the hardware. Each side keeps at least 5 %, because otherwise its time would not be measured again.
inline double hardware_share(const DecodeTimes& t, int threads) {
  const double x = cuda_share(t);
  const double thread = std::max(x * t.cuda_host + (1 - x) * t.cpu, x * t.cuda_stream);
  return std::clamp(thread / (thread + t.hardware * threads), 0.05, 0.95);
}

}  // namespace ndd
