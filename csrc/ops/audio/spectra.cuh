// SPDX-License-Identifier: Apache-2.0
// Spectra of real signals on the GPU: a block transforms a few of them, in shared memory where they fit. The arithmetic is that of the CPU (fft.h).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ndd/cuda.h"
#include "ops/audio/fft.h"

namespace ndd::audio {

constexpr int kSpectraThreads = 256;
constexpr int kMaxStages = 32;
constexpr int64_t kSharedBytes = 64 << 10;  // of a block: three blocks share a multiprocessor

struct DeviceStages {
  Stage stages[kMaxStages];
  int count;
  const float* twiddles;
};

struct DevicePlan {
  DeviceStages stages;  // of the transform, or of Bluestein's convolution
  int64_t n, numbers, extent;
  bool halved;
  const float *split, *chirp, *filter;  // chirp: null without a convolution
};

// Uploads the plan's tables. Must outlive the launch only: its memory is ordered by the stream.
class PlanTables {
 public:
  explicit PlanTables(const RealPlan& plan)
      : stages_((plan.complex.convolution ? *plan.complex.convolution : plan.complex)), twiddles_(stages_.twiddles), split_(plan.split),
        chirp_(plan.complex.chirp), filter_(plan.complex.filter) {
    plan_ = {{{}, static_cast<int>(stages_.stages.size()), twiddles_.data()},
             plan.n,
             plan.complex.n,
             plan.complex.extent(),
             plan.halved,
             split_.data(),
             plan.complex.convolution ? chirp_.data() : nullptr,
             filter_.data()};
    if (stages_.stages.size() > kMaxStages) fail(Error::Value, "the Fourier transform is too long");
    std::copy(stages_.stages.begin(), stages_.stages.end(), plan_.stages.stages);
  }
  const DevicePlan& plan() const { return plan_; }

