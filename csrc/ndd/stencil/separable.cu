// SPDX-License-Identifier: Apache-2.0
// Convolution with symmetric windows, one axis after the other. Height and width go through tiles in shared memory in a single launch. The depth of
// volumes, one-dimensional samples, and windows too large for a tile take one launch per axis, with float results in between.
#include "ndd/stencil/separable.cuh"

#include <algorithm>
#include <vector>

#include "ndd/elementwise/elements.cuh"
#include "ndd/stencil/byte_blur.cuh"
#include "ndd/stencil/stencil.cuh"

namespace ndd {
namespace stencil {
namespace {

__device__ inline float as_float(float value) { return value; }
__device__ inline float as_float(uint8_t value) { return static_cast<float>(static_cast<uint32_t>(value)); }

// The sums of 16 consecutive outputs, `stride` apart, computed from the center of the window outwards: two windows of 16 values slide apart, so
// a tap costs two loads of values and one of its weight for 32 operations. All indices are compile-time constants, so the windows stay in registers.
template <class Load>  // Load: offset from the first output, in elements -> float
__device__ void weighted_sums(float (&sum)[kPiece], const float* half, int radius, Load load) {
  float left[kPiece], right[kPiece];
#pragma unroll
  for (int o = 0; o < kPiece; ++o) {
    left[o] = right[o] = load(o);
    sum[o] = half[0] * left[o];
  }
  // Each step moves both windows by one: the oldest entry of each ring is replaced by the next value outwards.
  for (int first = 1; first <= radius; first += kPiece) {
#pragma unroll
    for (int u = 0; u < kPiece; ++u) {
      if (first + u > radius) break;
      left[kPiece - 1 - u] = load(-first - u);
      right[u] = load(kPiece - 1 + first + u);
      const float weight = half[first + u];
#pragma unroll
      for (int o = 0; o < kPiece; ++o) sum[o] += weight * (left[(o + kPiece - 1 - u) % kPiece] + right[(o + 1 + u) % kPiece]);
    }
  }
}

// S is the staged type: uint8_t for uint8, converted when loaded from the tile, otherwise float.
// The Filter of separable.cuh for convolutions: its staged rows are bytes or floats, and those between the passes floats.
template <class S>
struct Blur {
  using Staged = S;
  using Between = float;
  using Value = float;
  static constexpr bool kWeighted = true;
  static constexpr int kBlocks = 4;  // per multiprocessor, which leaves up to 80 registers per thread
  DType in, out;

  __device__ int64_t in_bytes() const { return item_bytes(in); }

  __device__ void stage(S* tile, int pitch, const StagedRows& from, const Plane& plane) const {
    if constexpr (sizeof(S) == 1) {
      stage_bytes(tile, pitch, from, plane, 0, 0);
    } else {
      for_dtype(in, [&](auto tag) {
        using T = typename decltype(tag)::type;
        stage_elements<T>(tile, pitch, from, plane, 0.0f, [](T value) { return static_cast<float>(value); });
      });
    }
  }

  template <class From>
  __device__ void window(float (&sum)[kPiece], const From* first, int stride, const Span& reach, const float* half) const {
    const From* center = first + reach.before * stride;
    weighted_sums(sum, half, reach.before, [=](int k) { return as_float(center[k * stride]); });
  }

