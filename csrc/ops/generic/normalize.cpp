// SPDX-License-Identifier: Apache-2.0
// normalize on the CPU: mean and deviation of each sample by the driver of reductions, then (in - mean) * scale + shift while the sample is still in
// the caches. With batch=True the totals of all samples have to be known first: the tasks of the call compute them together.
#include "ops/generic/normalize.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "ndd/elementwise/convert.h"
#include "ndd/elementwise/rows.h"
#include "ndd/elementwise/streaming.h"
#include "ndd/kernel.h"
#include "ndd/reduce/cpu.h"
#include "ndd/simd.h"
#include "ndd/stream/stream.h"

namespace ndd::normalize {
namespace {

// A VGA image of uint8 takes 0.25 ms.
constexpr double kNanosecondsPerElement = 0.3;
// Elements converted at a time.
constexpr int64_t kRow = 1024;

// total[o] for every output of a sample.
std::vector<double> totals_of(reduce::Fold fold, const Job& job, int64_t i, reduce::Centers centers = {}) {
  std::vector<double> totals(job.shape(i).outputs);
  const DType type = reduce::total_dtype(fold, job.in.dtype());
  reduce::fold_sample(fold, job.shape(i), job.in.data(i), job.in.dtype(), centers,
                      [&](int64_t first, int64_t n, const void* part) { convert_run(part, type, n, totals.data() + first, DType::float64); });
  return totals;
}

std::vector<double> sums_of(const Job& job, int64_t i) { return totals_of(reduce::Fold::mean, job, i); }

// Squared distances from the means. For uint8 they follow from the exact integer sums; other types are read a second time, because the difference of large sums
// of squares would cancel. `sums` are the sample's sums if already known.
std::vector<double> squares_of(const Job& job, int64_t i, const std::vector<double>& means, std::vector<double> sums = {}) {
  if (job.in.dtype() != DType::uint8 && job.in.dtype() != DType::boolean) return totals_of(reduce::Fold::distances, job, i, {means.data(), 1});
  std::vector<double> totals = totals_of(reduce::Fold::squares, job, i);
  if (sums.empty()) sums = sums_of(job, i);
  const double count = static_cast<double>(job.shape(i).count);
  for (size_t o = 0; o < totals.size(); ++o) totals[o] = std::max(0.0, totals[o] - 2 * means[o] * sums[o] + count * means[o] * means[o]);
  return totals;
}

// The statistics of all samples for batch=True. The tasks of the call compute them cooperatively: each claims samples that no other task has claimed, so a
// task waits only for statistics that are being computed, never for a task that has not started: this cannot deadlock, even with one thread. They are
// added in the order of the samples, so the result does not depend on the threads.
class SharedStatistics {
 public:
  template <class Make>
  std::vector<double> sum(const Job& job, Make make) {
    const int64_t n = job.in.size();
    // The first task allocates the parts; sequentially consistent stores publish them to the others through open_.
    if (started_.fetch_add(1) == 0) {
      parts_.resize(n);
      open_.store(true);
    }
    while (!open_.load()) std::this_thread::yield();
    for (int64_t k = next_.fetch_add(1); k < n; k = next_.fetch_add(1)) {
      try {
        parts_[k] = make(k);
      } catch (...) {  // out of memory; counted as done, or the others would wait forever
        failed_.store(true);
      }
      done_.fetch_add(1);
    }
    while (done_.load() < n) std::this_thread::yield();
    if (failed_.load()) fail("normalize: not enough memory for the statistics of the batch");
    std::vector<double> total(parts_[0].size());
    // Every task adds all parts itself: they are small, and the order is always the same.
    for (const auto& part : parts_)
      for (size_t o = 0; o < total.size(); ++o) total[o] += part[o];
    return total;
  }

