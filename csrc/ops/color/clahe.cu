// SPDX-License-Identifier: Apache-2.0
// clahe on CUDA. One launch makes the tables of all tiles of all images, a second one blends them. Pixels that lie between the same four tile centers use
// the same four tables, so a block takes such a rectangle and keeps the tables in shared memory, four bytes of a level in one word. Lightness alone is
// equalized in a Lab copy of the image, with a launch before and after.
#include "ops/color/clahe.h"

#include "ndd/cuda.h"
#include "ndd/kernel.h"
#include "ops/color/lab.h"

namespace ndd::clahe {
namespace {

constexpr int kThreads = 256;

// One channel, whose pixels lie `step` bytes apart.
// `src` may be `dst`: every table is made before the first pixel is blended.
struct Image {
  const uint8_t* src;
  uint8_t* dst;
  int64_t step;
  Tiling tiling;
  int64_t first;  // of its tables
};

struct Colors {
  const uint8_t* rgb;
  uint8_t *out, *lab;  // three planes
  int64_t pixels;
};

__device__ uint32_t sum_of_warp(uint32_t value) {
  for (int d = 1; d < 32; d *= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, d);
  return value;
}

// make_clipped_table() by a warp, whose lanes have eight levels each: 5 steps of a sum and a scan instead of 256 of one thread for which the others wait.
// Counts above the limit are cut off and spread evenly over all levels; the table is the cumulative sum, scaled to 255.
__device__ void make_clipped_table_by_warp(const uint32_t* counts, uint32_t limit, int64_t area, uint8_t* table) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t own[8], above = 0;
  for (int j = 0; j < 8; ++j) {
    own[j] = counts[lane * 8 + j];
    if (limit > 0 && own[j] > limit) {
      above += own[j] - limit;
      own[j] = limit;
    }
  }
  if (limit > 0) {
    above = sum_of_warp(above);
    // The remainder goes to levels 0, step, 2 step...: a lane finds its own among them by a division.
    const uint32_t share = above / kLevels, rest = above % kLevels, step = rest ? kLevels / rest : kLevels;
    for (uint32_t j = 0; j < 8; ++j) {
      const uint32_t level = lane * 8 + j;
      own[j] += share + (level % step == 0 && level / step < rest ? 1 : 0);
    }
  }
  uint32_t sum = 0;
  // From counts to sums: first within the lane, then over the lanes.
  for (int j = 0; j < 8; ++j) own[j] = sum += own[j];
  // An inclusive scan over the lanes; without its own sum, a lane has the count of all levels below its first one.
  uint32_t below = sum;
  for (int d = 1; d < 32; d *= 2) {
    const uint32_t other = __shfl_up_sync(0xFFFFFFFFu, below, d);
    if (lane >= d) below += other;
  }
  below -= sum;
  const float scale = 255.0f / static_cast<float>(area);
  for (int j = 0; j < 8; ++j) table[lane * 8 + j] = static_cast<uint8_t>(rintf(fminf(static_cast<float>(below + own[j]) * scale, 255.0f)));
}

// The pixels of a rectangle by groups of four neighbors, in a word where they have one, by all threads of the block: after f.begin(x) for a column of groups,
// f(y, at, levels) for words at byte `at` of the image, and f.single(y, at, p, level) for the p-th pixel of a group that is not in a word, or not of the
// rectangle alone.
template <class F>
__device__ __forceinline__ void for_groups(const Image& image, int left, int right, int top, int bottom, F f) {
  constexpr int kInFlight = 4;  // words of a thread: 32 KB for each multiprocessor
  const auto width = static_cast<int>(image.tiling.width), step = static_cast<int>(image.step), begin = left & ~3, groups = (right - begin + 3) / 4;
  const uint8_t* const src = image.src;
  assume_global(src);
  // Every row of groups begins with a word.
  const bool wide = step == 1 && width % 4 == 0 && (reinterpret_cast<uintptr_t>(src) | reinterpret_cast<uintptr_t>(image.dst)) % 4 == 0;
  const int at_once = max(min(groups, kThreads), 1), rows = kThreads / at_once, row = static_cast<int>(threadIdx.x) / at_once;
  // The threads that fill no whole row of groups have nothing to do.
  if (row >= rows) return;
#pragma unroll 1
  for (int g = static_cast<int>(threadIdx.x) - row * at_once; g < groups; g += at_once) {
    const int x = begin + 4 * g, first = max(left - x, 0), last = min(right - x, 4);
    f.begin(x);
    if (wide && first == 0 && last == 4) {
#pragma unroll 1
      for (int y = top + row; y < bottom; y += kInFlight * rows) {
        uint32_t levels[kInFlight] = {};
#pragma unroll
        for (int k = 0; k < kInFlight; ++k)
          if (y + k * rows < bottom) levels[k] = *reinterpret_cast<const uint32_t*>(src + (int64_t{y + k * rows} * width + x));
#pragma unroll
        for (int k = 0; k < kInFlight; ++k)
          if (y + k * rows < bottom) f(y + k * rows, int64_t{y + k * rows} * width + x, levels[k]);
      }
    } else {
#pragma unroll 1
      for (int y = top + row; y < bottom; y += rows) {
        const int64_t at = (int64_t{y} * width + x) * step;
#pragma unroll
        for (int p = 0; p < 4; ++p)
          if (p >= first && p < last) f.single(y, at + p * step, p, src[at + p * step]);
      }
    }
  }
}

// A block for each tile. Lanes add to different copies of its histogram, because additions to one level are serialized: images have large areas of one.
constexpr int kCopies = 4;

struct CountLevels {
  uint32_t* counts;

