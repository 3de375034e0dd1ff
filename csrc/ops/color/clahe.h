// SPDX-License-Identifier: Apache-2.0
// Contrast-limited adaptive histogram equalization: a table for each tile of the image, and for every pixel a blend of the tables of the four tiles
// whose centers are nearest. What CPU and CUDA share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ndd/elementwise/lut.h"
#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/samples.h"

namespace ndd::clahe {

inline void check_arguments(const Samples& in, const Samples& out, int64_t tiles_y, int64_t tiles_x) {
  if (in.dtype() != DType::uint8 || in.ndim() != 3) fail(Error::Value, "clahe: images must be uint8, with height, width and channels");
  check_same("clahe", out, in);
  // The tables of all tiles are in memory at the same time, 256 bytes each.
  constexpr int64_t kMaxTiles = 1 << 20;
  if (tiles_y < 1 || tiles_x < 1 || tiles_y > kMaxTiles || tiles_x > kMaxTiles || tiles_y * tiles_x > kMaxTiles)
    fail(Error::Value, "clahe: there must be 1 to ", kMaxTiles, " tiles, got ", tiles_y, " times ", tiles_x);
}

// The tiles of an image of one channel. If its size is not a multiple of the tiling in one direction, it is extended by reflection in both, as in OpenCV.
struct Tiling {
  int64_t height, width, tiles_y, tiles_x, tile_height, tile_width;
  uint32_t limit;  // largest count of a level in a tile, or 0

  Tiling(int64_t height, int64_t width, int64_t tiles_y, int64_t tiles_x, double clip_limit)
      : height(height), width(width), tiles_y(tiles_y), tiles_x(tiles_x) {
    const bool even = height % tiles_y == 0 && width % tiles_x == 0;
    tile_height = (even ? height : height + tiles_y - height % tiles_y) / tiles_y;
    tile_width = (even ? width : width + tiles_x - width % tiles_x) / tiles_x;
    const double most = clip_limit * static_cast<double>(area()) / kLevels;
    limit = clip_limit > 0 ? static_cast<uint32_t>(std::clamp(most, 1.0, 4294967295.0)) : 0;
  }

  NDD_HD int64_t area() const { return tile_height * tile_width; }
  int64_t tiles() const { return tiles_y * tiles_x; }
};

// Reflects an index about the last pixel, which is not repeated.
NDD_HD int64_t reflect_index(int64_t i, int64_t n) {
  if (i < n) return i;
  if (n == 1) return 0;
  const int64_t k = i % (2 * (n - 1));
  return k < n ? k : 2 * (n - 1) - k;
}

// Makes the table of a tile from its histogram. Counts above the limit are redistributed evenly over all levels; the remainder, fewer than 256, goes to
// every step-th level. The redistribution may exceed the limit again, which OpenCV and DALI accept.
NDD_HD void make_clipped_table(uint32_t* counts, uint32_t limit, int64_t area, uint8_t* table) {
  if (limit > 0) {
    uint32_t above = 0;
    for (int v = 0; v < kLevels; ++v) {
      if (counts[v] > limit) {
        above += counts[v] - limit;
        counts[v] = limit;
      }
    }
    const uint32_t share = above / kLevels, rest = above % kLevels, step = rest ? kLevels / rest : kLevels;
    for (int v = 0; v < kLevels; ++v) counts[v] += share;
    for (uint32_t k = 0; k < rest; ++k) ++counts[k * step];
  }
  const float scale = 255.0f / static_cast<float>(area);
  uint32_t below = 0;
  for (int v = 0; v < kLevels; ++v) {
    below += counts[v];
    table[v] = static_cast<uint8_t>(rintf(fminf(static_cast<float>(below) * scale, 255.0f)));
  }
}

// The two tiles whose centers enclose a row or column, and the weight of the second one. Beyond the outermost centers both are the same tile.
struct Neighbors {
  int32_t first, second;
  float weight;
};

NDD_HD Neighbors neighbors(int64_t i, int64_t tile, int64_t tiles) {
  const float at = static_cast<float>(i) * (1.0f / static_cast<float>(tile)) - 0.5f, below = floorf(at);
  const int64_t k = static_cast<int64_t>(below);
  return {static_cast<int32_t>(k < 0 ? 0 : k), static_cast<int32_t>(k + 1 < tiles ? k + 1 : tiles - 1), at - below};
}

NDD_HD uint8_t blend_tables(const uint8_t* upper, const uint8_t* lower, const Neighbors& column, float row_weight, uint8_t level) {
  const int64_t a = int64_t{column.first} * kLevels + level, b = int64_t{column.second} * kLevels + level;
  const float x = column.weight, x1 = 1.0f - x;
  const float value = (upper[a] * x1 + upper[b] * x) * (1.0f - row_weight) + (lower[a] * x1 + lower[b] * x) * row_weight;
  return static_cast<uint8_t>(rintf(value));
}

}  // namespace ndd::clahe
