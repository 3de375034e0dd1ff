// SPDX-License-Identifier: Apache-2.0
// A chain of operators on uint8 or float32 images in one pass, for compiled graphs: tables, linear functions and color matrices, then flip or
// crop_mirror_normalize. Each block of rows passes through all stages in the first-level cache. The stages call the functions of the operators, so the results
// are the same.
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
constexpr int64_t kLongBlock = 65536;  // before pixels are normalized where they are: the driver spreads its numbers over a row each time, 2 us
constexpr int64_t kMargin = 128;  // elements that vector instructions read and write past the end
constexpr int64_t kLinear = 2;  // factor, term
constexpr int64_t kTwist = 5;  // brightness, contrast, hue, saturation, middle
constexpr double kNanosecondsPerElement = 0.3;

// A table (rows, 256) of uint8, or a factor and a term (rows, 2), which make a table of bytes, or the numbers (rows, 5) of a color matrix; one row for
// all samples or one for each. Only a color matrix may have another type of result.
struct Stage {
  bool is_table, is_linear;
  Args<float> numbers;
  const uint8_t* tables;
  int64_t rows;
  DType out;

  Stage(const Tensor& tensor, DType in, DType out)
      : is_table(tensor.dtype() == DType::uint8), numbers(tensor), tables(is_table ? static_cast<const uint8_t*>(tensor.data_ptr()) : nullptr),
        rows(numbers.rows()), out(out) {
    is_linear = !is_table && numbers.cols() == kLinear;
    if (!is_linear && numbers.cols() != (is_table ? kLevels : kTwist))
      fail("pixel_chain: a stage must have 2, 5 or 256 columns, got ", numbers.cols());
    if ((is_table && in != DType::uint8) || ((is_table || is_linear) && in != out))
      fail("pixel_chain: a table needs uint8 input, and only a color matrix may change the type");
  }
};

struct Linear {
  float factor, term;
  NDD_HD float operator()(float v) const { return factor * v + term; }
};

struct Step {
  enum Kind { kTable, kFunction, kMatrix } kind;
  DType in, out;
  uint8_t table[kLevels];
  Linear function;
  ColorMatrix matrix;

  void run(const void* src, int64_t count, void* dst) const {
    if (kind == kTable) map_levels(static_cast<const uint8_t*>(src), count, 1, table, static_cast<uint8_t*>(dst));
    else if (kind == kFunction) pointwise_detail::direct<float, float>(src, dst, count, function);
    else color_matrix_detail::run_cpu({src, dst, count, matrix}, {3, 3}, in, out);
  }
};

// The steps of sample i. Consecutive tables are composed into one.
std::vector<Step> steps_of(const std::vector<Stage>& stages, DType in, int64_t i) {
  std::vector<Step> steps;
  for (const Stage& stage : stages) {
    const auto& n = stage.numbers;
    const DType out = stage.out;
    if (!stage.is_table && !stage.is_linear) {
      steps.push_back({Step::kMatrix, in, out, {}, {}, color::twist(n(i, 0), n(i, 1), n(i, 3), n(i, 2), n(i, 4))});
    } else if (in == DType::float32) {
      steps.push_back({Step::kFunction, in, out, {}, {n(i, 0), n(i, 1)}, {}});
    } else {
      const uint8_t* table = stage.tables + (stage.rows == 1 ? 0 : i) * kLevels;
      uint8_t levels[kLevels], mapped[kLevels];
      if (stage.is_linear) {
        // What the function makes of each level is its table.
        for (int v = 0; v < kLevels; ++v) levels[v] = static_cast<uint8_t>(v);
        pointwise_detail::direct<uint8_t, uint8_t>(levels, mapped, kLevels, Linear{n(i, 0), n(i, 1)});
        table = mapped;
      }
      if (!steps.empty() && steps.back().kind == Step::kTable) {
        for (uint8_t& level : steps.back().table) level = table[level];
      } else {
        steps.push_back({Step::kTable, in, out, {}, {}, {}});
        std::memcpy(steps.back().table, table, kLevels);
      }
    }
    in = out;
  }
  return steps;
}

