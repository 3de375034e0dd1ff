// SPDX-License-Identifier: Apache-2.0
#include "ops/geometry/resize.h"

#include <algorithm>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/dtypes.h"
#include "ndd/kernel.h"
#include "ndd/resample/linear.cuh"
#include "ndd/resample/nearest.cuh"
#include "ndd/resample/pass.cuh"
#include "ndd/resample/tile.cuh"
#include "ndd/resample/torch_rule.h"

namespace ndd {
namespace {

using namespace resample_gpu;

// A sample seen as [outer][depth][height][width][channels].
struct Job {
  const void* in;
  void* out;
  int64_t outer, channels;
  Axis axes[3];

  bool empty() const { return outer * axes[0].in * axes[1].in * axes[2].in * axes[0].out * axes[1].out * axes[2].out * channels == 0; }
};

// Whether resampling along the axis is the identity; cubic and Gaussian kernels would smooth even at scale 1.
bool is_unchanged(const Axis& a) {
  return a.in == a.out && a.lo == 0 && a.scale == 1 && (a.filter == Filter::nearest || a.filter == Filter::linear || a.filter == Filter::triangular);
}

// Limits of CUDA: 2^31 - 1 blocks along x, 65535 along y and z. The kernels' loops cover what lies beyond.
dim3 grid_of(int64_t blocks, int64_t samples, int64_t planes) {
  return dim3(static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, INT32_MAX)), static_cast<unsigned>(std::min<int64_t>(samples, 65535)),
              static_cast<unsigned>(std::clamp<int64_t>(planes, 1, 65535)));
}

// The shared memory of a block: three of them fit in a multiprocessor, or two where the narrowest tile needs more. With what the kernel has besides, a
// block may have 99 KB on GPUs of compute capability 8.6, 8.9 and 12.0, and more on others from 8.0 on.
constexpr int64_t kSharedBytes = 72 << 10, kMaxSharedBytes = 96 << 10;

// Plans the tiles of a sample whose height and width are resampled; false if no tile fits in shared memory. Wide tiles amortize the weights of a row; narrow
// ones are needed where a reduction reads many rows. Cases with one axis are rearranged so that tiles are full.
bool tiled(const Job& job, int64_t item_bytes, TiledSample& s) {
  s = {};
  s.in = job.in;
  s.out = job.out;
  s.planes = job.outer * job.axes[0].out;
  s.vertical = job.axes[1];
  s.horizontal = job.axes[2];
  int64_t channels = job.channels;
  if (s.vertical.in == 1 && s.vertical.out == 1 && channels >= 64 && channels <= 4194304) {  // one axis, over long rows
    s.vertical = s.horizontal;
    s.horizontal = unchanged_axis(channels);
    channels = 1;
  } else if (is_unchanged(s.vertical) && s.planes * s.vertical.in <= 4194304) {  // one axis: rows of all planes fill the tiles
    s.vertical = unchanged_axis(s.planes * s.vertical.in);
    s.planes = 1;
  }
  if (channels > 4096) return false;
  s.channels = static_cast<int32_t>(channels);
  // In elements: from row to row, and from plane to plane.
  s.in_pitch = s.horizontal.in * channels;
  s.in_plane = s.vertical.in * s.in_pitch;
  s.out_pitch = s.horizontal.out * channels;
  s.out_plane = s.vertical.out * s.out_pitch;
  bool found = false;
  // The widest tile that fits, but no wider than the image needs.
  for (int32_t width = 128; width >= 8 && !found; width /= 2)
    found = (width == 8 || s.horizontal.out > width / 2) && s.cut(width, item_bytes) <= kSharedBytes;
  for (int32_t width = 8; width >= 4 && !found; width /= 2) found = s.cut(width, item_bytes) <= kMaxSharedBytes;
  return found && s.tiles < 1 << 30;
}