  __device__ __forceinline__ void begin(int) const {}
  __device__ __forceinline__ void single(int, int64_t, int, uint32_t level) const { atomicAdd(counts + level, 1u); }
  __device__ __forceinline__ void operator()(int, int64_t, uint32_t levels) const {
#pragma unroll
    for (int p = 0; p < 4; ++p) atomicAdd(counts + (levels >> 8 * p & 0xFF), 1u);
  }
};

__global__ void __launch_bounds__(kThreads) tables_gpu(const Image* images, int64_t count, uint8_t* tables) {
  __shared__ uint32_t counts[kCopies * kLevels];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Image& image = images[k];
    const Tiling t = image.tiling;
    const int64_t step = image.step;
    for (int64_t tile = blockIdx.x; tile < t.tiles_y * t.tiles_x; tile += gridDim.x) {
      for (int v = threadIdx.x; v < kCopies * kLevels; v += kThreads) counts[v] = 0;
      __syncthreads();
      const int64_t top = tile / t.tiles_x * t.tile_height, left = tile % t.tiles_x * t.tile_width;
      uint32_t* const own = counts + lane % kCopies * kLevels;
      // The last tiles may extend beyond the image, which is reflected there.
      if (top + t.tile_height <= t.height && left + t.tile_width <= t.width) {
        for_groups(image, static_cast<int>(left), static_cast<int>(left + t.tile_width), static_cast<int>(top), static_cast<int>(top + t.tile_height),
                   CountLevels{own});
      } else {
#pragma unroll 1
        for (int64_t y = warp; y < t.tile_height; y += kThreads / 32) {
          const uint8_t* const row = image.src + reflect_index(top + y, t.height) * t.width * step;
#pragma unroll 1
          for (int64_t x = lane; x < t.tile_width; x += 32) atomicAdd(own + row[reflect_index(left + x, t.width) * step], 1u);
        }
      }
      __syncthreads();
      for (int v = threadIdx.x; v < kLevels; v += kThreads)
        for (int c = 1; c < kCopies; ++c) counts[v] += counts[c * kLevels + v];
      __syncthreads();
      // The other warps wait: a tile has one table.
      if (warp == 0) make_clipped_table_by_warp(counts, t.limit, t.area(), tables + (image.first + tile) * kLevels);
      __syncthreads();
    }
  }
}

// The first pixel, of `extent` along an axis, for which neighbors() has tile `k` or a later one as that before it.
__device__ int first_behind(int k, int64_t tile, int64_t tiles, int64_t extent) {
  const auto before = [=](int64_t i) { return floorf(static_cast<float>(i) * (1.0f / static_cast<float>(tile)) - 0.5f); };
  if (k < 0) return 0;
  if (k >= tiles) return static_cast<int>(extent);
  // Near the center of the tile, up to roundings.
  int64_t i = min(k * tile + tile / 2, extent);
  while (i > 0 && before(i - 1) >= static_cast<float>(k)) --i;
  while (i < extent && before(i) < static_cast<float>(k)) ++i;
  return static_cast<int>(i);
}

