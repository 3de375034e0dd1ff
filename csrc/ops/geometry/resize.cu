// SPDX-License-Identifier: Apache-2.0
// Sorts the samples of a batch by the kernel that suits them, and launches each kernel once. A sample's result depends on its own sizes and
// filters only, so it is the same in every batch.
#include "ops/geometry/resize.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/dtypes.h"
#include "ndd/kernel.h"
#include "ndd/resample/linear.cuh"
#include "ndd/resample/nearest.cuh"
#include "ndd/resample/normalized.cuh"
#include "ndd/resample/pass.cuh"
#include "ndd/resample/tile.cuh"
#include "ndd/resample/torch_rule.h"

namespace ndd::resize_kernels {
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
// ones are needed where a reduction reads many rows. Cases with one axis are rearranged so that tiles are full, unless results are normalized, whose
// planes have places of their own.
bool tiled(const Job& job, int64_t item_bytes, TiledSample& s, const Normalization* normalization = nullptr) {
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
  } else if (normalization == nullptr && is_unchanged(s.vertical) &&
             s.planes * s.vertical.in <= 4194304) {  // one axis: rows of all planes fill the tiles
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
  const bool planar = normalization != nullptr && normalization->pixel == 1;
  // The widest tile that fits, but no wider than the image needs.
  for (int32_t width = 128; width >= 8 && !found; width /= 2)
    found = (width == 8 || s.horizontal.out > width / 2) && s.cut(width, item_bytes, planar) <= kSharedBytes;
  for (int32_t width = 8; width >= 4 && !found; width /= 2) found = s.cut(width, item_bytes, planar) <= kMaxSharedBytes;
  return found && s.tiles < 1 << 30;
}

template <class Row>
bool is_planar(const Row& row) {
  if constexpr (is_normalized<Row>) return row.normalization.pixel == 1;
  else return false;
}

template <class In, bool kRounded, class Row>
void launch_tiles(const char* op, const std::vector<Row>& samples, DType in, DType out) {
  const int64_t count = static_cast<int64_t>(samples.size());
  const Row& reference = samples[0];
  // The grid must fit the largest sample; smaller ones leave blocks without work.
  int64_t tiles = 0, across = 1, planes = 0, bytes = 0;
  bool alike = true;
  for (Row s : samples) {
    tiles = std::max<int64_t>(tiles, s.tiles);
    across = std::max<int64_t>(across, s.across);
    planes = std::max(planes, s.planes);
    bytes = std::max(bytes, s.cut(s.tile_width, item_bytes(out), is_planar(s)));
    alike = alike && s.channels == reference.channels && same_axis(s.vertical, reference.vertical) && same_axis(s.horizontal, reference.horizontal);
  }
  if (bytes > 40 << 10)  // with the kernel's own variables it exceeds 48 KiB, above which shared memory must be requested
    check_cuda(cudaFuncSetAttribute(tile_kernel<In, kRounded, Row>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMaxSharedBytes)),
               op);
  // As many blocks as two waves of four on each multiprocessor: more tiles go to the same blocks, which keep the weights of rows and columns with
  // samples alike, or of columns down a sample.
  const int64_t max_blocks = 2 * 4 * multiprocessors();
  int64_t x = tiles, y = count;
  if (tiles * count * planes > max_blocks) {
    // Samples alike share all weights: a block goes from sample to sample. Otherwise it goes down a sample, where the weights of its columns stay.
    if (alike) y = std::clamp<int64_t>(max_blocks / (tiles * planes), 1, count);
    else x = std::min(tiles, across * std::max<int64_t>(1, max_blocks / (across * count * planes)));
  }
  const KernelTable<Row> table(samples);
  tile_kernel<In, kRounded, Row>
      <<<grid_of(x, y, planes), kThreads, static_cast<size_t>(bytes), current_cuda_stream()>>>(table.rows(), count, alike, in, out);
}

