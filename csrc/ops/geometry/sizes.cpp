// SPDX-License-Identifier: Apache-2.0
// Sizes of images for vision-language models, from heights and widths alone. The rules are those by which transformers and timm resize; they compute in
// doubles, in this order of operations, because a result that is one ulp away may round to another multiple.
//
// They run in the call, on the host: a size takes 5 to 300 ns, and the operators that allocate the resized images need it immediately.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ndd/error.h"
#include "ndd/host_numbers.h"
#include "ndd/kernel.h"

namespace ndd {
namespace {

struct Size {
  int64_t height, width;
};

constexpr double kMaxSide = 2147483647.0;
constexpr int64_t kMaxTiles = 4096;  // of a canvas: all grids are tried for each image

int64_t to_side(double value, const char* op, int64_t sample) {
  if (!(value >= 0 && value <= kMaxSide)) fail(Error::Value, op, ": sample ", sample, ": a side of ", value, " pixels is too large");
  return static_cast<int64_t>(value);
}

// Half to even, as Python's round().
double round_even(double value) { return std::nearbyint(value); }

// Calls size(i, {height, width}, result) for every row of int64 (N, 2), where `result` is a row of int64 (N, columns).
template <class Function>
void for_each_size(const char* op, const Tensor& extents, const Tensor& out, int64_t columns, Function&& size) {
  const int64_t count = extents.size(0);
  const int64_t* row = host_numbers<const int64_t>(op, "the table of sides", extents, 2 * count);
  int64_t* result = host_numbers<int64_t>(op, "the table of results", out, columns * count);
  for (int64_t i = 0; i < count; ++i, row += 2, result += columns) {
    if (row[0] < 1 || row[1] < 1) fail(Error::Value, op, ": sample ", i, " has no pixels: ", row[0], " x ", row[1]);
    // Products of two sides fit in 64 bits.
    for (int d = 0; d < 2; ++d) to_side(static_cast<double>(row[d]), op, i);
    size(i, Size{row[0], row[1]}, result);
  }
}

void check_aspect(const char* op, int64_t sample, double height, double width, double max_aspect) {
  const double aspect = std::max(height, width) / std::min(height, width);
  if (aspect > max_aspect)
    fail(Error::Value, op, ": sample ", sample, ": ", static_cast<int64_t>(height), " x ", static_cast<int64_t>(width), " has an aspect ratio of ",
         aspect, ", more than ", max_aspect);
}

// Both sides become multiples, and the area (times the frames, for a video) lies between the bounds. `frames` is int64 (1) or (N), or None for images.
void size_budget(const Tensor& extents, const MaybeTensor& frames, int64_t multiple, int64_t min_pixels, int64_t max_pixels, int64_t temporal,
                 bool fill, double max_aspect, const Tensor& out) {
  const char* op = "sizes.budget";
  const auto factor = static_cast<double>(multiple);
  const auto least = static_cast<double>(min_pixels), most = static_cast<double>(max_pixels);
  const bool shared = frames && frames->size(0) == 1;
  const int64_t* counts = frames ? host_numbers<const int64_t>(op, "the table of frames", *frames, shared ? 1 : extents.size(0)) : nullptr;
  for_each_size(op, extents, out, 2, [&](int64_t i, Size size, int64_t* result) {
    auto h = static_cast<double>(size.height), w = static_cast<double>(size.width);
    // The result, in pixels; (height, width) of the image are h and w.
    double high, wide;
    if (fill) {
      // The largest multiples within the budget.
      const double scale = std::sqrt(most / (h * w));
      high = std::floor(scale * h / factor) * factor;
      wide = std::floor(scale * w / factor) * factor;
      // A side would be 0: it becomes one multiple, and the other one at most what the budget leaves.
      const double longest = std::floor(most / (factor * factor)) * factor;
      if (high == 0 && wide == 0) fail(Error::Value, op, ": max_pixels=", max_pixels, " is less than one square of multiple_of=", multiple);
      if (high == 0) {
        high = factor;
        wide = std::min(std::floor(w / h) * factor, longest);
      } else if (wide == 0) {
        wide = factor;
        high = std::min(std::floor(h / w) * factor, longest);
      }
    } else {
      double count = 1, rounded_count = 1;
      if (counts) {
        const int64_t f = counts[shared ? 0 : i];
        if (f < temporal) fail(Error::Value, op, ": sample ", i, " has ", f, " frames, fewer than temporal=", temporal);
        count = static_cast<double>(f);
        // Frames are merged in groups of `temporal`.
        rounded_count = round_even(count / static_cast<double>(temporal)) * static_cast<double>(temporal);
        if (h < factor || w < factor) {
          const double scale = std::max(factor / h, factor / w);
          h = std::trunc(h * scale);
          w = std::trunc(w * scale);
        }
      }
      check_aspect(op, i, h, w, max_aspect);
      high = round_even(h / factor) * factor;
      wide = round_even(w / factor) * factor;
      const double volume = rounded_count * high * wide;
      if (max_pixels >= 0 && volume > most) {
        // From the original extents, not the rounded ones: part of the rule.
        const double shrink = std::sqrt(count * h * w / most);
        high = std::max(factor, std::floor(h / shrink / factor) * factor);
        wide = std::max(factor, std::floor(w / shrink / factor) * factor);
      } else if (volume < least) {
        const double enlarge = std::sqrt(least / (count * h * w));
        high = std::ceil(h * enlarge / factor) * factor;
        wide = std::ceil(w * enlarge / factor) * factor;
      }
    }
    if (high < 1 || wide < 1)
      fail(Error::Value, op, ": sample ", i, ": ", size.height, " x ", size.width, " rounds to a side of 0 pixels; raise min_pixels");
    result[0] = to_side(high, op, i);
    result[1] = to_side(wide, op, i);
  });
}

// The size with the largest scale that needs at most `max_patches` patches. The steps of the bisection are part of the rule: models were trained on
// the sizes that they give, not on the optimum.
void size_patches(const Tensor& extents, int64_t patch_height, int64_t patch_width, int64_t max_patches, double max_ratio, const Tensor& out) {
  constexpr double kPrecision = 1e-5, kMaxScale = 100.0;
  const char* op = "sizes.patches";
  const auto ph = static_cast<double>(patch_height), pw = static_cast<double>(patch_width);
  for_each_size(op, extents, out, 2, [&](int64_t i, Size size, int64_t* result) {
    const auto h = static_cast<double>(size.height), w = static_cast<double>(size.width);
    const auto patches = [](double side, double scale, double patch) { return std::max(1.0, std::ceil(side * scale / patch)); };
    // Bisection for the scale.
    double low = kPrecision / 10, high = kMaxScale;
    while (high - low >= kPrecision) {
      const double middle = (low + high) / 2;
      if (patches(h, middle, ph) * patches(w, middle, pw) <= static_cast<double>(max_patches)) low = middle;
      else high = middle;
    }
    const double scale = max_ratio > 0 ? std::min(low, max_ratio) : low;
    if (low <= kPrecision)
      fail(Error::Value, op, ": sample ", i, ": ", size.height, " x ", size.width, " does not fit in max_patches=", max_patches, " patches");
    result[0] = to_side(patches(h, scale, ph) * ph, op, i);
    result[1] = to_side(patches(w, scale, pw) * pw, op, i);
  });
}

// Scales by the shorter side, the longer side, both, or into a box; -1 stands for an argument that is not used.
void size_fit(const Tensor& extents, int64_t shortest, int64_t longest, int64_t box_height, int64_t box_width, bool enlarge, bool half_up,
              int64_t multiple, const Tensor& out) {
  const char* op = "sizes.fit";
  const auto round = [&](double value) { return half_up ? std::floor(value + 0.5) : std::floor(value); };
  for_each_size(op, extents, out, 2, [&](int64_t i, Size size, int64_t* result) {
    const auto h = static_cast<double>(size.height), w = static_cast<double>(size.width);
    const double longer = std::max(h, w), shorter = std::min(h, w);
    double high = h, wide = w;
    if (box_height >= 0) {
      const double scale = std::min(static_cast<double>(box_height) / h, static_cast<double>(box_width) / w);
      if (enlarge || scale < 1) high = round(h * scale), wide = round(w * scale);
    } else if (shortest >= 0) {
      auto target = static_cast<double>(shortest);
      double exact = target;
      // The longer side would exceed its limit, which then decides.
      if (longest >= 0 && longer / shorter * target > static_cast<double>(longest)) {
        exact = static_cast<double>(longest) * shorter / longer;
        target = round_even(exact);
      }
      if (shorter != target && (enlarge || target < shorter)) {
        const double other = round(exact * longer / shorter);
        high = h <= w ? target : other;
        wide = h <= w ? other : target;
      }
    } else {
      const auto target = static_cast<double>(longest);
      if (half_up) {
        // Rounded from x * (L / long), as the models that round half up do; those that round down divide by long / L.
        const double scale = target / longer;
        if (enlarge || scale < 1) high = round(h * scale), wide = round(w * scale);
      } else {
        const double ratio = longer / target;
        if (enlarge || ratio > 1) high = round(h / ratio), wide = round(w / ratio);
      }
    }
    const auto factor = static_cast<double>(multiple);
    high = std::ceil(std::max(high, 1.0) / factor) * factor;
    wide = std::ceil(std::max(wide, 1.0) / factor) * factor;
    result[0] = to_side(high, op, i);
    result[1] = to_side(wide, op, i);
  });
}

// The canvas of tiles that suits an image. With `canvases`, int64 (K, 2) in pixels: the one that keeps most of the image's pixels. Without: the grid of
// min_tiles to max_tiles whose aspect ratio is nearest. Writes rows, columns, and the size of the picture on the canvas.
void size_canvas(const Tensor& extents, const MaybeTensor& canvases, int64_t tile_height, int64_t tile_width, int64_t min_tiles, int64_t max_tiles,
                 const Tensor& out) {
  const char* op = "sizes.canvas";
  for (const int64_t side : {tile_height, tile_width})
    if (side < 1 || static_cast<double>(side) > kMaxSide) fail(Error::Value, op, ": a tile must have pixels, got ", tile_height, " x ", tile_width);
  std::vector<Size> choices;
  if (canvases) {
    const int64_t count = canvases->size(0);
    const auto* canvas = host_numbers<const int64_t>(op, "the table of canvases", *canvases, 2 * count);
    for (int64_t k = 0; k < 2 * count; ++k)
      if (canvas[k] < 1 || static_cast<double>(canvas[k]) > kMaxSide)
        fail(Error::Value, op, ": a canvas must have pixels, got a side of ", canvas[k]);
    for (int64_t k = 0; k < count; ++k) choices.push_back({canvas[2 * k], canvas[2 * k + 1]});
  } else {
    if (max_tiles > kMaxTiles) fail(Error::Value, op, ": there must be at most ", kMaxTiles, " tiles, got ", max_tiles);
    for (int64_t columns = 1; columns <= max_tiles; ++columns)
      for (int64_t rows = 1; rows <= max_tiles / columns; ++rows)
        if (rows * columns >= min_tiles) choices.push_back({rows, columns});
    // By area; equal ones stay in the order of their columns, which decides ties below.
    std::stable_sort(choices.begin(), choices.end(), [](Size a, Size b) { return a.height * a.width < b.height * b.width; });
  }
  if (choices.empty()) fail(Error::Value, op, ": there must be a canvas, or a number of tiles between ", min_tiles, " and ", max_tiles);
  for_each_size(op, extents, out, 4, [&](int64_t i, Size size, int64_t* row) {
    const auto h = static_cast<double>(size.height), w = static_cast<double>(size.width);
    Size chosen = choices.front();
    if (canvases) {
      // Most pixels kept, then least of the canvas wasted.
      int64_t most = 0, waste = INT64_MAX;
      for (const Size canvas : choices) {
        const double scale = std::min(static_cast<double>(canvas.width) / w, static_cast<double>(canvas.height) / h);
        const int64_t scaled = static_cast<int64_t>(w * scale) * static_cast<int64_t>(h * scale);
        const int64_t kept = std::min(scaled, size.height * size.width), wasted = canvas.height * canvas.width - kept;
        if (kept > most || (kept == most && wasted < waste)) most = kept, waste = wasted, chosen = canvas;
      }
      const double scale_w = static_cast<double>(chosen.width) / w, scale_h = static_cast<double>(chosen.height) / h;
      row[0] = chosen.height / tile_height;
      row[1] = chosen.width / tile_width;
      row[2] = scale_w < scale_h ? std::min(to_side(std::ceil(h * scale_w), op, i), chosen.height) : chosen.height;
      row[3] = scale_w < scale_h ? chosen.width : std::min(to_side(std::ceil(w * scale_h), op, i), chosen.width);
    } else {
      double nearest = INFINITY;
      const double aspect = w / h, area = h * w;
      for (const Size grid : choices) {
        const double difference = std::abs(aspect - static_cast<double>(grid.width) / static_cast<double>(grid.height));
        // Of grids with the same aspect ratio a larger one wins unless it has more than twice the pixels of the image.
        const bool larger =
            area > 0.5 * static_cast<double>(tile_height) * static_cast<double>(tile_width) * static_cast<double>(grid.height * grid.width);
        if (difference < nearest || (difference == nearest && larger)) nearest = difference, chosen = grid;
      }
      row[0] = chosen.height;
      row[1] = chosen.width;
      row[2] = chosen.height * tile_height;
      row[3] = chosen.width * tile_width;
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(size_budget, CPU, ndd::size_budget)
NDD_KERNEL(size_patches, CPU, ndd::size_patches)
NDD_KERNEL(size_fit, CPU, ndd::size_fit)
NDD_KERNEL(size_canvas, CPU, ndd::size_canvas)