template <class In, bool kRounded>
void launch_tiles(const char* op, const std::vector<TiledSample>& samples, DType in, DType out) {
  const int64_t count = static_cast<int64_t>(samples.size());
  const TiledSample& reference = samples[0];
  // The grid must fit the largest sample; smaller ones leave blocks without work.
  int64_t tiles = 0, across = 1, planes = 0, bytes = 0;
  bool alike = true;
  for (TiledSample s : samples) {
    tiles = std::max<int64_t>(tiles, s.tiles);
    across = std::max<int64_t>(across, s.across);
    planes = std::max(planes, s.planes);
    bytes = std::max(bytes, s.cut(s.tile_width, item_bytes(out)));
    alike = alike && s.channels == reference.channels && same_axis(s.vertical, reference.vertical) && same_axis(s.horizontal, reference.horizontal);
  }
  if (bytes > 40 << 10)  // with what the kernel has besides, beyond the 48 KiB that need not be asked for
    check_cuda(cudaFuncSetAttribute(tile_kernel<In, kRounded>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMaxSharedBytes)), op);
  // As many blocks as two generations of four a multiprocessor of 132: more tiles go to the same blocks, which keep the weights of rows and columns
  // with samples alike, or of columns down a sample.
  constexpr int64_t kBlocks = 2 * 4 * 132;
  int64_t x = tiles, y = count;
  if (tiles * count * planes > kBlocks) {
    if (alike) y = std::clamp<int64_t>(kBlocks / (tiles * planes), 1, count);
    else x = std::min(tiles, across * std::max<int64_t>(1, kBlocks / (across * count * planes)));
  }
  const CudaTable<TiledSample> table(samples);
  tile_kernel<In, kRounded>
      <<<grid_of(x, y, planes), kThreads, static_cast<size_t>(bytes), current_cuda_stream()>>>(table.data(), count, alike, in, out);
}

void launch_tiles(const char* op, const std::vector<TiledSample>& samples, DType in, DType out) {
  if (samples.empty()) return;
  // Common types have instances; for the others the type is looked up per element.
  const auto launch = in == DType::uint8 && out == DType::uint8 ? launch_tiles<uint8_t, true>
                      : in == DType::uint8                      ? launch_tiles<uint8_t, false>
                      : in == DType::float32                    ? launch_tiles<float, false>
                      : in == DType::float16                    ? launch_tiles<Half, false>
                                                                : launch_tiles<void, false>;
  launch(op, samples, in, out);
}

// Whether the sample is a linear reduction without antialias of a common type: two taps per axis, which need no shared memory.
bool is_linear(const TiledSample& s, DType in, DType out) {
  const auto common = [](DType type) { return type == DType::uint8 || type == DType::float16 || type == DType::float32; };
  const auto one_or_two = [](const Axis& a) { return a.filter == Filter::nearest || a.filter == Filter::linear; };
  return one_or_two(s.vertical) && one_or_two(s.horizontal) && fabsf(s.horizontal.scale) > 1 && s.channels <= 16 && common(in) && common(out);
}

template <class In>
void launch_linear(const std::vector<TiledSample>& samples, DType out) {
  int64_t tiles = 0, planes = 0;
  bool color = true;
  for (const TiledSample& s : samples) {
    tiles = std::max(tiles, (s.vertical.out + kLinearRows - 1) / kLinearRows * ((s.horizontal.out + kLinearColumns - 1) / kLinearColumns));
    planes = std::max(planes, s.planes);
    color = color && s.channels == 3;
  }
  const CudaTable<TiledSample> table(samples);
  const int64_t count = static_cast<int64_t>(samples.size());
  const auto kernel = color ? linear_kernel<In, 3> : linear_kernel<In, 0>;
  kernel<<<grid_of(tiles, count, planes), kThreads, 0, current_cuda_stream()>>>(table.data(), count, out);
}

void launch_linear(const std::vector<TiledSample>& samples, DType in, DType out) {
  if (samples.empty()) return;
  const auto launch = in == DType::uint8 ? launch_linear<uint8_t> : in == DType::float32 ? launch_linear<float> : launch_linear<Half>;
  launch(samples, out);
}

void launch_passes(const std::vector<PassSample>& samples, DType in, DType out) {
  if (samples.empty()) return;
  int64_t groups = 0, outer = 0;
  for (const PassSample& s : samples) {
    if (s.outer * s.inner == 0) continue;
    groups = std::max(groups, s.groups());
    outer = std::max(outer, s.outer);
  }
  const CudaTable<PassSample> table(samples);
  const int64_t count = static_cast<int64_t>(samples.size());
  const auto kernel = in == DType::float32 ? pass_kernel<float> : in == DType::uint8 ? pass_kernel<uint8_t> : pass_kernel<void>;
  kernel<<<grid_of(groups, count, outer), kThreads, 0, current_cuda_stream()>>>(table.data(), count, in, out);
}

