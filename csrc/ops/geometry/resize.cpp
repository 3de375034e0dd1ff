// SPDX-License-Identifier: Apache-2.0
// A task is a sample: it is resampled by ndd/resample/cpu.h and, if asked for, normalized by the slice driver while it is in the caches of the
// thread.
#include "ops/geometry/resize.h"

#include <vector>

#include "ndd/kernel.h"
#include "ndd/resample/cpu.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

template <const char* op>
void resize(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& roi, const MaybeTensor& window, const Tensor& min_filter,
            const Tensor& mag_filter, bool antialias, int64_t rule, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const ResizeArgs args(op, roi, window, min_filter, mag_filter, antialias, rule, axes);
  args.check(in.size(), in.ndim(), out.size(), out.ndim());
  // Nanoseconds per element of the input and of the output.
  // The input is read once, whatever the scale: reductions cost by what they read, enlargements by what they write.
  const double cost = 0.05 * in.mean_volume() + 0.15 * out.mean_volume();
  launch_cpu(op, in.size(), cost, {input}, [=](int64_t i) {
    ResampleJob job{in.data(i), out.data(i), in.dtype(), out.dtype(), 1, 1, {}};
    args.read(i, in.shape(i), out.shape(i), in.ndim(), job);
    resample_cpu(job);
  });
}

// Of the resized images that the threads keep the memory of; that of larger ones is freed.
constexpr int64_t kKeptBytes = 8 << 20;

// Unmirrors an axis by torch's or Pillow's rule: its results are the same in the opposite order. Rows that are read backward take 5 % longer to
// resize, where the normalization mirrors at no cost.
Axis reverse_axis(Axis a) {
  a.lo += a.scale * static_cast<float>(a.whole);
  a.scale = -a.scale;
  a.first = a.whole - a.out - a.first;
  return a;
}

// The same with mirrored samples, followed by a normalization: the resized image stays in the caches of its thread.
template <const char* op>
void resize_and_normalize(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& roi, const MaybeTensor& window,
                          const Tensor& min_filter, const Tensor& mag_filter, bool antialias, int64_t rule, int64_t axes, const MaybeTensor& mirror,
                          const MaybeTensor& mean, const MaybeTensor& std, const std::string& layout, const std::string& output_layout,
                          const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const ResizeArgs args(op, roi, window, min_filter, mag_filter, antialias, rule, axes, mirror);
  args.check(in.size(), in.ndim(), out.size(), out.ndim());
  // Frames are resized and normalized one at a time, so they stay in the caches.
  const bool framed = !output_layout.empty() && !layout.empty() && layout.front() == 'F' && output_layout.front() == 'F' && (axes & 1) == 0;
  if (!output_layout.empty()) check_slice_dims(in.ndim());
  const NormalizeArgs normalize(op, mean, std, layout.substr(framed), output_layout.substr(framed), in.ndim() - framed);
  const double cost = 0.05 * in.mean_volume() + (normalize.wanted() ? 0.45 : 0.15) * out.mean_volume();
  const bool cached = out.mean_volume() * static_cast<double>(out.size() * out.item_bytes()) < kCachedBytes;
  launch_cpu(op, in.size(), cost, {input}, [=](int64_t i) {
    ResampleJob job{in.data(i), out.data(i), in.dtype(), out.dtype(), 1, 1, {}};
    if (!normalize.wanted()) {
      args.read(i, in.shape(i), out.shape(i), in.ndim(), job);
      return resample_cpu(job);
    }
    const int64_t* const to = out.shape(i) + framed;
    const int64_t frames = framed ? out.shape(i)[0] : 1;
    int64_t shape[kSliceDims] = {frames};
    normalize.resized_shape(to, shape + framed);
    job.out_type = in.dtype();
    args.read(i, in.shape(i), shape, in.ndim(), job);
    if (out.volume(i) == 0) return;
    job.outer /= frames;
    const bool mirrored = args.rule != Rule::dali && job.axes[2].scale < 0.0f;
    if (mirrored) job.axes[2] = reverse_axis(job.axes[2]);
    // A thread resizes into the same memory again and again, so it is in its cache when the normalization reads it.
    static thread_local std::vector<char> kept;
    static thread_local SliceBatch batch;
    const int64_t volume = out.volume(i) / frames, bytes = volume * in.item_bytes();
    std::vector<char> large(static_cast<size_t>(bytes > kKeptBytes ? bytes : 0));
    if (bytes <= kKeptBytes && static_cast<int64_t>(kept.size()) < bytes) kept = std::vector<char>(static_cast<size_t>(bytes));
    job.out = bytes > kKeptBytes ? large.data() : kept.data();
    for (int64_t f = 0; f < frames; ++f) {
      job.in = static_cast<const char*>(in.data(i)) + f * (in.volume(i) / frames) * in.item_bytes();
      resample_cpu(job);
      batch.clear();
      normalize.append_slice(i, job.out, static_cast<char*>(out.data(i)) + f * volume * out.item_bytes(), to, in.dtype() == out.dtype(), mirrored,
                             batch);
      Slice& slice = batch.slices.front();
      slice.set_out_strides();
      slice.cached = cached;
      run_slice_cpu(slice, batch.channels.data(), in.dtype(), out.dtype());
    }
  });
}

// Sample i of the output is a region of image sources[i]: several crops of an image do not need as many copies of it. With `together` a task computes all
// crops of an image, which is faster; without it each crop is a task of its own, for more threads than images.
void multi_crop(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& sources, const Tensor& roi, const Tensor& min_filter,
                const Tensor& mag_filter, bool antialias, int64_t rule, int64_t axes, bool together, const Tensor& output,
                const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Args<int64_t> images = check_sources(sources, roi, in, out);
  const ResizeArgs args(kMultiCrop, roi, MaybeTensor(), min_filter, mag_filter, antialias, rule, axes);
  args.check(out.size(), in.ndim(), out.size(), out.ndim());
  const auto job_of = [=](int64_t i) {
    const int64_t image = images(i);
    ResampleJob job{in.data(image), out.data(i), in.dtype(), out.dtype(), 1, 1, {}};
    args.read(i, in.shape(image), out.shape(i), in.ndim(), job);
    return job;
  };
  const double cost = 0.03 * in.mean_volume() + 0.15 * out.mean_volume();
  if (!together) return launch_cpu(kMultiCrop, out.size(), cost, {input}, [=](int64_t i) { resample_cpu(job_of(i)); });
  std::vector<std::vector<int64_t>> crops(in.size());
  for (int64_t i = 0; i < out.size(); ++i) crops[images(i)].push_back(i);
  const double count = static_cast<double>(out.size()) / static_cast<double>(std::max<int64_t>(in.size(), 1));
  launch_cpu(kMultiCrop, in.size(), count * cost, {input}, [=](int64_t image) {
    std::vector<ResampleJob> jobs;
    jobs.reserve(crops[image].size());
    for (const int64_t i : crops[image]) jobs.push_back(job_of(i));
    resample_regions(jobs.data(), static_cast<int64_t>(jobs.size()));
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(resize, CPU, ndd::resize<ndd::kResize>)
NDD_KERNEL(resize_crop_mirror, CPU, ndd::resize_and_normalize<ndd::kResizeCropMirror>)
NDD_KERNEL(tensor_resize, CPU, ndd::resize<ndd::kTensorResize>)
NDD_KERNEL(random_resized_crop, CPU, ndd::resize_and_normalize<ndd::kRandomResizedCrop>)
NDD_KERNEL(multi_crop, CPU, ndd::multi_crop)