  __device__ void store(float (&sum)[kPiece], void* to, const float* add, int64_t at, int64_t row, int count) const {
    if (add) {
#pragma unroll
      for (int o = 0; o < kPiece; ++o)
        if (o < count) sum[o] += add[at + o * row];
    }
    store_elements(sum, count, to, out, at, row);
  }
};

// One image's pass over one axis, along which neighbors are `stride` apart.
struct Pass {
  const void* in;
  void* out;
  const float* half;  // radius + 1 weights, the center's first
  const float* add;   // added to the result, or null; may be the same as `out`
  int64_t elements, extent, stride;
  int32_t radius;
};

// For axes along which neighbors are at least a warp apart, such as the depth of volumes: 16 outputs per thread, with neighboring threads side by
// side.
template <class In>
__global__ void __launch_bounds__(256) far_pass_kernel(const __grid_constant__ TableRows<Pass> passes, int64_t count) {
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const Pass pass = passes[n];
    if (pass.elements == 0) continue;
    // Elements as [outer][extent][stride]: a task is a piece of the extent at one place of the others.
    const int64_t pieces = (pass.extent + kPiece - 1) / kPiece, tasks = pass.elements / pass.extent * pieces;
    for (int64_t task = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; task < tasks; task += int64_t{gridDim.x} * blockDim.x) {
      // A task is 16 positions of one column of elements that lie `stride` apart.
      const int64_t piece = task / pass.stride, position = piece % pieces * kPiece;
      const int64_t first = piece / pieces * pass.stride * pass.extent + task % pass.stride;
      const In* const column = static_cast<const In*>(pass.in) + first;
      float sum[kPiece];
      // Inside, neighbors are found without mirroring.
      if (position >= pass.radius && position + kPiece + pass.radius <= pass.extent) {
        const In* const center = column + position * pass.stride;
        weighted_sums(sum, pass.half, pass.radius, [&](int k) { return static_cast<float>(load_global(center + k * pass.stride)); });
      } else {
        weighted_sums(sum, pass.half, pass.radius,
                      [&](int k) { return static_cast<float>(load_global(column + reflect_101(position + k, pass.extent) * pass.stride)); });
      }
      float* out = static_cast<float*>(pass.out) + first + position * pass.stride;
#pragma unroll
      for (int o = 0; o < kPiece; ++o, out += pass.stride)
        if (position + o < pass.extent) *out = sum[o];
    }
  }
}

// The element at a distance along the axis, mirrored at its ends.
__device__ int64_t neighbor(const Pass& pass, int64_t element, int64_t position, int64_t shift) {
  return element + (reflect_101(position + shift, pass.extent) - position) * pass.stride;
}

// The general path, for everything that does not fit in tiles: one element per thread, its window read through the L1 cache.
__global__ void __launch_bounds__(256) pass_kernel(const __grid_constant__ TableRows<Pass> passes, int64_t count, DType in, DType out) {
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const Pass pass = passes[n];
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < pass.elements; e += int64_t{gridDim.x} * blockDim.x) {
      const int64_t position = e / pass.stride % pass.extent;
      float sum = pass.half[0] * load_element(pass.in, in, e);
      for (int32_t k = 1; k <= pass.radius; ++k)
        sum +=
            pass.half[k] * (load_element(pass.in, in, neighbor(pass, e, position, -k)) + load_element(pass.in, in, neighbor(pass, e, position, k)));
      store_element(pass.add ? sum + pass.add[e] : sum, pass.out, out, e);
    }
  }
}

// The weights of the images' windows; equal ones in succession are uploaded once.
class Weights {
 public:
  // The position of the window's weights.
  int64_t add(const std::vector<float>& half) {
    const auto size = static_cast<int64_t>(half.size());
    // The length of the latest window.
    const auto found = static_cast<int64_t>(values_.size()) - last_;
    if (found == size && std::equal(half.begin(), half.end(), values_.end() - size)) return last_;
    last_ = static_cast<int64_t>(values_.size());
    values_.insert(values_.end(), half.begin(), half.end());
    return last_;
  }
  const std::vector<float>& values() const { return values_; }

 private:
  std::vector<float> values_;
  int64_t last_ = 0;
};

