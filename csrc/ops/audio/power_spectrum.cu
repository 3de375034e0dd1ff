// SPDX-License-Identifier: Apache-2.0
// The kernels are those of spectra.cuh; here is only where signals begin and how far their elements are apart.
#include "ops/audio/power_spectrum.h"

#include <map>

#include "ops/audio/spectra.cuh"

namespace ndd::audio {
namespace {

// The Access of launch_spectra(): signal w of a sample [outer][extent][inner] is one of outer * inner.
struct Along {
  struct Run {
    const float* in;
    float* out;
    int64_t extent, inner, signals;
  };

  int64_t bins;
  bool rows;  // signals are rows

  __device__ bool bins_last() const { return rows; }
  __device__ float load(const Run& run, int64_t w, int64_t i) const {
    // Zero-padded to the length of the transform.
    return i < run.extent ? run.in[(w / run.inner * run.extent + i) * run.inner + w % run.inner] : 0.0f;
  }
  __device__ void store(const Run& run, int64_t w, int64_t k, float value) const {
    run.out[(w / run.inner * bins + k) * run.inner + w % run.inner] = value;
  }
};

void power_spectrum(const Tensor& input, const MaybeTensor& input_shapes, int64_t axis, int64_t nfft, int64_t power, const Tensor& output,
                    const MaybeTensor& output_shapes) {
  const PowerJob job = power_job(input, input_shapes, axis, nfft, power, output, output_shapes);
  std::map<int64_t, std::vector<Along::Run>> by_length;  // a launch for each length of the transform, usually one
  bool rows = true;
  for (int64_t i = 0; i < job.in.size(); ++i) {
    const AxisShape shape = job.shape(i);
    // One layout for the launch: of mixed batches all are treated as strided, which is right for rows too.
    rows = rows && shape.inner == 1;
    if (job.out.volume(i) > 0)
      by_length[job.length(i)].push_back(
          {static_cast<const float*>(job.in.data(i)), static_cast<float*>(job.out.data(i)), shape.extent, shape.inner, shape.outer * shape.inner});
  }
  for (const auto& [length, runs] : by_length) {
    const auto plan = real_plan(length);
    launch_spectra("power_spectrum", runs, Along{plan->bins(), rows}, *plan, job.power);
  }
}

}  // namespace
}  // namespace ndd::audio
NDD_KERNEL(power_spectrum, CUDA, ndd::audio::power_spectrum)
