// SPDX-License-Identifier: Apache-2.0
// normalize: out = (in - mean) * scale / stddev + shift, with statistics of the sample, of the batch, or given ones.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ndd/hd.h"
#include "ndd/reduce/reduce.h"
#include "ndd/samples.h"

namespace ndd::normalize {

// A mean or standard deviation passed as an argument: one number or one for each output of the reduction, shared by all samples or per sample.
class Statistic {
 public:
  Statistic(const char* name, const MaybeTensor& values, int64_t rows, const std::vector<Reduction>& shapes, int64_t samples) : values_(values) {
    if (!values || shapes.empty()) return;  // no samples
    if (values->dtype() != DType::float32 || !values->is_contiguous()) fail(Error::Type, "normalize: ", name, " must be float32 and contiguous");
    if (rows < 1 || rows > samples) fail(Error::Value, "normalize: ", name, " must have a row for all samples or one for each, got ", rows);
    // One number a row; otherwise a row has as many numbers as the reduction of its sample has outputs.
    scalar_ = values->numel() == rows;
    offsets_.assign(1, 0);
    for (int64_t i = 0; i < rows; ++i) offsets_.push_back(offsets_.back() + (scalar_ ? 1 : shapes[shapes.size() == 1 ? 0 : i].outputs));
    bool fits = (rows == 1 || rows == samples) && offsets_.back() == values->numel();
    if (rows == 1 && !scalar_)
      for (const Reduction& shape : shapes) fits = fits && shape.outputs == values->numel();
    if (!fits) fail("normalize: ", name, " does not have the shape of the reduced samples");
  }

  explicit operator bool() const { return values_.has_value(); }
  // For every output of sample i.
  std::vector<double> of_sample(int64_t i, int64_t outputs) const {
    const float* row = static_cast<const float*>(values_->data_ptr()) + offsets_[offsets_.size() == 2 ? 0 : i];
    std::vector<double> values(outputs);
    for (int64_t o = 0; o < outputs; ++o) values[o] = row[scalar_ ? 0 : o];
    return values;
  }

 private:
  MaybeTensor values_;
  bool scalar_ = false;
  std::vector<int64_t> offsets_;
};

struct Job {
  Samples in, out;
  std::vector<Reduction> shapes;  // one where all are equal
  Statistic mean, stddev;
  bool batch;
  int64_t ddof;
  double epsilon, scale, shift;

  const Reduction& shape(int64_t i) const { return shapes[in.dense() ? 0 : i]; }
  // Elements of an output: of the sample or of the batch.
  int64_t count(int64_t i) const {
    if (!batch) return shape(i).count;
    int64_t total = 0;
    for (int64_t k = 0; k < in.size(); ++k) total += shape(k).count;
    return total;
  }
};

// The reductions of all samples, or the one of a dense batch.
inline std::vector<Reduction> reductions(const Samples& in, int64_t axes, bool batch) {
  std::vector<Reduction> shapes;
  for (int64_t i = 0; i < (in.dense() ? std::min<int64_t>(1, in.size()) : in.size()); ++i) shapes.emplace_back(in.shape(i), in.ndim(), axes);
  for (const Reduction& shape : shapes)
    if (batch && shape.outputs != shapes[0].outputs)
      fail("normalize: with batch=True the axes that are not reduced must have the same extents in all samples");
  return shapes;
}

inline Job job_of(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& mean, int64_t mean_rows, const MaybeTensor& stddev,
                  int64_t stddev_rows, int64_t axes, bool batch, int64_t ddof, double epsilon, double scale, double shift, const Tensor& output,
                  const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes);
  const Samples out(output, output_shapes);
  check_outputs("normalize", out, in);
  check_degrees("normalize", ddof);
  const auto shapes = reductions(in, axes, batch);
  return {in,
          out,
          shapes,
          Statistic("mean", mean, mean_rows, shapes, in.size()),
          Statistic("stddev", stddev, stddev_rows, shapes, in.size()),
          batch,
          ddof,
          epsilon,
          scale,
          shift};
}

// Which output of the reduction an element belongs to.
NDD_HD int64_t output_of(const Reduction& shape, int64_t element) {
  int64_t o = 0, step = 1;
  for (int d = 0; d < shape.kept; ++d) {
    o += element / shape.kept_stride[d] % shape.kept_extent[d] * step;
    step *= shape.kept_extent[d];
  }
  return o;
}

// 1 / sqrt(variance + epsilon); 0 for a constant sample, which then becomes 0 instead of NaN.
NDD_HD double inverse_deviation(double variance, double epsilon) {
  const double v = variance + epsilon;
  return v == 0.0 ? 0.0 : 1.0 / sqrt(v);
}

// The same for a standard deviation that is an argument; without epsilon it keeps its sign.
NDD_HD double inverse_of_stddev(double stddev, double epsilon) {
  if (epsilon != 0.0) return inverse_deviation(stddev * stddev, epsilon);
  return stddev == 0.0 ? 0.0 : 1.0 / stddev;
}

NDD_HD float normalize_element(float value, float mean, float factor, float shift) { return (value - mean) * factor + shift; }

}  // namespace ndd::normalize
