// SPDX-License-Identifier: Apache-2.0
// Power spectra along an axis. Every position of the other axes is a signal.
#pragma once

#include <memory>
#include <string>

#include "ops/audio/bands.h"
#include "ops/audio/fft.h"

namespace ndd::audio {

struct PowerJob {
  Samples in, out;
  int64_t axis, nfft, power;  // nfft 0: as many as there are elements

  AxisShape shape(int64_t i) const { return AxisShape(in, i, axis); }
  int64_t length(int64_t i) const { return nfft > 0 ? nfft : in.shape(i)[axis]; }
};

inline PowerJob power_job(const Tensor& input, const MaybeTensor& input_shapes, int64_t axis, int64_t nfft, int64_t power, const Tensor& output,
                          const MaybeTensor& output_shapes) {
  const PowerJob job{Samples(input, input_shapes), Samples(output, output_shapes), axis, nfft, power};
  if (job.in.dtype() != DType::float32 || job.out.dtype() != DType::float32) fail(Error::Type, "power_spectrum: the input must be float32");
  if (axis < 0 || axis >= job.in.ndim()) fail(Error::Value, "power_spectrum: axis must be from 0 to ", job.in.ndim() - 1, ", got ", axis);
  check_transform("power_spectrum", nfft, output);
  for (int64_t i = 0; i < job.in.size(); ++i)
    if (job.in.shape(i)[axis] < 1) fail("power_spectrum: sample ", i, " has no elements along axis ", axis);
  check_outputs("power_spectrum", job.out, job.in.size(), [&](int64_t i) {
    const AxisShape shape = job.shape(i);
    const int64_t extents[] = {shape.outer, job.length(i) / 2 + 1, shape.inner};
    return count_elements(extents, 1, 3);
  });
  return job;
}

}  // namespace ndd::audio
