// SPDX-License-Identifier: Apache-2.0
// Passes the images of a batch to the warp of their device; the frames and planes of a sample are images of their own. Operators include this header
// and call warp_images.
//
// An operator supplies `Maps`, a functor that is cheap to copy, with
//   using Map = ...;                                                      the map functor, see warp.h
//   void operator()(WarpItem<D, Map>& item, int64_t sample, int64_t frame) const;    sets item.map; item's sizes and source are already set
// and, if the maps come from device memory,
//   void on_device(WarpItem<D, Map>* items, const std::vector<int64_t>& samples, const std::vector<int64_t>& frames) const;
//
// A map may return any point, also infinite or NaN: the samplers read only inside the source.
//
// Use it where the source of a pixel is any point. Axes that are only scaled are resampled (resample/), which has antialias; mirrored and
// exchanged axes are slices (slice/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ndd/args.h"
#include "ndd/error.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"
#include "ndd/warp/cpu.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#include "ndd/warp/warp.cuh"
#endif

namespace ndd {

// Samples as [frames][planes][spatial...][channels], where the first two and the last may be missing. An output with one dimension more than its
// input has one frame per map of that image; `first_spatial` refers to the input, `frames` to the output.
class WarpImages {
 public:
  WarpImages(const char* op, const Samples& in, const Samples& out, Border border, const MaybeTensor& fill, int64_t first_spatial, int64_t spatial,
             bool frames, bool fades = false)
      : op_(op), in_(in), out_(out), border_(border), first_(first_spatial), spatial_(spatial), lead_(out.ndim() - in.ndim()), frames_(frames),
        fades_(fades) {
    if (first_ < 0 || first_ + spatial_ > in.ndim() || (lead_ != 0 && lead_ != 1))
      fail(Error::Value, op, ": the images do not have the axes that are warped, or the output has others");
    if (fill) fill_ = std::make_shared<Args<float>>(*fill);
  }

  const char* op() const { return op_; }
  const Samples& in() const { return in_; }
  const Samples& out() const { return out_; }
  int64_t frames(int64_t i) const { return frames_ ? out_.shape(i)[0] : 1; }
  int64_t planes(int64_t i) const { return product(in_.shape(i), frames_ && lead_ == 0, first_); }
  template <class... Why>
  [[noreturn]] void refuse(int64_t i, const Why&... why) const {
    fail(op_, ": ", why..., ", sample ", i);
  }

  // The fill values of the channels of sample i; empty if a single value serves all.
  std::vector<float> fills(int64_t i) const {
    std::vector<float> values;
    if (!fill_ || fill_->cols() == 1) return values;
    const int64_t channels = planes(i) * product(in_.shape(i), first_ + spatial_, in_.ndim());
    if (fill_->cols() != channels) refuse(i, "fill_value has ", fill_->cols(), " numbers, the image has ", channels, " channels");
    for (int64_t c = 0; c < channels; ++c) values.push_back((*fill_)(i, c));
    return values;
  }

  // Image k of sample i, except for its map. `fills` holds the fill values of the sample's channels, or is null.
  template <int D, class Map>
  WarpItem<D, Map> item(int64_t i, int64_t k, Interp interp, const float* fills) const {
    const int64_t *from = in_.shape(i) + first_, *to = out_.shape(i) + lead_ + first_;
    WarpItem<D, Map> item;
    item.interp = interp;
    item.src.border = border_;
    item.src.fades = fades_;
    item.src.fill = fills == nullptr && fill_ ? (*fill_)(i) : 0.0f;
    item.src.channels = product(in_.shape(i), first_ + D, in_.ndim());
    item.src.fills = nullptr;
    if (fills != nullptr) item.src.fills = fills + (item.src.channels == 1 ? k % planes(i) : 0);
    int64_t in_volume = item.src.channels, out_volume = item.src.channels;
    for (int d = 0; d < D; ++d) {
      item.src.size[d] = from[D - 1 - d];
      item.size[d] = to[D - 1 - d];
      item.src.stride[d] = in_volume;
      in_volume *= item.src.size[d];
      out_volume *= item.size[d];
    }
    if (in_volume == 0 && out_volume > 0) refuse(i, "the input has no pixels");
    // On the CPU an item stands for all planes of its frame.
    const int64_t of_frame = planes(i), images = of_frame > 0 ? (k / of_frame + 1) * of_frame : 0;
    if (images * out_volume > out_.volume(i) || (lead_ > 0 ? of_frame : images) * in_volume > in_.volume(i))
      refuse(i, "the output must have the frames and channels of the input");
    item.src.data = static_cast<const char*>(in_.data(i)) + (lead_ > 0 ? k % planes(i) : k) * in_volume * in_.item_bytes();
    item.out = static_cast<char*>(out_.data(i)) + k * out_volume * out_.item_bytes();
    return item;
  }