template <class Unit>
void launch_nearest(const std::vector<NearestSample>& samples) {
  constexpr int64_t kWidth = 32 * kNearestUnits<Unit>;
  int64_t tiles = 0;
  for (const NearestSample& s : samples) tiles = std::max(tiles, (s.rows() + kNearestRows - 1) / kNearestRows * ((s.row() + kWidth - 1) / kWidth));
  const CudaTable<NearestSample> table(samples);
  const int64_t count = static_cast<int64_t>(samples.size());
  nearest_kernel<Unit><<<grid_of(tiles, count, 1), kThreads, 0, current_cuda_stream()>>>(table.data(), count);
}

// Nearest pixels of the same type are only moved, in units as wide as their alignment allows.
void copy_nearest(const std::vector<Job>& jobs, int64_t item_bytes) {
  std::vector<NearestSample> samples;
  samples.reserve(jobs.size());
  int64_t unit = 8;  // bytes: the widest unit that all pixels and addresses are multiples of
  for (const Job& job : jobs) {
    samples.push_back({job.in, job.out, job.outer, job.channels, {job.axes[0], job.axes[1], job.axes[2]}});
    const uintptr_t all =
        reinterpret_cast<uintptr_t>(job.in) | reinterpret_cast<uintptr_t>(job.out) | static_cast<uintptr_t>(job.channels * item_bytes);
    // `all` has a bit set wherever any of the numbers has one: its lowest bit is the common alignment.
    while (all % unit != 0) unit /= 2;
  }
  for (NearestSample& s : samples) s.channels = s.channels * item_bytes / unit;
  const auto launch = unit == 1   ? launch_nearest<uint8_t>
                      : unit == 2 ? launch_nearest<uint16_t>
                      : unit == 4 ? launch_nearest<uint32_t>
                                  : launch_nearest<uint64_t>;
  launch(samples);
}

// If the depth is resampled (`deep`), it comes first, by a pass through memory; then height and width by tiles, in one launch, or by a pass each.
void mix(const char* op, const std::vector<Job>& jobs, bool deep, DType in, DType out) {
  if (jobs.empty()) return;
  const DType between = deep ? DType::float32 : in;
  std::vector<TiledSample> tiles;
  std::vector<PassSample> depth, height, width;
  tiles.reserve(jobs.size());
  if (deep) depth.reserve(jobs.size());
  // Intermediate floats. Their places are offsets until the size of the buffer is known.
  int64_t floats = 0;
  const auto place = [&](int64_t n) {
    // Each place begins at a multiple of 256 bytes.
    const int64_t at = floats;
    floats += (n + 63) / 64 * 64;
    return at;
  };
  struct Places {
    int64_t deep, mixed;
  };
  std::vector<Places> places;
  std::vector<const Job*> untiled;
  for (const Job& job : jobs) {
    // Elements for each row after the depth has been resampled.
    const int64_t rest = job.outer * job.axes[0].out * job.axes[2].in * job.channels, at = deep ? place(rest * job.axes[1].in) : 0;
    TiledSample s;
    // The output is a place in the buffer, which does not exist yet.
    if (deep) depth.push_back({job.in, nullptr, job.outer, job.axes[1].in * job.axes[2].in * job.channels, job.axes[0]});
    const bool fits = tiled(job, item_bytes(out), s);
    if (fits) tiles.push_back(s);
    else untiled.push_back(&job);
    if (deep || !fits) places.push_back({at, fits ? -1 : place(rest * job.axes[1].out)});
  }
  // Freed in stream order, so kernels that are still queued may use it.
  const CudaBuffer buffer(floats * static_cast<int64_t>(sizeof(float)));
  float* const memory = static_cast<float*>(buffer.data());
  size_t tile = 0, other = 0;
  for (size_t k = 0; k < places.size(); ++k) {
    if (deep) depth[k].out = memory + places[k].deep;
    // The tiles read what the pass along the depth has written.
    if (places[k].mixed < 0) {
      tiles[tile++].in = memory + places[k].deep;
      continue;
    }
    const Job& job = *untiled[other++];
    const int64_t planes = job.outer * job.axes[0].out;
    float* const mixed = memory + places[k].mixed;
    height.push_back({deep ? memory + places[k].deep : job.in, mixed, planes, job.axes[2].in * job.channels, job.axes[1]});
    width.push_back({mixed, job.out, planes * job.axes[1].out, job.channels, job.axes[2]});
  }
  launch_passes(depth, in, DType::float32);
  // Three kinds of kernels after the depth; each job is in exactly one.
  const auto linear = std::stable_partition(tiles.begin(), tiles.end(), [&](const TiledSample& s) { return !is_linear(s, between, out); });
  launch_linear(std::vector<TiledSample>(linear, tiles.end()), between, out);
  tiles.erase(linear, tiles.end());
  launch_tiles(op, tiles, between, out);
  launch_passes(height, between, DType::float32);
  launch_passes(width, DType::float32, out);
}