// blend_tables() for pixels between the same four centers, whose tables have a word for each level.
struct Blend {
  const uint32_t* quads;  // upper left, upper right, lower left, lower right
  uint8_t* dst;
  int64_t tile_width, tiles_x, tile_height, tiles_y;
  float weight[4];  // of the right tables

  __device__ __forceinline__ void begin(int x) {
#pragma unroll
    for (int p = 0; p < 4; ++p) weight[p] = neighbors(x + p, tile_width, tiles_x).weight;
  }

  static __device__ __forceinline__ float byte_of(uint32_t quad, int k) {
    return __uint_as_float(__byte_perm(quad, 0x4B000000u, 0x7440 + k)) - 8388608.0f;  // as the lowest byte of 2^23
  }

  // The lowest byte is the level, rounded half to even, as by rintf.
  __device__ __forceinline__ uint32_t blend(uint32_t level, int p, float lower) const {
    const uint32_t quad = quads[level];
    const float x = weight[p], x1 = 1.0f - x, upper = 1.0f - lower;
    const float value = (byte_of(quad, 0) * x1 + byte_of(quad, 1) * x) * upper + (byte_of(quad, 2) * x1 + byte_of(quad, 3) * x) * lower;
    return __float_as_uint(value + 8388608.0f);
  }

  __device__ __forceinline__ float lower_weight(int y) const { return neighbors(y, tile_height, tiles_y).weight; }

  __device__ __forceinline__ void single(int y, int64_t at, int p, uint32_t level) const {
    dst[at] = static_cast<uint8_t>(blend(level, p, lower_weight(y)));
  }
  __device__ __forceinline__ void operator()(int y, int64_t at, uint32_t levels) const {
    const float lower = lower_weight(y);
    uint32_t blended[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) blended[p] = blend(levels >> 8 * p & 0xFF, p, lower);
    *reinterpret_cast<uint32_t*>(dst + at) =
        __byte_perm(__byte_perm(blended[0], blended[1], 0x0040), __byte_perm(blended[2], blended[3], 0x0040), 0x5410);
  }
};

// A block for each rectangle between the centers of four tiles, or between centers and the border. Predicted: 25 instructions for each pixel.
__global__ void __launch_bounds__(kThreads) blend_gpu(const Image* images, int64_t count, const uint8_t* tables) {
  __shared__ uint32_t quads[kLevels];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Image& image = images[k];
    const Tiling t = image.tiling;
    const auto across = static_cast<int>(t.tiles_x) + 1, cells = across * (static_cast<int>(t.tiles_y) + 1);
    for (int cell = static_cast<int>(blockIdx.x); cell < cells; cell += static_cast<int>(gridDim.x)) {
      const int down = cell / across, right = cell - down * across;
      const uint8_t* const own = tables + image.first * kLevels;
      uint8_t* const dst = image.dst;
      assume_global(dst);
      // Cell (down, right) lies between the centers of tiles down - 1 and down, right - 1 and right. At the border of the image the only tile
      // takes both places.
      const int64_t rows[2] = {max(down - 1, 0), min(int64_t{down}, t.tiles_y - 1)},
                    columns[2] = {max(right - 1, 0), min(int64_t{right}, t.tiles_x - 1)};
      __syncthreads();  // the previous rectangle is finished
      for (int v = threadIdx.x; v < kLevels; v += kThreads) {
        const auto entry = [&](int r, int c) { return uint32_t{own[(rows[r] * t.tiles_x + columns[c]) * kLevels + v]}; };
        quads[v] = entry(0, 0) | entry(0, 1) << 8 | entry(1, 0) << 16 | entry(1, 1) << 24;
      }
      __syncthreads();
      for_groups(image, first_behind(right - 1, t.tile_width, t.tiles_x, t.width), first_behind(right, t.tile_width, t.tiles_x, t.width),
                 first_behind(down - 1, t.tile_height, t.tiles_y, t.height), first_behind(down, t.tile_height, t.tiles_y, t.height),
                 Blend{quads, dst, t.tile_width, t.tiles_x, t.tile_height, t.tiles_y, {}});
    }
  }
}

