// SPDX-License-Identifier: Apache-2.0
#include "ops/audio/power_spectrum.h"

#include <algorithm>

#include "ops/audio/spectra.h"

namespace ndd::audio {
namespace {

void spectra_of(const PowerJob& job, int64_t i) {
  static thread_local LineVector<float> scratch;
  const AxisShape shape = job.shape(i);
  if (job.out.volume(i) == 0) return;
  const auto plan = real_plan(job.length(i));
  const auto* in = static_cast<const float*>(job.in.data(i));
  auto* out = static_cast<float*>(job.out.data(i));
  const int64_t bins = plan->bins(), used = std::min(shape.extent, plan->n);
  const bool rows = shape.inner == 1;
  // Neighbors: rows one after the other, or what lies side by side.
  const int64_t together = rows ? shape.outer : shape.inner, groups = rows ? 1 : shape.outer, lanes = lanes_of(*plan, together);
  for (int64_t g = 0; g < groups; ++g) {
    const float* from = in + g * shape.extent * shape.inner;
    float* to = out + g * bins * shape.inner;
    for (int64_t first = 0; first < together; first += lanes) {
      Signals signals{std::min(lanes, together - first), {}, shape.inner, {}, shape.inner};
      for (int64_t l = 0; l < signals.count; ++l) {
        signals.in[l] = from + (first + l) * (rows ? shape.extent : 1);
        signals.out[l] = to + (first + l) * (rows ? bins : 1);
      }
      spectra(*plan, lanes, signals, used, nullptr, job.power, scratch);
    }
  }
}

void power_spectrum(const Tensor& input, const MaybeTensor& input_shapes, int64_t axis, int64_t nfft, int64_t power, const Tensor& output,
                    const MaybeTensor& output_shapes) {
  const PowerJob job = power_job(input, input_shapes, axis, nfft, power, output, output_shapes);
  launch_cpu("power_spectrum", job.in.size(), 3.0 * (job.in.mean_volume() + job.out.mean_volume()), {}, [job](int64_t i) { spectra_of(job, i); });
}

}  // namespace
}  // namespace ndd::audio
NDD_KERNEL(power_spectrum, CPU, ndd::audio::power_spectrum)