// `in` is (N, H, W, C), or has the shapes of its samples; of uint8 or float32 where there are stages. `out` is the same in the order of output_layout,
// and of a ragged batch only the volumes of its samples are read. `floats` holds for each stage whether its result is float32. Both flips are those of
// all samples, or of a sample where there is a tensor, exclusively.
void pixel_chain(const Tensor& input, const MaybeTensor& shapes, const std::vector<Tensor>& stages, const std::vector<int64_t>& floats,
                 bool horizontal, const MaybeTensor& mirror, bool vertical, const MaybeTensor& upside_down, const MaybeTensor& mean,
                 const MaybeTensor& std, double scale, double shift, const std::string& output_layout, const Tensor& output) {
  const Samples in(input, shapes), out(output, shapes);
  std::string axes = output_layout;
  std::sort(axes.begin(), axes.end());
  if (in.ndim() != 3 || axes != "CHW") fail(Error::Value, "pixel_chain: images have height, width and channels, and so has the output in some order");
  check_outputs("pixel_chain", out, in);
  std::vector<Stage> parsed_stages;
  DType last = in.dtype();  // of what the stages have made
  if (!stages.empty() && last != DType::uint8 && last != DType::float32) fail("pixel_chain: images must be uint8 or float32");
  if (stages.size() != floats.size()) fail("pixel_chain: stages and floats must have the same length");
  for (size_t k = 0; k < stages.size(); ++k) {
    const DType type = floats[k] != 0 ? DType::float32 : DType::uint8;
    parsed_stages.emplace_back(stages[k], last, type);
    last = type;
    check_rows("pixel_chain", "a stage", parsed_stages.back().numbers, in.size());
  }
  const bool has_floats = in.dtype() == DType::float32 || std::any_of(floats.begin(), floats.end(), [](int64_t is_float) { return is_float != 0; });
  const int64_t wide = has_floats ? sizeof(float) : 1;  // bytes of an element in the buffers
  // Absent arguments view the input, which is never read through them: Args has no empty state.
  const Args<float> means(mean ? *mean : input), deviations(std ? *std : input);
  const Args<int64_t> mirrors(mirror ? *mirror : input), ups(upside_down ? *upside_down : input);
  const bool has_mirror = mirror.has_value(), has_up = upside_down.has_value(), normalizes = mean && std;
  const float factor = static_cast<float>(scale), offset = static_cast<float>(shift);
  if (in.size() == 0) return;
  launch_cpu("pixel_chain", in.size(), kNanosecondsPerElement * static_cast<double>(in.volume(0)), {}, [=](int64_t i) {
    static thread_local std::vector<uint8_t> buffers;
    const int64_t *shape = in.shape(i), height = shape[0], pixels = shape[1], width = shape[2], row = pixels * width;
    if (height * row == 0) return;
    const std::vector<Step> steps = steps_of(parsed_stages, in.dtype(), i);
    for (const Step& step : steps)
      if (step.kind == Step::kMatrix && width != 3) fail("pixel_chain: a color matrix: the image must have 3 channels, sample ", i, " has ", width);
    // A flip of the whole batch and one of the sample cancel each other, but the caller passes only one of them.
    const bool flipped = horizontal != (has_mirror && mirrors(i) != 0), turned = vertical != (has_up && ups(i) != 0);

    const int ndim = 3, channel = static_cast<int>(output_layout.find('C'));
    int order[ndim];
    for (int d = 0; d < ndim; ++d) order[d] = static_cast<int>(std::string("HWC").find(output_layout[d]));
    std::vector<Channel> channels;
    bool copies = last == out.dtype();
    for (int64_t c = 0; c < width; ++c) {
      const auto of = [&](const Args<float>& values) { return values(i, values.cols() == 1 ? 0 : c); };
      channels.push_back(normalizes ? Channel{of(means), factor / of(deviations), offset, 0.0f} : Channel{});
      copies = copies && channels.back().identity();
    }
    const bool ends = copies && !flipped && !turned && channel == 2 && order[0] == 0 && !steps.empty();  // nothing is left to do after the steps
    const int64_t block = channel == 2 && !copies ? kLongBlock : kBlock;
    const bool whole = steps.empty() || (ends && steps.size() == 1);  // nothing is read again
    const int64_t count = whole ? height : std::clamp<int64_t>(block / (row * wide), 1, height), room = (count * row + kMargin) * wide;
    if (!whole && static_cast<int64_t>(buffers.size()) < 2 * room) buffers.resize(2 * room);
    for (int64_t begin = 0; begin < height; begin += count) {
      const int64_t rows = std::min(count, height - begin), n = rows * row;
      const uint8_t* src = static_cast<const uint8_t*>(in.data(i)) + begin * row * in.item_bytes();
      uint8_t* dst = buffers.data();
      for (const Step& step : steps) {
        // The last step writes to the output if nothing is left to do.
        if (ends && &step == &steps.back()) dst = static_cast<uint8_t*>(out.data(i)) + begin * row * out.item_bytes();
        step.run(src, n, dst);
        src = dst;
        dst = dst == buffers.data() ? buffers.data() + room : buffers.data();
      }
      if (ends) continue;
      int64_t part[ndim] = {rows, pixels, width}, to[ndim], step = 1;
      for (int d = 0; d < ndim; ++d) to[d] = part[order[d]];
      // What is left is a slice of the block: mirrored, reordered and normalized on the way to the output.
      Slice slice =
          window_slice(src, part, nullptr, to, order, ndim, [](int) { return 0; }, [&](int a) { return a == 0 ? turned : a == 1 && flipped; });
      slice.placed = true;
      for (int d = ndim - 1; d >= 0; --d) {
        slice.out_stride[d] = step;
        // Upside down, the first block of rows becomes the last one.
        if (order[d] == 0) slice.out = static_cast<char*>(out.data(i)) + (turned ? height - begin - rows : begin) * step * out.item_bytes();
        step *= shape[order[d]];
      }
      slice.channel = channel;
      slice.copies = copies;
      run_slice_cpu(slice, channels.data(), last, out.dtype());
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(pixel_chain, CPU, ndd::pixel_chain)