void launch_tiles(const char* op, const std::vector<TiledSample>& samples, DType in, DType out) {
  if (samples.empty()) return;
  // Common types have instances; for the others the type is looked up per element.
  const auto launch = in == DType::uint8 && out == DType::uint8 ? launch_tiles<uint8_t, true, TiledSample>
                      : in == DType::uint8                      ? launch_tiles<uint8_t, false, TiledSample>
                      : in == DType::float32                    ? launch_tiles<float, false, TiledSample>
                      : in == DType::float16                    ? launch_tiles<Half, false, TiledSample>
                                                                : launch_tiles<void, false, TiledSample>;
  launch(op, samples, in, out);
}

// Whether the sample is a linear reduction without antialias of a common type: two taps per axis, which need no shared memory.
bool is_linear(const TiledSample& s, DType in, DType out) {
  const auto common = [](DType type) { return type == DType::uint8 || type == DType::float16 || type == DType::float32; };
  const auto one_or_two = [](const Axis& a) { return a.filter == Filter::nearest || a.filter == Filter::linear; };
  return one_or_two(s.vertical) && one_or_two(s.horizontal) && fabsf(s.horizontal.scale) > 1 && s.channels <= 16 && common(in) && common(out);
}

template <class In, class Row>
void launch_linear(const std::vector<Row>& samples, DType out) {
  if (samples.empty()) return;
  int64_t tiles = 0, planes = 0;
  bool color = true;
  for (const Row& s : samples) {
    tiles = std::max(tiles, (s.vertical.out + kLinearRows - 1) / kLinearRows * ((s.horizontal.out + kLinearColumns - 1) / kLinearColumns));
    planes = std::max(planes, s.planes);
    // With the number of channels known at compile time a thread keeps a pixel in registers. One other sample makes all of them take the general
    // loop.
    color = color && s.channels == 3;
  }
  const KernelTable<Row> table(samples);
  const int64_t count = static_cast<int64_t>(samples.size());
  const auto kernel = color ? linear_kernel<In, 3, Row> : linear_kernel<In, 0, Row>;
  kernel<<<grid_of(tiles, count, planes), kThreads, 0, current_cuda_stream()>>>(table.rows(), count, out);
}

void launch_linear(const std::vector<TiledSample>& samples, DType in, DType out) {
  const auto launch = in == DType::uint8     ? launch_linear<uint8_t, TiledSample>
                      : in == DType::float32 ? launch_linear<float, TiledSample>
                                             : launch_linear<Half, TiledSample>;
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
  const KernelTable<PassSample> table(samples);
  const int64_t count = static_cast<int64_t>(samples.size());
  const auto kernel = in == DType::float32 ? pass_kernel<float> : in == DType::uint8 ? pass_kernel<uint8_t> : pass_kernel<void>;
  kernel<<<grid_of(groups, count, outer), kThreads, 0, current_cuda_stream()>>>(table.rows(), count, in, out);
}