  // The planes of the image that an item describes.
  template <int D, class Map>
  WarpPlanes steps(const WarpItem<D, Map>& item, int64_t planes) const {
    const int64_t pixels = item.size[D - 1] * (D == 3 ? item.size[1] : 1) * item.size[0];
    return {planes, item.src.stride[D - 1] * item.src.size[D - 1] * in_.item_bytes(), pixels * item.src.channels * out_.item_bytes()};
  }

  // Checks an argument that has `values` values for the frames of sample i. Unless `exact`, it may have more, which are ignored: rows of a ragged batch.
  void check_frames(int64_t i, int64_t values, const char* argument, bool exact = false) const {
    if (values != 1 && (exact ? values != frames(i) : values < frames(i)))
      refuse(i, argument, " is for ", values, " frames, but there are ", frames(i));
  }

 private:
  static int64_t product(const int64_t* shape, int64_t begin, int64_t end) {
    int64_t n = 1;
    for (int64_t d = begin; d < end; ++d) n *= shape[d];
    return n;
  }

  const char* op_;
  Samples in_, out_;
  Border border_;
  std::shared_ptr<const Args<float>> fill_;
  // Dimension of the first spatial axis, number of spatial axes, dimensions that only the output has (0 or 1).
  int64_t first_, spatial_, lead_;
  bool frames_, fades_;
};

// 1.5 ns per pixel for linear uint8 with three channels.
constexpr double kWarpNanoseconds = 0.5;

#ifdef __CUDACC__
// Some maps follow from values on the device: a kernel completes the items there.
template <class Maps>
auto has_device_maps(const Maps& maps, int) -> decltype(maps.on_device()) {
  return maps.on_device();
}
template <class Maps>
bool has_device_maps(const Maps&, long) {
  return false;
}
template <class Maps, class Items>
auto set_device_maps(const Maps& maps, Items* items, const std::vector<int64_t>& samples, const std::vector<int64_t>& frames, int)
    -> decltype(maps.on_device(items, samples, frames)) {
  maps.on_device(items, samples, frames);
}
template <class Maps, class Items>
void set_device_maps(const Maps&, Items*, const std::vector<int64_t>&, const std::vector<int64_t>&, long) {}
#endif

// `wide`: the operator offers filters of more than two taps.
template <int D, bool wide, class Maps>
static void warp_images(const WarpImages& images, Interp interp, const Maps& maps) {
  using Map = typename Maps::Map;
  const Samples &in = images.in(), &out = images.out();
#ifdef __CUDACC__
  if (in.values().is_cuda()) {
    std::vector<WarpItem<D, Map>> items;
    std::vector<int64_t> samples, frames;
    std::vector<float> all_fills;
    for (int64_t i = 0; i < in.size(); ++i) {
      const std::vector<float> fills = images.fills(i);
      all_fills.insert(all_fills.end(), fills.begin(), fills.end());
    }
    const CudaTable<float> fill_table(all_fills);
    int64_t tiles = 0;
    const float* fills = all_fills.empty() ? nullptr : fill_table.data();
    for (int64_t i = 0; i < in.size(); ++i) {
      const int64_t planes = images.planes(i), count = images.frames(i) * planes;
      for (int64_t k = 0; k < count; ++k) {
        // On a GPU every plane is an item of its own.
        items.push_back(images.item<D, Map>(i, k, interp, fills));
        maps(items.back(), i, k / planes);
        tiles = std::max(tiles, warp::tile_count(items.back()));
        samples.push_back(i);
        frames.push_back(k / planes);
      }
      if (fills != nullptr) fills += images.fills(i).size();
    }
    if (tiles == 0) return;
    const KernelTable<WarpItem<D, Map>> table(items, has_device_maps(maps, 0));
    set_device_maps(maps, table.memory(), samples, frames, 0);
    launch_warp<D, wide>(table.rows(), items.data(), static_cast<int64_t>(items.size()), tiles, in.dtype(), out.dtype(), current_cuda_stream());
    return check_launch(images.op());
  }
#endif
  const double cost = kWarpNanoseconds * out.mean_volume() * (wide && interp > Interp::linear ? 8 : 1);
  launch_cpu(images.op(), in.size(), cost, {in.values()}, [=](int64_t i) {
    const std::vector<float> fills = images.fills(i);
    // On the CPU the planes of an image share the points of its map, so an item stands for all of them.
    const int64_t planes = images.planes(i), frames = planes > 0 ? images.frames(i) : 0;
    for (int64_t f = 0; f < frames; ++f) {
      WarpItem<D, Map> item = images.item<D, Map>(i, f * planes, interp, fills.empty() ? nullptr : fills.data());
      maps(item, i, f);
      warp_cpu(item, in.dtype(), out.dtype(), images.steps(item, planes));
    }
  });
}

}  // namespace ndd
