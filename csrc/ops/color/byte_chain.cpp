// SPDX-License-Identifier: Apache-2.0
// Several operators on uint8 images of three channels in one pass, for compiled graphs: tables and colour matrices, then flip or crop_mirror_normalize.
// Every block of rows goes through all of it in the first-level cache, by the code that the operators have themselves.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/lut.h"
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"
#include "ops/color/twist.h"

namespace ndd {
namespace {

constexpr int64_t kBlock = 16384;  // bytes: two buffers of it
constexpr int64_t kMargin = 128;  // what vector instructions read and write past the end
constexpr int64_t kLinear = 2;  // factor, term
constexpr int64_t kTwist = 5;  // brightness, contrast, hue, saturation, middle
constexpr double kNanosecondsPerElement = 0.3;

// A table (rows, 256) of uint8, or a factor and a term (rows, 2), which make a table, or the numbers (rows, 5) of a colour matrix; one row for all samples
// or one for each.
struct Stage {
  bool is_table, is_linear;
  Args<float> numbers;
  const uint8_t* tables;
  int64_t rows;

  explicit Stage(const Tensor& tensor)
      : is_table(tensor.dtype() == DType::uint8), numbers(tensor), tables(is_table ? static_cast<const uint8_t*>(tensor.data_ptr()) : nullptr),
        rows(numbers.rows()) {
    is_linear = !is_table && numbers.cols() == kLinear;
    if (!is_linear && numbers.cols() != (is_table ? kLevels : kTwist)) fail("byte_chain: a stage of another size");
  }
};

struct Linear {
  float factor, term;
  NDD_HD float operator()(float v) const { return factor * v + term; }
};

struct Step {
  bool is_table;
  uint8_t table[kLevels];
  ColorMatrix matrix;
};

// Those of a sample. A table of a table is one.
std::vector<Step> steps_of(const std::vector<Stage>& stages, int64_t i) {
  std::vector<Step> steps;
  for (const Stage& stage : stages) {
    const auto& n = stage.numbers;
    if (!stage.is_table && !stage.is_linear) {
      steps.push_back({false, {}, color::twist(n(i, 0), n(i, 1), n(i, 3), n(i, 2), n(i, 4))});
      continue;
    }
    const uint8_t* table = stage.tables + (stage.rows == 1 ? 0 : i) * kLevels;
    uint8_t levels[kLevels], made[kLevels];
    if (stage.is_linear) {
      for (int v = 0; v < kLevels; ++v) levels[v] = static_cast<uint8_t>(v);
      pointwise_detail::direct<uint8_t, uint8_t>(levels, made, kLevels, Linear{n(i, 0), n(i, 1)});
      table = made;
    }
    if (!steps.empty() && steps.back().is_table) {
      for (uint8_t& level : steps.back().table) level = table[level];
    } else {
      steps.push_back({true, {}, {}});
      std::memcpy(steps.back().table, table, kLevels);
    }
  }
  return steps;
}

// `in` is dense, (N, H, W, C), of uint8 where there are stages, and `out` the same in the order of output_layout. Both flips are those of all samples, or of a sample where there is a
// tensor, exclusively.
void byte_chain(const Tensor& input, const std::vector<Tensor>& stages, bool horizontal, const MaybeTensor& mirror, bool vertical,
                const MaybeTensor& upside_down, const MaybeTensor& mean, const MaybeTensor& std, double scale, double shift,
                const std::string& output_layout, const Tensor& output) {
  const Samples in(input, std::nullopt), out(output, std::nullopt);
  std::vector<Stage> made(stages.begin(), stages.end());
  if (!made.empty() && in.dtype() != DType::uint8) fail("byte_chain: stages are for uint8");
  const Args<float> means(mean ? *mean : input), deviations(std ? *std : input);
  const Args<int64_t> mirrors(mirror ? *mirror : input), ups(upside_down ? *upside_down : input);
  const bool has_mirror = mirror.has_value(), has_up = upside_down.has_value(), normalizes = mean && std;
  const float factor = static_cast<float>(scale), offset = static_cast<float>(shift);
  const int64_t *shape = in.shape(0), height = shape[0], pixels = shape[1], width = shape[2], row = pixels * width;
  if (in.size() == 0 || in.volume(0) == 0) return;
  launch_cpu("byte_chain", in.size(), kNanosecondsPerElement * static_cast<double>(in.volume(0)), {}, [=](int64_t i) {
    static thread_local std::vector<uint8_t> buffers;
    const std::vector<Step> steps = steps_of(made, i);
    const int64_t count = steps.empty() ? height : std::clamp<int64_t>(kBlock / row, 1, height), room = count * row + kMargin;
    if (!steps.empty() && static_cast<int64_t>(buffers.size()) < 2 * room) buffers.resize(2 * room);
    const bool flipped = horizontal != (has_mirror && mirrors(i) != 0), turned = vertical != (has_up && ups(i) != 0);

    const int ndim = 3, channel = static_cast<int>(output_layout.find('C'));
    int order[ndim];
    for (int d = 0; d < ndim; ++d) order[d] = static_cast<int>(std::string("HWC").find(output_layout[d]));
    std::vector<Channel> channels;
    bool copies = in.dtype() == out.dtype();
    for (int64_t c = 0; c < width; ++c) {
      const auto of = [&](const Args<float>& values) { return values(i, values.cols() == 1 ? 0 : c); };
      channels.push_back(normalizes ? Channel{of(means), factor / of(deviations), offset, 0.0f} : Channel{});
      copies = copies && channels.back().identity();
    }
    const bool ends = copies && !flipped && !turned && channel == 2 && order[0] == 0 && !steps.empty();  // nothing is left to do after the steps
    for (int64_t begin = 0; begin < height; begin += count) {
      const int64_t rows = std::min(count, height - begin), n = rows * row;
      const uint8_t* src = static_cast<const uint8_t*>(in.data(i)) + begin * row * in.item_bytes();
      uint8_t* dst = buffers.data();
      for (const Step& step : steps) {
        if (ends && &step == &steps.back()) dst = static_cast<uint8_t*>(out.data(i)) + begin * row;
        if (step.is_table) map_levels(src, n, 1, step.table, dst);
        else color_matrix_detail::run_cpu({src, dst, n, step.matrix}, {3, 3}, DType::uint8, DType::uint8);
        src = dst;
        dst = dst == buffers.data() ? buffers.data() + room : buffers.data();
      }
      if (ends) continue;
      int64_t part[ndim] = {rows, pixels, width}, to[ndim], step = 1;
      for (int d = 0; d < ndim; ++d) to[d] = part[order[d]];
      Slice slice =
          window_slice(src, part, nullptr, to, order, ndim, [](int) { return 0; }, [&](int a) { return a == 0 ? turned : a == 1 && flipped; });
      slice.placed = true;
      for (int d = ndim - 1; d >= 0; --d) {
        slice.out_stride[d] = step;
        if (order[d] == 0) slice.out = static_cast<char*>(out.data(i)) + (turned ? height - begin - rows : begin) * step * out.item_bytes();
        step *= shape[order[d]];
      }
      slice.channel = channel;
      slice.copies = copies;
      run_slice_cpu(slice, channels.data(), in.dtype(), out.dtype());
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(byte_chain, CPU, ndd::byte_chain)