 private:
  std::vector<std::vector<double>> parts_;
  std::atomic<int64_t> started_{0}, next_{0}, done_{0};
  std::atomic<bool> open_{false}, failed_{false};
};

// The squares need the means, so they are computed in a second round.
struct BatchSums {
  SharedStatistics sums, squares;
};

struct Factors {
  std::vector<float> mean, factor;  // for every output
};

// inverse_deviation() of all outputs, in loops that become vectors: it takes half of the time where each pixel is an output.
void inverse_deviations(const std::vector<double>& squares, double count, double epsilon, std::vector<double>& inverses) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const double* __restrict square = squares.data();
    double* __restrict inverse = inverses.data();
    const double divisor = count, more = epsilon;
    const auto n = static_cast<int64_t>(inverses.size());
    for (int64_t o = 0; o < n; ++o) inverse[o] = 1.0 / std::sqrt(square[o] / divisor + more);
    for (int64_t o = 0; o < n; ++o) inverse[o] = square[o] / divisor + more == 0.0 ? 0.0 : inverse[o];
  });
}

Factors factors_of(const Job& job, BatchSums* together, int64_t i) {
  const int64_t outputs = job.shape(i).outputs, count = job.count(i);
  std::vector<double> means, sums, inverse(outputs);
  if (job.mean) {
    means = job.mean.of_sample(i, outputs);
  } else {
    if (!together) sums = sums_of(job, i);
    // The mean of the batch, or of the sample.
    means = together ? together->sums.sum(job, [&](int64_t k) { return sums_of(job, k); }) : sums;
    for (double& mean : means) mean /= static_cast<double>(count);
  }
  if (job.stddev) {
    const auto stddevs = job.stddev.of_sample(i, outputs);
    for (int64_t o = 0; o < outputs; ++o) inverse[o] = inverse_of_stddev(stddevs[o], job.epsilon);
  } else {
    auto squares =
        together ? together->squares.sum(job, [&](int64_t k) { return squares_of(job, k, means); }) : squares_of(job, i, means, std::move(sums));
    // Without degrees of freedom the variance is unknown and counts as 0, as in DALI.
    if (count <= job.ddof) std::fill(squares.begin(), squares.end(), 0.0);
    inverse_deviations(squares, static_cast<double>(std::max<int64_t>(1, count - job.ddof)), job.epsilon, inverse);
  }
  Factors factors{std::vector<float>(outputs), std::vector<float>(outputs)};
  for (int64_t o = 0; o < outputs; ++o) {
    factors.mean[o] = static_cast<float>(means[o]);
    factors.factor[o] = static_cast<float>(inverse[o] * job.scale);
  }
  return factors;
}

// Fills the mean and factor of each element of a row that begins at `begin`. If the innermost axis is kept, its values repeat along the reduced axis around
// it, such as the channels of a row of pixels. Writes up to three elements beyond n.
void fill_rows(const Reduction& shape, const Factors& factors, int64_t begin, int64_t n, float* mean, float* factor) {
  const bool inner_kept = shape.kept > 0 && shape.kept_stride[0] == 1;
  const int64_t period = inner_kept ? shape.kept_extent[0] : 1;
  const bool around = shape.reduced > 0 && shape.reduced_stride[0] == period;
  const int64_t run = period * (around ? shape.reduced_extent[0] : 1);
  if (!inner_kept && shape.kept > 0 && shape.kept_stride[0] == run) {
    // Runs of one value, whose outputs are neighbors along the first kept axis: no division for each of them, and no copies of three numbers.
    for (int64_t k = 0; k < n;) {
      const int64_t at = (begin + k) / run % shape.kept_extent[0], o = output_of(shape, begin + k), last = o + shape.kept_extent[0] - at;
      int64_t left = run - (begin + k) % run;
      for (int64_t r = o; r < last && k < n; ++r, left = run) {
        // Four at a time, and up to three too many: runs are often those of three channels.
        const float m = factors.mean[r], f = factors.factor[r];
        const int64_t end = std::min(n, k + left);
        for (; k < end; k += 4)
          for (int64_t j = k; j < k + 4; ++j) mean[j] = m, factor[j] = f;
        k = end;
      }
    }
    return;
  }
  for (int64_t k = 0; k < n;) {
    // Parts of one run: the values of a period, then copies of them, each twice as long as the one before.
    const int64_t at = (begin + k) % run, part = std::min(n - k, run - at), phase = at % period, o = output_of(shape, begin + k - phase);
    const int64_t once = std::min(part, period);
    for (int64_t j = 0, c = phase; j < once; ++j, c = c + 1 < period ? c + 1 : 0) {
      mean[k + j] = factors.mean[o + c];
      factor[k + j] = factors.factor[o + c];
    }
    for (int64_t done = once; done < part;) {
      const int64_t more = std::min(done, part - done);
      std::copy_n(mean + k, more, mean + k + done);
      std::copy_n(factor + k, more, factor + k + done);
      done += more;
    }
    k += part;
  }
}