// The planes of Lab: the first one is equalized where it is, and the two others wait there for from_lab_gpu.
__global__ void to_lab_gpu(const Colors* colors, int64_t count, const LabTables* tables) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Colors c = colors[k];
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < c.pixels; i += int64_t{gridDim.x} * kThreads) {
      int32_t xyz[3];
      lab::xyz(tables->light[c.rgb[3 * i]], tables->light[c.rgb[3 * i + 1]], tables->light[c.rgb[3 * i + 2]], xyz);
      lab::from_roots(tables->root[xyz[0]], tables->root[xyz[1]], tables->root[xyz[2]], c.lab + i, c.lab + c.pixels + i, c.lab + 2 * c.pixels + i);
    }
  }
}

__global__ void from_lab_gpu(const Colors* colors, int64_t count, const LabTables* tables) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Colors c = colors[k];
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < c.pixels; i += int64_t{gridDim.x} * kThreads) {
      int32_t light[3];
      lab::light_of(c.lab[i], c.lab[c.pixels + i], c.lab[2 * c.pixels + i], light, light + 1, light + 2);
      for (int j = 0; j < 3; ++j) c.out[3 * i + j] = tables->gamma[light[j]];
    }
  }
}

void clahe_cuda(const Tensor& input, const MaybeTensor& input_shapes, double clip_limit, bool luma_only, int64_t tiles_x, int64_t tiles_y,
                const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_arguments(in, out, tiles_y, tiles_x);
  std::vector<Image> images;
  std::vector<Colors> colors;
  int64_t max_pixels = 0, converted = 0, tables = 0;
  for (int64_t i = 0; i < in.size(); ++i)
    if (in.shape(i)[2] == 3 && luma_only) converted += in.volume(i);
  // One allocation for the planes of all images.
  const CudaBuffer lab(converted);
  uint8_t* next = static_cast<uint8_t*>(lab.data());
  for (int64_t i = 0; i < in.size(); ++i) {
    const int64_t *shape = in.shape(i), pixels = shape[0] * shape[1], channels = shape[2];
    if (pixels == 0) continue;
    const Tiling tiling(shape[0], shape[1], tiles_y, tiles_x, clip_limit);
    const uint8_t* from = static_cast<const uint8_t*>(in.data(i));
    uint8_t* to = static_cast<uint8_t*>(out.data(i));
    max_pixels = std::max(max_pixels, pixels);
    if (channels == 3 && luma_only) {
      colors.push_back({from, to, next, pixels});
      images.push_back({next, next, 1, tiling, tables});
      next += 3 * pixels;
      tables += tiling.tiles();
      continue;
    }
    // Channels are equalized independently, each as an image with distant pixels.
    for (int64_t c = 0; c < channels; ++c, tables += tiling.tiles()) images.push_back({from + c, to + c, channels, tiling, tables});
  }
  if (images.empty()) return;
  const CudaTable<Image> image_table(images);
  const CudaTable<Colors> color_table(colors);
  // Uploaded only if there are colors to convert.
  const CudaTable<LabTables> lab_table(colors.empty() ? std::vector<LabTables>{} : std::vector<LabTables>{lab_tables()});
  const CudaBuffer buffer(tables * kLevels);
  uint8_t* table_bytes = static_cast<uint8_t*>(buffer.data());
  const cudaStream_t stream = current_cuda_stream();
  const dim3 color_grid = batch_grid(max_pixels, kThreads, static_cast<int64_t>(colors.size()));
  const auto count = static_cast<int64_t>(images.size()), colored = static_cast<int64_t>(colors.size());
  // Bound by instructions: a pixel takes four lookups, some 100 operations with its colors; about 10 % of the bandwidth are expected.
  if (colored) to_lab_gpu<<<color_grid, kThreads, 0, stream>>>(color_table.data(), colored, lab_table.data());
  tables_gpu<<<batch_grid(tiles_x * tiles_y, 1, count), kThreads, 0, stream>>>(image_table.data(), count, table_bytes);
  blend_gpu<<<batch_grid((tiles_x + 1) * (tiles_y + 1), 1, count), kThreads, 0, stream>>>(image_table.data(), count, table_bytes);
  if (colored) from_lab_gpu<<<color_grid, kThreads, 0, stream>>>(color_table.data(), colored, lab_table.data());
  check_launch("clahe");
}

}  // namespace
}  // namespace ndd::clahe
NDD_KERNEL(clahe, CUDA, ndd::clahe::clahe_cuda)
