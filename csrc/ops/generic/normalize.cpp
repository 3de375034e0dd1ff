// SPDX-License-Identifier: Apache-2.0
#include "ops/generic/normalize.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "ndd/kernel.h"
#include "ndd/reduce_cpu.h"
#include "ndd/rows.h"
#include "ndd/stream.h"
#include "ndd/streaming.h"

namespace ndd {
namespace normalize {
namespace {

// A VGA image of uint8 takes 0.25 ms.
constexpr double kNanosecondsPerElement = 0.3;
constexpr int64_t kRow = 1024;

// Whether sums of squares are exact.
template <class T>
inline constexpr bool is_whole = reduce::AddSquare<T>::whole;

template <class T>
using AddUp = reduce::Add<T, false>;

// total[o] += for every output of a sample.
template <template <class> class Fold, class T, class Centre>
void add_totals(const Reduction& shape, const T* in, Centre centre, std::vector<double>& totals) {
  reduce::fold_sample<Fold>(shape, in, centre, [&](int64_t first, int64_t n, const typename Fold<T>::Total* made) {
    for (int64_t k = 0; k < n; ++k) totals[first + k] += static_cast<double>(made[k]);
  });
}

double no_centre(int64_t) { return 0.0; }

std::vector<double> sums_of(const Job& job, int64_t i) {
  std::vector<double> totals(job.shape(i).outputs);
  for_dtype(job.in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    add_totals<AddUp>(job.shape(i), static_cast<const T*>(job.in.data(i)), no_centre, totals);
  });
  return totals;
}

// Squared distances from the means. Of small integers they come from exact sums; all others are read once more, because their squares cancel out.
// `sums` are those of the sample where they are known.
std::vector<double> squares_of(const Job& job, int64_t i, const std::vector<double>& means, std::vector<double> sums = {}) {
  std::vector<double> totals(job.shape(i).outputs);
  for_dtype(job.in.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* in = static_cast<const T*>(job.in.data(i));
    if constexpr (is_whole<T>) {
      add_totals<reduce::AddSquare>(job.shape(i), in, no_centre, totals);
      if (sums.empty()) sums = sums_of(job, i);
      const double count = static_cast<double>(job.shape(i).count);
      for (size_t o = 0; o < totals.size(); ++o) totals[o] = std::max(0.0, totals[o] - 2 * means[o] * sums[o] + count * means[o] * means[o]);
    } else {
      add_totals<reduce::AddSquaredDistance>(job.shape(i), in, [&](int64_t o) { return means[o]; }, totals);
    }
  });
  return totals;
}

// The samples' statistics for batch=True. All tasks of the call make them together: each takes samples that nobody has taken, so none waits for one
// that is not being computed, and they are added in the order of the samples.
class Together {
 public:
  template <class Make>
  std::vector<double> sum(const Job& job, Make make) {
    const int64_t n = job.in.size();
    if (started_.fetch_add(1) == 0) {
      parts_.resize(n);
      open_.store(true);
    }
    while (!open_.load()) std::this_thread::yield();
    for (int64_t k = next_.fetch_add(1); k < n; k = next_.fetch_add(1)) {
      try {
        parts_[k] = make(k);
      } catch (...) {  // out of memory; nobody may wait for this part
        failed_.store(true);
      }
      done_.fetch_add(1);
    }
    while (done_.load() < n) std::this_thread::yield();
    if (failed_.load()) throw Error(Error::Runtime, "normalize: not enough memory for the statistics of the batch");
    std::vector<double> total(parts_[0].size());
    for (const auto& part : parts_)
      for (size_t o = 0; o < total.size(); ++o) total[o] += part[o];
    return total;
  }