// Convolves along the axes [first, last) of depth, height and width, with one launch per axis.
// Takes what no tile holds: volumes, and windows that are too large for shared memory.
void launch_passes(const char* op, const std::vector<SeparableImage>& images, int64_t first_axis, int64_t last_axis, DType in, DType out) {
  int64_t total = 0, most = 0;
  for (const SeparableImage& image : images) {
    total += image.grid.volume();
    most = std::max(most, image.grid.volume());
  }
  if (total == 0) return;
  // Between the axes the whole batch is kept as float, in two alternating buffers.
  const int64_t axes = last_axis - first_axis, staged_bytes = total * static_cast<int64_t>(sizeof(float)),
                count = static_cast<int64_t>(images.size());
  const CudaBuffer first_stage(axes > 1 ? staged_bytes : 0), second_stage(axes > 2 ? staged_bytes : 0);
  float* staged[2] = {static_cast<float*>(first_stage.data()), static_cast<float*>(second_stage.data())};
  for (int64_t a = 0; a < axes; ++a) {
    const int64_t axis = first_axis + a;
    const bool first = a == 0, last = a == axes - 1;
    Weights weights;
    std::vector<int64_t> at;
    for (const SeparableImage& image : images) at.push_back(weights.add(image.windows[axis].half));
    const CudaTable<float> weight_table(weights.values());
    std::vector<Pass> passes;
    int64_t offset = 0;
    for (size_t k = 0; k < images.size(); ++k) {
      const SeparableImage& image = images[k];
      const Grid& grid = image.grid;
      // Buffers alternate: each pass reads what the one before wrote.
      const int64_t extents[3] = {grid.depth, grid.height, grid.width}, strides[3] = {grid.height * grid.row(), grid.row(), grid.inner};
      passes.push_back({first ? image.in : staged[(a - 1) % 2] + offset, last ? image.out : staged[a % 2] + offset, weight_table.data() + at[k],
                        last ? image.add : nullptr, grid.volume(), extents[axis], strides[axis], static_cast<int32_t>(image.windows[axis].radius())});
      offset += grid.volume();
    }
    const KernelTable<Pass> table(passes);
    const DType from = first ? in : DType::float32, to = last ? out : DType::float32;
    const auto far = [&](auto tag) {
      using In = typename decltype(tag)::type;
      far_pass_kernel<In><<<batch_grid(most / kPiece + 1, 256, count), 256, 0, current_cuda_stream()>>>(table.rows(), count);
    };
    // Only types that occur as intermediate results or images have an instance; others take the general kernel.
    const bool is_far =
        to == DType::float32 && std::all_of(passes.begin(), passes.end(), [](const Pass& pass) { return pass.stride >= 32 && !pass.add; });
    if (is_far && from == DType::uint8) far(TypeTag<uint8_t>{});
    else if (is_far && from == DType::float16) far(TypeTag<Half>{});
    else if (is_far && from == DType::float32) far(TypeTag<float>{});
    else pass_kernel<<<batch_grid(most, 256, count), 256, 0, current_cuda_stream()>>>(table.rows(), count, from, to);
    check_launch(op);
  }
}

Span span_of(const SymmetricWindow& window) {
  const auto radius = static_cast<int32_t>(window.radius());
  return {2 * radius + 1, radius};
}

// One plane: its weights, and the following planes, are set by launch_planes().
TileImage tile_image(const SeparableImage& image) {
  return {image.in,
          image.out,
          image.add,
          nullptr,
          image.grid.height,
          image.grid.width,
          image.grid.inner,
          span_of(image.windows[1]),
          span_of(image.windows[2])};
}

// Uploads the weights of height and width, in the order of TileImage::weights; those of image k begin at `at[k]`.
CudaTable<float> upload_plane_weights(const std::vector<SeparableImage>& images, std::vector<int64_t>& at) {
  Weights weights;
  std::vector<float> both;
  for (const SeparableImage& image : images) {
    both = image.windows[1].half;
    both.insert(both.end(), image.windows[2].half.begin(), image.windows[2].half.end());
    at.push_back(weights.add(both));
  }
  return CudaTable<float>(weights.values());
}

// Bytes with small windows.
void launch_byte_blurs(const char* op, const std::vector<SeparableImage>& images) {
  if (images.empty()) return;
  std::vector<int64_t> at;
  const CudaTable<float> table = upload_plane_weights(images, at);
  std::vector<BlurredImages> by_channels[4];
  for (size_t k = 0; k < images.size(); ++k) {
    const SeparableImage& image = images[k];
    by_channels[image.grid.inner - 1].push_back({static_cast<const uint8_t*>(image.in), static_cast<uint8_t*>(image.out), table.data() + at[k],
                                                 static_cast<int32_t>(image.grid.height), static_cast<int32_t>(image.grid.width),
                                                 static_cast<int32_t>(image.windows[1].radius()), static_cast<int32_t>(image.windows[2].radius())});
  }
  byte_blur::launch<1>(op, by_channels[0]);
  byte_blur::launch<2>(op, by_channels[1]);
  byte_blur::launch<3>(op, by_channels[2]);
  byte_blur::launch<4>(op, by_channels[3]);
}