template <class In>
void apply_row(const void* in, int64_t n, const float* means, const float* factors, float offset, void* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const In* __restrict src = static_cast<const In*>(in);
    float* __restrict dst = static_cast<float*>(out);
    const float* __restrict mean = means;
    const float* __restrict factor = factors;
    const float shift = offset;
    const int64_t count = n;
    for (int64_t k = 0; k < count; ++k) dst[k] = normalize_element(static_cast<float>(src[k]), mean[k], factor[k], shift);
  });
}

// `streamed`: past the caches.
void apply(const Job& job, int64_t i, const Factors& factors, bool streamed) {
  const Reduction& shape = job.shape(i);
  const int64_t volume = job.in.volume(i), inner = shape.kept == 0 ? 1 : shape.kept == 1 && shape.kept_stride[0] == 1 ? shape.kept_extent[0] : 0;
  const bool repeats = inner > 0 && inner <= kRow;  // the rows of all elements are the same
  const int64_t step = repeats ? kRow / inner * inner : kRow;
  const DType in = job.in.dtype(), out = job.out.dtype();
  const char* from = static_cast<const char*>(job.in.data(i));
  char* to = static_cast<char*>(job.out.data(i));
  alignas(64) float mean[kRow + 4], factor[kRow + 4], row[kRow], result[kRow];
  const LoadRow load = row_loader(in);
  const StoreRow store = row_storer(out);
  const float shift = static_cast<float>(job.shift);
  for (int64_t begin = 0; begin < volume; begin += step, from += step * item_bytes(in), to += step * item_bytes(out)) {
    const int64_t n = std::min(step, volume - begin);
    if (begin == 0 || !repeats) fill_rows(shape, factors, begin, n, mean, factor);
    void* const target = streamed && out == DType::float32 ? static_cast<void*>(result) : to;
    if (in == DType::uint8 && out == DType::float32) {
      apply_row<uint8_t>(from, n, mean, factor, shift, target);
    } else if (in == DType::float32 && out == DType::float32) {
      apply_row<float>(from, n, mean, factor, shift, target);
    } else {
      load(from, n, row);
      apply_row<float>(row, n, mean, factor, shift, result);
      if (target == to) store(result, n, to);
    }
    if (target != to) stream_copy(to, result, n * item_bytes(out));
  }
  if (streamed) stream_fence();
}

void normalize_cpu(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& mean, int64_t mean_rows, const MaybeTensor& stddev,
                   int64_t stddev_rows, int64_t axes, bool batch, int64_t ddof, double epsilon, double scale, double shift, const Tensor& output,
                   const MaybeTensor& output_shapes) {
  const Job job = job_of(input, input_shapes, mean, mean_rows, stddev, stddev_rows, axes, batch, ddof, epsilon, scale, shift, output, output_shapes);
  const bool streamed = exceeds_caches(output.numel() * job.out.item_bytes());
  const auto together = batch ? std::make_shared<BatchSums>() : nullptr;
  launch_cpu("normalize", job.in.size(), kNanosecondsPerElement * job.in.mean_volume(), {},
             [=](int64_t i) { apply(job, i, factors_of(job, together.get(), i), streamed); });
}

}  // namespace
}  // namespace ndd::normalize
NDD_KERNEL(normalize, CPU, ndd::normalize::normalize_cpu)
