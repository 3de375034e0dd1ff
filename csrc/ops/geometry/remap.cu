// SPDX-License-Identifier: Apache-2.0
// experimental.remap: from = (mapx[to], mapy[to]).
#include "ndd/elementwise/elements.cuh"
#include "ndd/elementwise/rows.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ndd/warp/driver.h"

namespace ndd::remap_kernels {
namespace {

// Looks points up in two images as large as the output. `shift` moves maps of pixel centers to pixel corners.
struct TableMap {
  const void *x, *y;  // of one frame
  DType x_type, y_type;
  int64_t width, height;
  float shift;
  bool relative;  // the maps hold distances from the pixel to its point

  NDD_HD Point<2> operator()(const Point<2>& to) const {
    const int64_t i = index(to);
    const Point<2> from{load_element(x, x_type, i), load_element(y, y_type, i)};
    return relative ? Point<2>{from.at[0] + to.at[0], from.at[1] + to.at[1]} : Point<2>{from.at[0] + shift, from.at[1] + shift};
  }

  bool fits_32_bits() const { return x_type == DType::float32 && y_type == DType::float32 && width * height < (int64_t{1} << 31); }
  // Then, of a pixel of the image or of the nearest one.
  NDD_HD Point<2> at_pixel(int32_t column, int32_t line) const {
    const int32_t right = static_cast<int32_t>(width) - 1, bottom = static_cast<int32_t>(height) - 1;
    column = column < 0 ? 0 : column < right ? column : right;
    line = line < bottom ? line : bottom;
    const int32_t i = line * (right + 1) + column;
    const float x_shift = relative ? static_cast<float>(column) + 0.5f : shift, y_shift = relative ? static_cast<float>(line) + 0.5f : shift;
    return {static_cast<const float*>(x)[i] + x_shift, static_cast<const float*>(y)[i] + y_shift};
  }

  // On the CPU: a row of the maps is a row of points.
  void row(const Point<2>& first, int64_t n, warp::Coordinates<2>& coords) const {
    const int64_t i = index(first);
    row_loader(x_type)(static_cast<const char*>(x) + i * item_bytes(x_type), n, coords.at[0]);
    row_loader(y_type)(static_cast<const char*>(y) + i * item_bytes(y_type), n, coords.at[1]);
    with_simd([&]() NDD_ALWAYS_INLINE {
      const float x_shift = relative ? first.at[0] : shift, y_shift = relative ? first.at[1] : shift, step = relative ? 1.0f : 0.0f;
      float* __restrict xs = coords.at[0], * __restrict ys = coords.at[1];
      const auto count = static_cast<int32_t>(n);
      for (int32_t j = 0; j < count; ++j) {
        xs[j] += x_shift + step * static_cast<float>(j);
        ys[j] += y_shift;
      }
    });
  }

 private:
  // Floats do not hold every pixel number beyond 2^24; never leave the map.
  NDD_HD int64_t index(const Point<2>& to) const {
    const int64_t column = static_cast<int64_t>(to.at[0]), line = static_cast<int64_t>(to.at[1]);
    return (line < height ? line : height - 1) * width + (column < width ? column : width - 1);
  }
};

class TableMaps {
 public:
  using Map = TableMap;

  TableMaps(const WarpImages& images, const Samples& x, const Samples& y, float shift, bool relative)
      : images_(images), x_(x), y_(y), shift_(shift), relative_(relative) {}

  void operator()(WarpItem<2, TableMap>& item, int64_t i, int64_t f) const {
    const int64_t pixels = item.size[0] * item.size[1];
    const auto part = [&](const Samples& map, const char* name) {
      const int64_t frames = pixels > 0 ? map.volume(i) / pixels : 1;
      // The maps are as large as the output: what is left over of their volume are frames.
      images_.check_frames(i, frames, name, true);
      // A shared map is stored once, and all samples point at it.
      const int64_t own = shared(map) ? 0 : i;
      return static_cast<const char*>(map.data(own)) + (frames > 1 ? f : 0) * pixels * map.item_bytes();
    };
    item.map = {part(x_, "mapx"), part(y_, "mapy"), x_.dtype(), y_.dtype(), item.size[0], item.size[1], shift_, relative_};
  }

 private:
  // One map for all samples: torch_ndd._operator.
  static bool shared(const Samples& map) { return map.dense() && map.values().stride(0) == 0; }

  WarpImages images_;
  Samples x_, y_;
  float shift_;
  bool relative_;
};

void remap(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& mapx, const MaybeTensor& mapx_shapes, const Tensor& mapy,
           const MaybeTensor& mapy_shapes, const Tensor& fill_value, int64_t interp, bool centered, bool relative, bool fades, int64_t first_spatial,
           bool frames, const Tensor& output, const MaybeTensor& output_shapes) {
  const WarpImages images("experimental.remap", {input, input_shapes}, {output, output_shapes}, Border::constant, fill_value, first_spatial, 2,
                          frames, fades);
  const TableMaps maps(images, Samples::possibly_repeated(mapx, mapx_shapes), Samples::possibly_repeated(mapy, mapy_shapes), centered ? 0.5f : 0.0f,
                       relative);
  warp_images<2, true>(images, static_cast<Interp>(interp), maps);
}

}  // namespace
}  // namespace ndd::remap_kernels
NDD_KERNELS(experimental_remap, ndd::remap_kernels::remap)