// Height and width, for every plane.
template <class S>
void launch_planes(const char* op, const std::vector<SeparableImage>& images, DType in, DType out) {
  std::vector<int64_t> at;
  const CudaTable<float> table = upload_plane_weights(images, at);
  std::vector<TileImage> planes;
  planes.reserve(images.size());
  for (size_t k = 0; k < images.size(); ++k) {
    const Grid& grid = images[k].grid;
    TileImage plane = tile_image(images[k]);
    plane.weights = table.data() + at[k];
    const int64_t volume = grid.height * grid.row();
    for (int64_t z = 0; z < grid.depth && volume > 0; ++z) {
      planes.push_back(plane);
      plane.in = static_cast<const char*>(plane.in) + volume * item_bytes(in);
      plane.out = static_cast<char*>(plane.out) + volume * item_bytes(out);
      if (plane.add) plane.add += volume;
    }
  }
  launch_tiles(op, planes, Border::reflect_101, Blur<S>{in, out});
}

template <class S>
void launch(const char* op, const std::vector<SeparableImage>& images, int64_t spatial, DType in, DType out) {
  // Decided for each image on its own, so its result does not depend on the rest of the batch.
  const auto fits = [&](const SeparableImage& image) { return spatial > 1 && fits_tile<Blur<S>>(tile_image(image)); };
  // The usual case, without copies of the list.
  if (spatial == 2 && std::all_of(images.begin(), images.end(), fits)) return launch_planes<S>(op, images, in, out);
  std::vector<SeparableImage> tiled, rest;
  for (const SeparableImage& image : images) (fits(image) ? tiled : rest).push_back(image);
  if (!rest.empty()) launch_passes(op, rest, 3 - spatial, 3, in, out);
  if (tiled.empty()) return;
  // Volumes: the depth first, into floats, then height and width of each plane in tiles.
  if constexpr (sizeof(S) == sizeof(float)) {
    if (spatial == 3) {
      int64_t total = 0;
      for (const SeparableImage& image : tiled) total += image.grid.volume();
      const CudaBuffer staged(total * static_cast<int64_t>(sizeof(float)));
      std::vector<SeparableImage> along_depth = tiled;
      float* at = static_cast<float*>(staged.data());
      for (size_t k = 0; k < tiled.size(); ++k) {
        // The depth's results are the input of the planes.
        along_depth[k].out = at;
        along_depth[k].add = nullptr;
        tiled[k].in = at;
        at += tiled[k].grid.volume();
      }
      launch_passes(op, along_depth, 0, 1, in, DType::float32);
      return launch_planes<S>(op, tiled, DType::float32, out);
    }
  }
  launch_planes<S>(op, tiled, in, out);
}

}  // namespace
}  // namespace stencil

void launch_separable(const char* op, const std::vector<SeparableImage>& images, int64_t spatial, DType in, DType out) {
  if (in == DType::uint8 && out == DType::uint8 && spatial == 2) {
    // Decided for each image on its own, although both kernels have the same results.
    const auto fits = [](const SeparableImage& image) {
      return image.add == nullptr && stencil::byte_blur::fits(image.grid, image.windows[1], image.windows[2]);
    };
    // The usual case, without copies of the list.
    if (std::all_of(images.begin(), images.end(), fits)) return stencil::launch_byte_blurs(op, images);
    std::vector<SeparableImage> small, rest;
    for (const SeparableImage& image : images) (fits(image) ? small : rest).push_back(image);
    stencil::launch_byte_blurs(op, small);
    stencil::launch<uint8_t>(op, rest, spatial, in, out);
    return;
  }
  if (in == DType::uint8 && spatial < 3) stencil::launch<uint8_t>(op, images, spatial, in, out);
  else stencil::launch<float>(op, images, spatial, in, out);
}

}  // namespace ndd
