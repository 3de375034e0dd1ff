// SPDX-License-Identifier: Apache-2.0
// Correlation with windows that are data, on the CPU: a sample, its weights and its fill value are read when its turn comes, then the driver of
// stencils does the rest (ndd/stencil/cpu.h).
#include "ops/filters/filter.h"

#include "ndd/elementwise/rows.h"
#include "ndd/kernel.h"
#include "ndd/stencil/cpu.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

// A VGA image of uint8 takes 0.15 ms and 15 us per weight.
constexpr double kNanoseconds = 0.15, kNanosecondsPerWeight = 0.015;

void filter_cpu(const Tensor& data, const MaybeTensor& data_shapes, const Tensor& filter, const MaybeTensor& filter_shapes,
                const MaybeTensor& fill_value, const MaybeTensor& fill_shapes, const Tensor& anchor, int64_t border, bool valid,
                int64_t first_spatial, int64_t spatial, const Tensor& output, const MaybeTensor& output_shapes) {
  const filter::Arguments arguments(data, data_shapes, filter, filter_shapes, fill_value, fill_shapes, anchor, valid, {first_spatial, spatial},
                                    output, output_shapes);
  const double cost = arguments.out.mean_volume() * (kNanoseconds + kNanosecondsPerWeight * arguments.weights.mean_volume());
  launch_cpu("filter", arguments.in.size(), cost, {}, [=](int64_t i) {
    const Samples &in = arguments.in, &out = arguments.out, &weights = arguments.weights;
    const Grid in_grid = arguments.axes.grid(in, i), out_grid = arguments.out_axes.grid(out, i);
    for (int64_t image = 0; image < arguments.images(i); ++image) {
      const int64_t frame = arguments.frame(i, image);
      // Filters may differ by sample and frame; their weights are read here, on the CPU stream, because they may have been pending.
      TapWindow window{arguments.reach(i, frame), {}};
      window.weight.resize(int64_t{window.reach[0].size} * window.reach[1].size * window.reach[2].size);
      row_loader(weights.dtype())(static_cast<const char*>(weights.data(i)) + arguments.weights_at(i, frame) * weights.item_bytes(),
                                  static_cast<int64_t>(window.weight.size()), window.weight.data());
      float fill = 0.0f;
      if (arguments.fill)
        row_loader(arguments.fill->dtype())(
            static_cast<const char*>(arguments.fill->data(i)) + arguments.fill_at(frame) * arguments.fill->item_bytes(), 1, &fill);
      correlate(in_grid, out_grid, window, static_cast<Border>(border), fill, arguments.source(i, image, in_grid), in.dtype(),
                static_cast<char*>(out.data(i)) + image * out_grid.volume() * out.item_bytes(), out.dtype());
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(filter, CPU, ndd::filter_cpu)