 private:
  const ComplexPlan& stages_;
  CudaTable<float> twiddles_, split_, chirp_, filter_;
  DevicePlan plan_;
};

// The threads of the block share the butterflies of a stage: element e is p * row + q, of which the lanes are the fastest index.
template <int R>
__device__ void run_stage(const Stage& stage, const float* twiddles, int64_t lanes, const float* in_re, const float* in_im, float* out_re,
                          float* out_im) {
  // Butterfly p, q reads its R numbers `numbers` apart and writes them `row` apart.
  const int64_t row = stage.stride * lanes, numbers = stage.count * row;
  for (int64_t e = threadIdx.x; e < numbers; e += blockDim.x) {
    const int64_t p = e / row, out = e + p * row * (R - 1);
    butterfly<R>(in_re + e, in_im + e, numbers, twiddles + p * (2 * R - 2), out_re + out, out_im + out, row);
  }
}

__device__ inline void run_stages(const DeviceStages& plan, int64_t lanes, float*& re, float*& im, float*& other_re, float*& other_im) {
  for (int s = 0; s < plan.count; ++s) {
    const Stage& stage = plan.stages[s];
    const float* twiddles = plan.twiddles + stage.twiddles;
    switch (stage.radix) {
      case 2: run_stage<2>(stage, twiddles, lanes, re, im, other_re, other_im); break;
      case 3: run_stage<3>(stage, twiddles, lanes, re, im, other_re, other_im); break;
      case 4: run_stage<4>(stage, twiddles, lanes, re, im, other_re, other_im); break;
      case 5: run_stage<5>(stage, twiddles, lanes, re, im, other_re, other_im); break;
      case 7: run_stage<7>(stage, twiddles, lanes, re, im, other_re, other_im); break;
      case 11: run_stage<11>(stage, twiddles, lanes, re, im, other_re, other_im); break;
      default: run_stage<13>(stage, twiddles, lanes, re, im, other_re, other_im); break;
    }
    // Results alternate between the buffers; std::swap() is not available in device code.
    float* swapped = re;
    re = other_re, other_re = swapped, swapped = im, im = other_im, other_im = swapped;
    __syncthreads();
  }
}

__device__ inline void multiply(const float* factors, int64_t n, int64_t lanes, float sign_in, float sign_out, float* re, float* im) {
  for (int64_t e = threadIdx.x; e < n * lanes; e += blockDim.x) {
    const float c = factors[e / lanes * 2], s = factors[e / lanes * 2 + 1], x = re[e], y = sign_in * im[e];
    re[e] = x * c - y * s;
    im[e] = sign_out * (x * s + y * c);
  }
  __syncthreads();
}

// Access has a struct Run with the number of `signals`; it loads element i of signal w of a run and stores bin k.
template <class Access>
__global__ void __launch_bounds__(kSpectraThreads)
    spectra_gpu(const __grid_constant__ TableRows<typename Access::Run> runs, int64_t count, Access access, const __grid_constant__ DevicePlan plan,
                int64_t lanes, int64_t power, float* scratch) {
  extern __shared__ float shared[];
  const int64_t part = plan.extent * lanes, bins = plan.n / 2 + 1, half = plan.n / 2;
  // Each block has its own part of the scratch memory.
  float* base = scratch ? scratch + (int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * 4 * part : shared;
  for (int64_t r = blockIdx.y; r < count; r += gridDim.y) {
    const auto& run = runs[r];
    for (int64_t first = blockIdx.x * lanes; first < run.signals; first += int64_t{gridDim.x} * lanes) {
      float *re = base, *im = re + part, *other_re = im + part, *other_im = other_re + part;
      for (int64_t e = threadIdx.x; e < part; e += blockDim.x) {
        // Neighboring threads load neighboring elements of a signal.
        const int64_t l = e / plan.extent, i = e - l * plan.extent, w = first + l;
        // Padding, and lanes beyond the last signal, are zero.
        const bool exists = w < run.signals && i < plan.numbers;
        re[i * lanes + l] = exists ? access.load(run, w, plan.halved ? 2 * i : i) : 0.0f;
        im[i * lanes + l] = exists && plan.halved ? access.load(run, w, 2 * i + 1) : 0.0f;
      }
      __syncthreads();
      if (plan.chirp) multiply(plan.chirp, plan.numbers, lanes, 1.0f, 1.0f, re, im);
      run_stages(plan.stages, lanes, re, im, other_re, other_im);
      if (plan.chirp) {
        multiply(plan.filter, plan.extent, lanes, 1.0f, -1.0f, re, im);
        run_stages(plan.stages, lanes, re, im, other_re, other_im);
        // Bluestein's algorithm as on the CPU: the conjugate of the result is taken while it is multiplied.
        multiply(plan.chirp, plan.numbers, lanes, -1.0f, 1.0f, re, im);
      }
      for (int64_t e = threadIdx.x; e < bins * lanes; e += blockDim.x) {
        // Neighboring threads store neighboring elements of the output.
        const int64_t k = access.bins_last() ? e % bins : e / lanes, l = access.bins_last() ? e / bins : e % lanes;
        if (first + l >= run.signals) continue;
        const int64_t at = (plan.halved && k == half ? 0 : k) * lanes + l, mirrored = (k == 0 ? 0 : half - k) * lanes + l;
        const float value = plan.halved ? power_of_pair(re[at], im[at], re[mirrored], im[mirrored], plan.split[2 * k], plan.split[2 * k + 1])
                                        : re[at] * re[at] + im[at] * im[at];
        access.store(run, first + l, k, power == 1 ? sqrtf(value) : value);
      }
      __syncthreads();
    }
  }
}

// All signals of all runs in one launch. Several signals a block give rows of neighboring windows; expected is the time of reading every window once
// from the second-level cache and writing the result once, about half of the bandwidth.
template <class Access>
void launch_spectra(const char* op, const std::vector<typename Access::Run>& runs, const Access& access, const RealPlan& plan, int64_t power) {
  int64_t max_signals = 0;
  for (const auto& run : runs) max_signals = std::max(max_signals, run.signals);
  if (max_signals == 0) return;
  const PlanTables tables(plan);
  const KernelTable<typename Access::Run> table(runs);
  const int64_t number_bytes = 4 * static_cast<int64_t>(sizeof(float)) * plan.complex.extent();
  int64_t lanes = 8;
  // As many signals a block as fit in shared memory, but no more than there are.
  while (lanes > 1 && (lanes * number_bytes > kSharedBytes || lanes / 2 >= max_signals)) lanes /= 2;
  const bool is_shared = lanes * number_bytes <= kSharedBytes;
  int64_t x = std::min<int64_t>((max_signals + lanes - 1) / lanes, 1 << 16), y = std::min<int64_t>(runs.size(), 65535);
  if (!is_shared) {  // long signals: fewer blocks, so their scratch memory stays below a gigabyte
    const int64_t blocks = std::max<int64_t>(1, (int64_t{1} << 30) / number_bytes);
    x = std::min(x, blocks);
    y = std::min(y, std::max<int64_t>(1, blocks / x));
  }
  const CudaBuffer scratch(is_shared ? 0 : x * y * number_bytes);
  // More than the 48 KiB that a kernel may use without asking.
  check_cuda(cudaFuncSetAttribute(spectra_gpu<Access>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes)), op);
  spectra_gpu<Access>
      <<<dim3(static_cast<unsigned>(x), static_cast<unsigned>(y)), kSpectraThreads, is_shared ? lanes * number_bytes : 0, current_cuda_stream()>>>(
          table.rows(), static_cast<int64_t>(runs.size()), access, tables.plan(), lanes, power,
          is_shared ? nullptr : static_cast<float*>(scratch.data()));
  check_launch(op);
}

}  // namespace ndd::audio
