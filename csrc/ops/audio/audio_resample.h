// SPDX-License-Identifier: Apache-2.0
// Resampling of signals with channels in the last dimension.
#pragma once

#include <cmath>
#include <optional>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/resample/sinc_filter.h"

namespace ndd::audio {

// The affine map between the range of an integer type and -1 to 1; the middle of an unsigned type is silence, 0.
struct Scaling {
  float factor = 1.0f, shift = 0.0f;
  NDD_HD bool keeps_values() const { return factor == 1.0f && shift == 0.0f; }
  NDD_HD float operator()(float value) const { return value * factor + shift; }
};

// Divided by the largest value, not by the number of values: the largest one becomes 1, the smallest one of a signed type slightly less than -1.
inline Scaling to_unit(DType dtype) {
  if (is_floating_dtype(dtype)) return {};
  const bool is_unsigned = dtype == DType::uint8 || dtype == DType::uint16 || dtype == DType::uint32;
  return is_unsigned ? Scaling{2.0f / value_range(dtype), -1.0f} : Scaling{1.0f / value_range(dtype), 0.0f};
}

inline Scaling from_unit(DType dtype) {
  if (is_floating_dtype(dtype)) return {};
  const bool is_unsigned = dtype == DType::uint8 || dtype == DType::uint16 || dtype == DType::uint32;
  return is_unsigned ? Scaling{0.5f * value_range(dtype), 0.5f * value_range(dtype)} : Scaling{value_range(dtype), 0.0f};
}

struct ResampleJob {
  Samples in, out;
  std::optional<Args<double>> ratio;  // of the rates, in / out; by default the ratio of the lengths
  int64_t lobes;
  bool antialias;
  Scaling load;  // to the range of the result's type, before anything else, as in DALI

  int64_t channels(int64_t i) const { return in.ndim() > 1 ? in.shape(i)[1] : 1; }

  std::shared_ptr<const SincFilter> filter(int64_t i) const {
    const int64_t length = out.shape(i)[0];
    const double value = ratio ? (*ratio)(i) : static_cast<double>(in.shape(i)[0]) / static_cast<double>(length);
    if (!(value > 0.0) || !(value < 1e12)) fail("audio_resample: sample ", i, ": the ratio of the rates must be positive, got ", value);
    // Each output reads that many elements: a ratio out of a hostile header must not take hours or fill the memory with weights.
    constexpr double kMaxTaps = 1 << 20;
    if (const double most = kMaxTaps / static_cast<double>(2 * lobes); antialias && value > most)
      fail("audio_resample: sample ", i, ": antialias is for in_rate / out_rate up to ", static_cast<int64_t>(most), " with this quality, got ",
           value, " (with scale or out_length the ratio of the lengths); pass a higher out_rate, a lower quality or antialias=False");
    return sinc_filter(value, length, lobes, antialias);
  }
};

inline ResampleJob resample_job(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& ratio, double quality, bool antialias,
                                const Tensor& output, const MaybeTensor& output_shapes) {
  ResampleJob job{Samples(input, input_shapes),
                  Samples(output, output_shapes),
                  ratio ? std::optional<Args<double>>(*ratio) : std::nullopt,
                  sinc_lobes(quality),
                  antialias,
                  {}};
  if (job.in.ndim() < 1 || job.in.ndim() > 2) fail(Error::Value, "audio_resample: the input must have 1 or 2 dimensions");
  if (job.out.ndim() != job.in.ndim()) fail(Error::Value, "audio_resample: the output must have as many dimensions as the input");
  if (job.ratio) check_rows("audio_resample", "the ratio of the rates", *job.ratio, job.in.size());
  check_outputs("audio_resample", job.out, job.in.size(), [&](int64_t i) { return job.out.shape(i)[0] * job.channels(i); });
  if (job.in.dtype() != job.out.dtype()) {
    const Scaling first = to_unit(job.in.dtype()), then = from_unit(job.out.dtype());
    job.load = {first.factor * then.factor, then(first.shift)};
  }
  return job;
}

}  // namespace ndd::audio