template <class Unit>
void launch_nearest(const std::vector<NearestSample>& samples) {
  constexpr int64_t kWidth = 32 * kNearestUnits<Unit>;
  int64_t tiles = 0;
  for (const NearestSample& s : samples) tiles = std::max(tiles, (s.rows() + kNearestRows - 1) / kNearestRows * ((s.row() + kWidth - 1) / kWidth));
  const KernelTable<NearestSample> table(samples);
  const int64_t count = static_cast<int64_t>(samples.size());
  nearest_kernel<Unit><<<grid_of(tiles, count, 1), kThreads, 0, current_cuda_stream()>>>(table.rows(), count);
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
  // From here on a pixel is that many units, whatever the type of its elements.
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
  // Floats between the passes: rounding to the type of the input would add up.
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
  // In floats from the beginning of the buffer; -1 where a tile takes the place of the last two passes.
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
    // No tile fits: height and width take a pass each, through memory.
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

// Where the elements of a normalized sample go, if the kernels know this order of axes: images of up to four colors, which stay where they are or
// become planes.
std::optional<Normalization> find_places(const NormalizeArgs& args, int64_t sample, const int64_t* to) {
  const std::string &layout = args.layout(), &output_layout = args.output_layout();
  const size_t n = layout.size(), color = layout.find('C'), place = output_layout.find('C');
  // The kernels move the colors only. All other axes must follow each other as before, and end with the height and the width.
  std::string rest = layout, output_rest = output_layout;
  rest.erase(color, 1);
  output_rest.erase(place, 1);
  const bool in_planes = color + 3 == n, becomes_planes = place + 3 == n;
  if (rest != output_rest || rest.size() < 2 || rest.substr(rest.size() - 2) != "HW" || to[place] > kMaxColors) return std::nullopt;
  if (!(color + 1 == n && (becomes_planes || place + 1 == n)) && !(in_planes && becomes_planes)) return std::nullopt;
  Normalization found{};
  found.colors = static_cast<int32_t>(to[place]);
  found.in_planes = in_planes;
  const int64_t height = to[becomes_planes ? n - 2 : n - 3], width = to[becomes_planes ? n - 1 : n - 2];
  found.pixel = becomes_planes ? 1 : found.colors;
  found.row = width * found.pixel;
  found.color = becomes_planes ? height * width : 1;
  found.plane = height * width * (in_planes ? 1 : found.colors);
  std::vector<Channel> channels;
  args.append_channels(sample, found.colors, channels);
  std::copy(channels.begin(), channels.end(), found.channels);
  return found;
}

// Resizes and normalizes: images of bytes in one launch, by the kernel that would resize them; other samples by way of memory.
void launch_normalized(const char* op, const std::vector<Job>& jobs, const std::vector<int64_t>& samples, const NormalizeArgs& normalize, Rule rule,
                       const Samples& in, const Samples& out) {
  std::vector<size_t> others;
  // By the kernel that resamples them. `others` holds numbers of jobs that are resized to memory and normalized from there.
  std::vector<Normalized<TiledSample>> tiles, linear;
  std::vector<ResampleJob> by_torch_rule;
  std::vector<Normalization> normalizations;
  std::vector<size_t> places;  // in `jobs`, of those by torch's rule
  for (size_t k = 0; k < jobs.size(); ++k) {
    const Job& job = jobs[k];
    const auto found =
        in.dtype() == DType::uint8 && is_normal_type(out.dtype()) ? find_places(normalize, samples[k], out.shape(samples[k])) : std::nullopt;
    if (found && rule != Rule::dali) {
      by_torch_rule.push_back({job.in, job.out, in.dtype(), in.dtype(), job.outer, job.channels, {job.axes[0], job.axes[1], job.axes[2]}});
      normalizations.push_back(*found);
      places.push_back(k);
      continue;
    }
    const bool is_nearest = std::all_of(job.axes, job.axes + 3, [](const Axis& a) { return a.filter == Filter::nearest; });
    Normalized<TiledSample> s;
    if (found && !is_nearest && is_unchanged(job.axes[0]) && tiled(job, out.item_bytes(), s, &*found)) {
      s.normalization = *found;
      (is_linear(s, in.dtype(), in.dtype()) ? linear : tiles).push_back(s);
    } else {
      others.push_back(k);
    }
  }
  // What that kernel does not take comes back and goes through memory.
  if (!by_torch_rule.empty())
    for (const size_t k : launch_byte_tiles(op, by_torch_rule, normalizations.data(), out.dtype())) others.push_back(places[k]);
  if (!tiles.empty()) launch_tiles<uint8_t, true>(op, tiles, in.dtype(), out.dtype());
  launch_linear<uint8_t>(linear, out.dtype());
  check_launch(op);
  if (others.empty()) return;
  // The resized samples, one behind the other at multiples of 256 bytes.
  std::vector<int64_t> at;
  int64_t bytes = 0;
  for (const size_t k : others) {
    at.push_back(bytes);
    bytes += (out.volume(samples[k]) * in.item_bytes() + 255) / 256 * 256;
  }
  const CudaBuffer buffer(bytes);
  std::vector<Job> resizes;
  SliceBatch batch;
  for (size_t n = 0; n < others.size(); ++n) {
    void* const resized = static_cast<char*>(buffer.data()) + at[n];
    const int64_t i = samples[others[n]];
    resizes.push_back(jobs[others[n]]);
    resizes.back().out = resized;
    normalize.append_slice(i, resized, out.data(i), out.shape(i), in.dtype() == out.dtype(), false, batch);
  }
  for (Slice& slice : batch.slices) slice.set_out_strides();
  launch_jobs(op, resizes, rule, in.dtype(), in.dtype());
  launch_slices(op, std::move(batch), in.dtype(), out.dtype());
}

template <const char* op>
void resize_and_normalize_cuda(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& roi, const MaybeTensor& window,
                               const Tensor& min_filter, const Tensor& mag_filter, bool antialias, int64_t rule, int64_t axes,
                               const MaybeTensor& mirror, const MaybeTensor& mean, const MaybeTensor& std, const std::string& layout,
                               const std::string& output_layout, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const ResizeArgs args(op, roi, window, min_filter, mag_filter, antialias, rule, axes, mirror);
  args.check(in.size(), in.ndim(), out.size(), out.ndim());
  const NormalizeArgs normalize(op, mean, std, layout, output_layout, in.ndim());
  std::vector<Job> jobs;
  std::vector<int64_t> samples;
  jobs.reserve(in.size());
  for (int64_t i = 0; i < in.size(); ++i) {
    Job job{in.data(i), out.data(i), 1, 1, {}};
    int64_t resized[kSliceDims];
    const int64_t* shape = out.shape(i);
    if (normalize.wanted()) {
      normalize.resized_shape(shape, resized);
      shape = resized;
    }
    args.read(i, in.shape(i), shape, in.ndim(), job);
    if (job.empty()) continue;
    jobs.push_back(job);
    samples.push_back(i);
  }
  if (normalize.wanted()) launch_normalized(op, jobs, samples, normalize, args.rule, in, out);
  else launch_jobs(op, jobs, args.rule, in.dtype(), out.dtype());
}

template <const char* op>
void resize_cuda(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& roi, const MaybeTensor& window, const Tensor& min_filter,
                 const Tensor& mag_filter, bool antialias, int64_t rule, int64_t axes, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const ResizeArgs args(op, roi, window, min_filter, mag_filter, antialias, rule, axes);
  args.check(in.size(), in.ndim(), out.size(), out.ndim());
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
                     const Tensor& mag_filter, bool antialias, int64_t rule, int64_t axes, bool, const Tensor& output,
                     const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Args<int64_t> images = check_sources(sources, roi, in, out);
  const ResizeArgs args(kMultiCrop, roi, MaybeTensor(), min_filter, mag_filter, antialias, rule, axes);
  args.check(out.size(), in.ndim(), out.size(), out.ndim());
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
}  // namespace ndd::resize_kernels
NDD_KERNEL(resize, CUDA, ndd::resize_kernels::resize_cuda<ndd::kResize>)
NDD_KERNEL(resize_crop_mirror, CUDA, ndd::resize_kernels::resize_and_normalize_cuda<ndd::kResizeCropMirror>)
NDD_KERNEL(tensor_resize, CUDA, ndd::resize_kernels::resize_cuda<ndd::kTensorResize>)
NDD_KERNEL(random_resized_crop, CUDA, ndd::resize_kernels::resize_and_normalize_cuda<ndd::kRandomResizedCrop>)
NDD_KERNEL(multi_crop, CUDA, ndd::resize_kernels::multi_crop_cuda)
