// SPDX-License-Identifier: Apache-2.0
#include "ops/color/clahe.h"

#include "ndd/cuda.h"
#include "ndd/kernel.h"
#include "ops/color/lab.h"

namespace ndd::clahe {
namespace {

constexpr int kThreads = 256;

// One channel, whose pixels lie `step` bytes apart.
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

// limited_table by a warp, whose lanes have eight levels each: 5 steps of a sum and a scan instead of 256 of one thread for which the others wait.
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
    const uint32_t share = above / kLevels, rest = above % kLevels, step = rest ? kLevels / rest : kLevels;
    for (uint32_t j = 0; j < 8; ++j) {
      const uint32_t level = lane * 8 + j;
      own[j] += share + (level % step == 0 && level / step < rest ? 1 : 0);
    }
  }
  uint32_t sum = 0;
  for (int j = 0; j < 8; ++j) own[j] = sum += own[j];
  uint32_t below = sum;
  for (int d = 1; d < 32; d *= 2) {
    const uint32_t other = __shfl_up_sync(0xFFFFFFFFu, below, d);
    if (lane >= d) below += other;
  }
  below -= sum;
  const float scale = 255.0f / static_cast<float>(area);
  for (int j = 0; j < 8; ++j) table[lane * 8 + j] = static_cast<uint8_t>(rintf(fminf(static_cast<float>(below + own[j]) * scale, 255.0f)));
}

// A block for each tile, a warp for each of its rows.
__global__ void __launch_bounds__(kThreads) tables_gpu(const Image* images, int64_t count, uint8_t* tables) {
  __shared__ uint32_t counts[kLevels];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Image& image = images[k];
    const Tiling t = image.tiling;
    const int64_t step = image.step;
    for (int64_t tile = blockIdx.x; tile < t.tiles_y * t.tiles_x; tile += gridDim.x) {
      for (int v = threadIdx.x; v < kLevels; v += kThreads) counts[v] = 0;
      __syncthreads();
      const int64_t top = tile / t.tiles_x * t.tile_height, left = tile % t.tiles_x * t.tile_width;
      for (int64_t y = warp; y < t.tile_height; y += kThreads / 32) {
        const uint8_t* const row = image.src + reflect_index(top + y, t.height) * t.width * step;
        for (int64_t x = lane; x < t.tile_width; x += 32) atomicAdd(counts + row[reflect_index(left + x, t.width) * step], 1u);
      }
      __syncthreads();
      if (warp == 0) make_clipped_table_by_warp(counts, t.limit, t.area(), tables + (image.first + tile) * kLevels);
      __syncthreads();
    }
  }
}

constexpr int kRows = 16;  // pixels of a thread, one below the other: what their column has to do with tiles is found once

__global__ void __launch_bounds__(kThreads) blend_gpu(const Image* images, int64_t count, const uint8_t* tables) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Image& image = images[k];
    const Tiling t = image.tiling;
    const uint8_t* const src = image.src;
    uint8_t* const dst = image.dst;
    const int64_t step = image.step, groups = (t.width + 31) / 32, tasks = groups * ((t.height + kRows - 1) / kRows);
    const uint8_t* const own = tables + image.first * kLevels;
    for (int64_t task = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; task < tasks; task += int64_t{gridDim.x} * (kThreads / 32)) {
      const int64_t x = task % groups * 32 + lane, top = task / groups * kRows, bottom = min(top + kRows, t.height);
      if (x >= t.width) continue;
      const Neighbors column = neighbors(x, t.tile_width, t.tiles_x);
      for (int64_t y = top; y < bottom; ++y) {
        const Neighbors row = neighbors(y, t.tile_height, t.tiles_y);
        const int64_t at = (y * t.width + x) * step;
        dst[at] = blend_tables(own + row.first * t.tiles_x * kLevels, own + row.second * t.tiles_x * kLevels, column, row.weight, src[at]);
      }
    }
  }
}

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
  std::vector<Image> images;
  std::vector<Colors> colors;
  int64_t max_pixels = 0, converted = 0, tables = 0;
  for (int64_t i = 0; i < in.size(); ++i)
    if (in.shape(i)[2] == 3 && luma_only) converted += in.volume(i);
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
    for (int64_t c = 0; c < channels; ++c, tables += tiling.tiles()) images.push_back({from + c, to + c, channels, tiling, tables});
  }
  if (images.empty()) return;
  const CudaTable<Image> image_table(images);
  const CudaTable<Colors> color_table(colors);
  const CudaTable<LabTables> lab_table(colors.empty() ? std::vector<LabTables>{} : std::vector<LabTables>{lab_tables()});
  const CudaBuffer buffer(tables * kLevels);
  uint8_t* table_bytes = static_cast<uint8_t*>(buffer.data());
  const cudaStream_t stream = current_cuda_stream();
  const dim3 color_grid = batch_grid(max_pixels, kThreads, static_cast<int64_t>(colors.size()));
  const auto count = static_cast<int64_t>(images.size()), colored = static_cast<int64_t>(colors.size());
  // Bound by instructions: a pixel takes four lookups, some 100 operations with its colors; about 10 % of the bandwidth are expected.
  if (colored) to_lab_gpu<<<color_grid, kThreads, 0, stream>>>(color_table.data(), colored, lab_table.data());
  tables_gpu<<<batch_grid(tiles_x * tiles_y, 1, count), kThreads, 0, stream>>>(image_table.data(), count, table_bytes);
  blend_gpu<<<batch_grid((max_pixels + kThreads - 1) / kThreads / kRows + 1, 1, count), kThreads, 0, stream>>>(image_table.data(), count,
                                                                                                               table_bytes);
  if (colored) from_lab_gpu<<<color_grid, kThreads, 0, stream>>>(color_table.data(), colored, lab_table.data());
  check_launch("clahe");
}

}  // namespace
}  // namespace ndd::clahe
NDD_KERNEL(clahe, CUDA, ndd::clahe::clahe_cuda)
