// SPDX-License-Identifier: Apache-2.0
// A task is a sample with its signals side by side, or a group of samples that have one signal each, so the lanes are full either way.
#include "ops/audio/power_spectrum.h"

#include <algorithm>

#include "ndd/stream/stream.h"
#include "ops/audio/spectra.h"

namespace ndd::audio {
namespace {

// Per element; Bluestein's algorithm transforms at least three times as many numbers, twice.
double nanoseconds_of(const RealPlan& plan) { return plan.complex.convolution ? 12.0 : 2.0; }

// The signals of a sample or of several: signal `s` begins at in(s) and goes to out(s), with `step` elements from one to the next and from bin to bin.
template <class In, class Out>
void spectra_of_signals(const RealPlan& plan, int64_t signals, int64_t used, int64_t power, int64_t step, In in, Out out) {
  static thread_local LineVector<float> scratch;
  for (int64_t first = 0; first < signals;) {
    const int64_t lanes = lanes_of(plan, signals - first);
    Signals group{std::min(lanes, signals - first), {}, step, {}, step};
    for (int64_t l = 0; l < group.count; ++l) {
      group.in[l] = in(first + l);
      group.out[l] = out(first + l);
    }
    spectra(plan, lanes, group, used, nullptr, power, scratch);
    first += group.count;
  }
}

void spectra_of(const PowerJob& job, int64_t i) {
  const AxisShape shape = job.shape(i);
  if (job.out.volume(i) == 0) return;
  const auto plan = real_plan(job.length(i));
  const auto* in = static_cast<const float*>(job.in.data(i));
  auto* out = static_cast<float*>(job.out.data(i));
  const int64_t bins = plan->bins(), used = std::min(shape.extent, plan->n);
  if (shape.inner == 1) {  // rows one after the other
    return spectra_of_signals(
        *plan, shape.outer, used, job.power, 1, [=](int64_t s) { return in + s * shape.extent; }, [=](int64_t s) { return out + s * bins; });
  }
  for (int64_t g = 0; g < shape.outer; ++g) {  // side by side
    const float* from = in + g * shape.extent * shape.inner;
    float* to = out + g * bins * shape.inner;
    spectra_of_signals(*plan, shape.inner, used, job.power, shape.inner, [=](int64_t s) { return from + s; }, [=](int64_t s) { return to + s; });
  }
}

// Signals of equal length that are samples of their own, which alone have no lanes: those of group g, kMaxLanes of them.
void spectra_of_group(const PowerJob& job, const RealPlan& plan, int64_t g) {
  const int64_t first = g * kMaxLanes, count = std::min<int64_t>(kMaxLanes, job.in.size() - first), used = std::min(job.in.shape(0)[0], plan.n);
  spectra_of_signals(
      plan, count, used, job.power, 1, [&](int64_t s) { return static_cast<const float*>(job.in.data(first + s)); },
      [&](int64_t s) { return static_cast<float*>(job.out.data(first + s)); });
}

void power_spectrum(const Tensor& input, const MaybeTensor& input_shapes, int64_t axis, int64_t nfft, int64_t power, const Tensor& output,
                    const MaybeTensor& output_shapes) {
  const PowerJob job = power_job(input, input_shapes, axis, nfft, power, output, output_shapes);
  const int64_t samples = job.in.size();
  if (samples == 0) return;
  const auto plan = real_plan(job.length(0));
  const double nanoseconds = nanoseconds_of(*plan) * job.in.mean_volume();
  if (job.in.dense() && job.in.ndim() == 1 && lanes_of(*plan, samples) > 1) {
    const int64_t groups = (samples + kMaxLanes - 1) / kMaxLanes, together = std::min<int64_t>(samples, kMaxLanes);
    return launch_groups("power_spectrum", samples, groups, nanoseconds * static_cast<double>(together),
                         [job, plan](int64_t g) { spectra_of_group(job, *plan, g); });
  }
  launch_cpu("power_spectrum", samples, nanoseconds, {}, [job](int64_t i) { spectra_of(job, i); });
}

}  // namespace
}  // namespace ndd::audio
NDD_KERNEL(power_spectrum, CPU, ndd::audio::power_spectrum)