// Starts the kernels for jobs that are not empty.
void launch_jobs(const char* op, std::vector<Job>& jobs, Rule rule, DType in, DType out) {
  if (jobs.empty()) return;
  // PyTorch's and torchvision's rules have kernels of their own.
  if (rule != Rule::dali) {
    std::vector<ResampleJob> resample_jobs;
    for (const Job& job : jobs) resample_jobs.push_back({job.in, job.out, in, out, job.outer, job.channels, {job.axes[0], job.axes[1], job.axes[2]}});
    return launch_by_torch_rule(op, resample_jobs);
  }
  bool nearest = in == out;
  for (const Job& job : jobs)
    for (const Axis& a : job.axes) nearest = nearest && a.filter == Filter::nearest;
  if (nearest) {
    copy_nearest(jobs, item_bytes(in));
  } else {  // separately: they round differently, and the result of a sample must not depend on its batch
    const auto deep = std::stable_partition(jobs.begin(), jobs.end(), [](const Job& job) { return is_unchanged(job.axes[0]); });
    mix(op, {jobs.begin(), deep}, false, in, out);
    mix(op, {deep, jobs.end()}, true, in, out);
  }
  check_launch(op);
}

template <const char* op>
void resize_cuda(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& roi, const MaybeTensor& window, const Tensor& min_filter,
                 const Tensor& mag_filter, bool antialias, int64_t rule, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const ResizeArgs args(op, roi, window, min_filter, mag_filter, antialias, rule, axes);
  std::vector<Job> jobs;
  jobs.reserve(in.size());
  for (int64_t i = 0; i < in.size(); ++i) {
    Job job{in.data(i), out.data(i), 1, 1, {}};
    args.read(i, in.shape(i), out.shape(i), in.ndim(), job);
    if (!job.empty()) jobs.push_back(job);
  }
  launch_jobs(op, jobs, args.rule, in.dtype(), out.dtype());
}

void multi_crop_cuda(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& sources, const Tensor& roi, const Tensor& min_filter,
                     const Tensor& mag_filter, bool antialias, int64_t rule, int64_t axes, const Tensor& output) {
  const Samples in(input, input_shapes), out(output, MaybeTensor());
  const Args<int64_t> images = check_sources(sources, roi, in, out);
  const ResizeArgs args(kMultiCrop, roi, MaybeTensor(), min_filter, mag_filter, antialias, rule, axes);
  std::vector<Job> jobs;
  jobs.reserve(out.size());
  for (int64_t i = 0; i < out.size(); ++i) {
    Job job{in.data(images(i)), out.data(i), 1, 1, {}};
    args.read(i, in.shape(images(i)), out.shape(i), in.ndim(), job);
    if (!job.empty()) jobs.push_back(job);
  }
  launch_jobs(kMultiCrop, jobs, args.rule, in.dtype(), out.dtype());
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(resize, CUDA, ndd::resize_cuda<ndd::kResize>)
NDD_KERNEL(resize_crop_mirror, CUDA, ndd::resize_cuda<ndd::kResizeCropMirror>)
NDD_KERNEL(tensor_resize, CUDA, ndd::resize_cuda<ndd::kTensorResize>)
NDD_KERNEL(random_resized_crop, CUDA, ndd::resize_cuda<ndd::kRandomResizedCrop>)
NDD_KERNEL(multi_crop, CUDA, ndd::multi_crop_cuda)