 private:
  std::vector<std::vector<double>> parts_;
  std::atomic<int64_t> started_{0}, next_{0}, done_{0};
  std::atomic<bool> open_{false}, failed_{false};
};

struct BatchSums {
  Together sums, squares;
};

struct Factors {
  std::vector<float> mean, factor;  // for every output
};

Factors factors_of(const Job& job, BatchSums* together, int64_t i) {
  const int64_t outputs = job.shape(i).outputs, count = job.count(i);
  std::vector<double> means, sums, inverse(outputs);
  if (job.mean) {
    means = job.mean.of_sample(i, outputs);
  } else {
    if (!together) sums = sums_of(job, i);
    means = together ? together->sums.sum(job, [&](int64_t k) { return sums_of(job, k); }) : sums;
    for (double& mean : means) mean /= static_cast<double>(count);
  }
  if (job.stddev) {
    const auto given = job.stddev.of_sample(i, outputs);
    for (int64_t o = 0; o < outputs; ++o) inverse[o] = inverse_of_given(given[o], job.epsilon);
  } else {
    const auto squares = together ? together->squares.sum(job, [&](int64_t k) { return squares_of(job, k, means); }) : squares_of(job, i, means, std::move(sums));
    for (int64_t o = 0; o < outputs; ++o)
      inverse[o] = count > job.ddof ? inverse_deviation(squares[o] / static_cast<double>(count - job.ddof), job.epsilon) : 0.0;
  }
  Factors made{std::vector<float>(outputs), std::vector<float>(outputs)};
  for (int64_t o = 0; o < outputs; ++o) {
    made.mean[o] = static_cast<float>(means[o]);
    made.factor[o] = static_cast<float>(inverse[o] * job.scale);
  }
  return made;
}

// Mean and factor of every element of a row that begins at `begin`. Where the innermost axis is kept, its values repeat along a reduced axis around it: the
// channels of a row of pixels.
void fill_rows(const Reduction& shape, const Factors& factors, int64_t begin, int64_t n, float* mean, float* factor) {
  const bool inner_kept = shape.kept > 0 && shape.kept_stride[0] == 1;
  const int64_t period = inner_kept ? shape.kept_extent[0] : 1;
  const bool around = shape.reduced > 0 && shape.reduced_stride[0] == period;
  const int64_t run = period * (around ? shape.reduced_extent[0] : 1);
  for (int64_t k = 0; k < n;) {
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

template <class In, class Out>
void apply_row(const void* in, int64_t n, const float* means, const float* factors, float offset, void* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const In* __restrict src = static_cast<const In*>(in);
    Out* __restrict dst = static_cast<Out*>(out);
    const float* __restrict mean = means;
    const float* __restrict factor = factors;
    const float shift = offset;
    const int64_t count = n;
    for (int64_t k = 0; k < count; ++k) dst[k] = saturate<Out>(normalized(static_cast<float>(src[k]), mean[k], factor[k], shift));
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
  alignas(64) float mean[kRow], factor[kRow], row[kRow], made[kRow];
  const LoadRow load = row_loader(in);
  const StoreRow store = row_storer(out);
  const float shift = static_cast<float>(job.shift);
  for (int64_t begin = 0; begin < volume; begin += step, from += step * item_bytes(in), to += step * item_bytes(out)) {
    const int64_t n = std::min(step, volume - begin);
    if (begin == 0 || !repeats) fill_rows(shape, factors, begin, n, mean, factor);
    void* const target = streamed && out == DType::float32 ? static_cast<void*>(made) : to;
    if (in == DType::uint8 && out == DType::float32) {
      apply_row<uint8_t, float>(from, n, mean, factor, shift, target);
    } else if (in == DType::float32 && out == DType::float32) {
      apply_row<float, float>(from, n, mean, factor, shift, target);
    } else {
      load(from, n, row);
      apply_row<float, float>(row, n, mean, factor, shift, made);
      if (target == to) store(made, n, to);
    }
    if (target != to) stream_copy(to, made, n * item_bytes(out));
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
}  // namespace normalize
}  // namespace ndd
NDD_KERNEL(normalize, CPU, ndd::normalize::normalize_cpu)
