// SPDX-License-Identifier: Apache-2.0
// The layers driver on the GPU: each 16 bytes of the output are assembled from the layers that cover them, without writing anything twice.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/slice/layers.h"
#include "ndd/slice/tiles.cuh"

namespace ndd {
namespace {

using slice_gpu::bits_within;
using slice_gpu::blended;
using slice_gpu::load_bytes;
using slice_gpu::load_vector;
using slice_gpu::misalignment;
using slice_gpu::shifted;
using slice_gpu::store_bytes;

constexpr int kVector = 16, kThreads = 256, kWarps = kThreads / 32, kMaxLayers = 32, kMaxLeading = 3;
constexpr int kSegment = 4096;  // bytes of a row that a warp writes
// Vectors of a thread whose loads are under way together: with the second loads of shifted vectors, 48 KB per multiprocessor. Four would not fit in registers.
constexpr int kInFlight = 2;
constexpr int64_t kResidentBlocks = 3;  // of a multiprocessor

// A stack as rows of bytes, shared by all samples of the same shape. A row consists of the trailing axes that every layer covers completely and the
// axis before them; the leading axes count the rows.
struct Shape {
  int32_t leading, channel;  // channel: the leading axis along which the fills differ, or -1
  uint32_t extent[kMaxLeading];
  int32_t row_bytes, segments, work;  // segments per row, and of all rows
  int32_t first, count;  // boxes
  int32_t period, step;  // in bytes: the period after which a row's fills repeat, and the step from the fills of a channel to those of the next
};

// The place of a layer in its stack and in its input. Positions are in bytes, `origin` and the readable range [low, high) from the input on.
struct Box {
  int64_t origin, low, high, stride[kMaxLeading];
  int32_t row_begin, row_end;
  uint32_t begin[kMaxLeading], end[kMaxLeading];  // of the leading axes
};

struct Stack {
  char* out;
  uint32_t shape, inputs, fills;  // the first of its layers' inputs, and of its bytes of fills
};

// The part of a layer that is in a row.
struct Strip {
  const char* in;  // the source of position 0 of the row, or null for a filled layer
  int begin, end;  // positions
  int low, high;  // positions between which the input can be read

  __device__ Strip of_lane(int lane) const {
    return {reinterpret_cast<const char*>(__shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long long>(in), lane)),
            __shfl_sync(0xFFFFFFFFu, begin, lane), __shfl_sync(0xFFFFFFFFu, end, lane), __shfl_sync(0xFFFFFFFFu, low, lane),
            __shfl_sync(0xFFFFFFFFu, high, lane)};
  }
};

// 16 bytes in flight: two aligned loads, from which `shift` selects.
struct Loaded {
  uint4 a, b;
  int shift;

  __device__ uint4 value() const { return shift == 0 ? a : shifted(a, b, shift); }
};

__device__ int clamped(int64_t position) { return static_cast<int>(max(int64_t{INT32_MIN}, min(position, int64_t{INT32_MAX}))); }

// The strip of box `tried` in a row; empty if it does not meet [start, stop).
__device__ Strip find_strip(const Box& box, const char* in, const uint32_t (&at)[kMaxLeading], int leading, int start, int stop) {
  bool meets = box.row_begin < stop && box.row_end > start;
  // Relative to position 0 of the row, which may lie in front of the input: only positions within the strip are read.
  int64_t from = box.origin - box.row_begin;
#pragma unroll
  for (int d = 0; d < kMaxLeading; ++d) {
    if (d >= leading) continue;
    meets = meets && at[d] >= box.begin[d] && at[d] < box.end[d];
    from += (static_cast<int64_t>(at[d]) - box.begin[d]) * box.stride[d];
  }
  if (!meets) return {nullptr, 0, 0, 0, 0};
  return {in == nullptr ? nullptr : in + from, box.row_begin, box.row_end, clamped(box.low - from), clamped(box.high - from)};
}

// Starts to load the 16 bytes of a strip at position `at`. Only its `bits` are needed.
__device__ Loaded load_strip(const Strip& strip, int at, uint32_t bits, const unsigned char* fills, int period) {
  Loaded loaded{{0, 0, 0, 0}, {0, 0, 0, 0}, 0};
  if (strip.in == nullptr) {
    // The fills are repeated in memory, so a vector can begin at each of them; `at` may be less than 0 by up to 15.
    const uint32_t phase = static_cast<uint32_t>(at + kVector * period) % static_cast<uint32_t>(period);
    const auto* const from = reinterpret_cast<const uint4*>(fills + phase / kVector * kVector);
    loaded = {from[0], from[1], static_cast<int>(phase % kVector)};
    return loaded;
  }
  const char* const from = strip.in + at;
  // Two aligned loads instead of sixteen bytes, if both lie within what the layer may read.
  const int shift = misalignment(from), begin = at - shift;
  if (begin >= strip.low && begin + (shift == 0 ? kVector : 2 * kVector) <= strip.high) {
    loaded.a = load_vector(from - shift);
    if (shift != 0) loaded.b = load_vector(from - shift + kVector);
    loaded.shift = shift;
  } else {
    loaded.a = load_bytes(from, bits);
  }
  return loaded;
}

// Each warp writes a segment of a row. Lane j holds the strip of the j-th layer from the top that the row meets. Each thread takes vectors of 16 bytes
// from the uppermost strip that covers them: all loads of its vectors are under way before the first is used. Vectors at the borders of strips are
// assembled one after the other.
__global__ void __launch_bounds__(kThreads, 3)
    run_bytes(const __grid_constant__ TableRows<Stack> stacks, int64_t count, const __grid_constant__ TableRows<Shape> shapes,
              const __grid_constant__ TableRows<Box> box_rows, const __grid_constant__ TableRows<const char*> inputs,
              const __grid_constant__ TableRows<uint4> fill_rows) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const Box* const boxes = box_rows.data();
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const Stack stack = stacks[i];
    const Shape shape = shapes[stack.shape];
    const char* const* const sources = inputs.data() + stack.inputs;
    assume_global(stack.out);
    for (int w = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32); w < shape.work; w += static_cast<int>(gridDim.x * kWarps)) {
      const uint32_t row = static_cast<uint32_t>(w) / static_cast<uint32_t>(shape.segments);
      const int start = static_cast<int>(w - row * shape.segments) * kSegment, stop = min(start + kSegment, shape.row_bytes);
      // The position of the row along each leading axis.
      uint32_t at[kMaxLeading] = {}, rest = row;
#pragma unroll
      for (int d = kMaxLeading - 1; d >= 0; --d) {
        if (d >= shape.leading) continue;
        // The outermost axis needs no division: what is left is its position.
        const uint32_t outer = d == 0 ? 0 : rest / shape.extent[d];
        at[d] = rest - outer * shape.extent[d];
        rest = outer;
      }
      // 32 layers are tested at a time, and every one that the row meets is handed to the next lane.
      Strip strip{nullptr, 0, 0, 0, 0};
      int met = 0;
      for (int last = shape.count; last > 0 && met < kMaxLayers; last -= 32) {
        const int tried = last - 1 - lane;
        Strip found{nullptr, 0, 0, 0, 0};
        if (tried >= 0) found = find_strip(boxes[shape.first + tried], sources[tried], at, shape.leading, start, stop);
        uint32_t owners = __ballot_sync(0xFFFFFFFFu, found.end > found.begin);
        for (; owners != 0 && met < kMaxLayers; owners &= owners - 1, ++met) {
          const Strip next = found.of_lane(__popc((owners & (0u - owners)) - 1u));
          if (lane == met) strip = next;
        }
      }
      const uint32_t channel = shape.channel < 0 ? 0 : shape.channel == 0 ? at[0] : shape.channel == 1 ? at[1] : at[2];
      const unsigned char* const fills = reinterpret_cast<const unsigned char*>(fill_rows.data()) + stack.fills + channel * shape.step;
      char* const out = stack.out + static_cast<int64_t>(row) * shape.row_bytes;
      // Writes are aligned; reads are not, because each layer has another misalignment.
      const int before = misalignment(out + start);
      for (int base = start - before; base < stop; base += kInFlight * 32 * kVector) {
        Loaded loaded[kInFlight] = {};
        uint32_t written[kInFlight], wanted[kInFlight];  // bytes to write; those that no layer has provided yet
#pragma unroll
        for (int k = 0; k < kInFlight; ++k) written[k] = wanted[k] = bits_within(base + (k * 32 + lane) * kVector, start, stop);
        for (int j = 0; j < met; ++j) {
          uint32_t left = 0;
#pragma unroll
          for (int k = 0; k < kInFlight; ++k) left |= wanted[k];
          if (__ballot_sync(0xFFFFFFFFu, left != 0) == 0) break;  // the lower layers are covered
          const Strip from = strip.of_lane(j);
#pragma unroll
          for (int k = 0; k < kInFlight; ++k) {
            const int first = base + (k * 32 + lane) * kVector;
            const uint32_t bits = wanted[k] & bits_within(first, from.begin, from.end);
            if (bits == 0) continue;
            const Loaded part = load_strip(from, first, bits, fills, shape.period);
            // A layer that covers the whole vector is not blended, so its loads need not arrive before the next ones are issued.
            if (bits == written[k]) loaded[k] = part;
            else loaded[k] = {blended(part.value(), loaded[k].value(), bits), {0, 0, 0, 0}, 0};
            wanted[k] &= ~bits;
          }
        }
#pragma unroll
        for (int k = 0; k < kInFlight; ++k) {
          char* const to = out + base + (k * 32 + lane) * kVector;
          // Beside the vectors at the ends of a segment, whose neighbors other warps write.
          if (written[k] == 0xFFFFu) __stwb(reinterpret_cast<uint4*>(to), loaded[k].value());
          else store_bytes(to, loaded[k].value(), written[k]);
        }
      }
    }
  }
}

// The tables of a launch. Shapes and fills that agree with those of the sample before are stored once.
struct Tables {
  std::vector<Stack> stacks;
  std::vector<Shape> shapes;
  std::vector<Box> boxes;
  std::vector<const char*> inputs;
  std::vector<uint4> fills;
  std::vector<float> last_fills;  // which begin at vector `first_fill`
  bool fills_apart = false;
  int64_t first_fill = 0;
  int64_t most = 0;  // segments of a sample
};

Box box_of(const Layer& layer, int64_t item, int axis, int64_t inner, int64_t row_bytes, const std::vector<int>& leading, int ndim) {
  Box box{};
  int64_t least = 0, greatest = 0;
  // The lowest and the highest element that the layer shows; mirrored axes reach toward lower addresses.
  for (int d = 0; d < ndim; ++d) (layer.stride[d] < 0 ? least : greatest) += (layer.end[d] - layer.begin[d] - 1) * layer.stride[d] * item;
  box.origin = layer.origin * item;
  box.low = box.origin + least;
  box.high = box.origin + greatest + item;
  box.row_begin = static_cast<int32_t>(axis < 0 ? 0 : layer.begin[axis] * inner * item);
  box.row_end = static_cast<int32_t>(axis < 0 ? row_bytes : layer.end[axis] * inner * item);
  for (size_t d = 0; d < leading.size(); ++d) {
    box.begin[d] = static_cast<uint32_t>(layer.begin[leading[d]]);
    box.end[d] = static_cast<uint32_t>(layer.end[leading[d]]);
    box.stride[d] = layer.stride[leading[d]] * item;
  }
  return box;
}

// The vectors that hold `period` bytes of fills, repeated such that a vector can begin at any of them: it is loaded as two.
int64_t fill_vectors(int64_t period) { return (period + 3 * kVector - 1) / kVector + 1; }

// Adds the fills of a stack as bytes: together, repeated behind those of a row, or with `apart` one after the other, each repeated alone.
void add_fills(Tables& tables, const std::vector<float>& fills, bool apart, DType dtype) {
  const int64_t item = item_bytes(dtype), count = static_cast<int64_t>(fills.size());
  const int64_t values = apart ? 1 : count, period = values * item, vectors = fill_vectors(period);
  tables.first_fill = static_cast<int64_t>(tables.fills.size());
  tables.fills.resize(tables.first_fill + (apart ? count : 1) * vectors);
  for (int64_t c = 0; c < count; c += values) {
    auto* const bytes = reinterpret_cast<unsigned char*>(tables.fills.data() + tables.first_fill + c / values * vectors);
    for (int64_t k = 0; k < values; ++k) store_element(fills[c + k], bytes, dtype, k);
    for (int64_t b = period; b < vectors * kVector; ++b) bytes[b] = bytes[b - period];
  }
  tables.last_fills = fills;
  tables.fills_apart = apart;
}

// Adds a sample as rows of bytes; false if some layer is not contiguous in its input along those rows, or if something is too large.
bool add_stack(Tables& tables, const Layers& layers, DType dtype) {
  const int64_t item = item_bytes(dtype);
  std::vector<const Layer*> used;
  for (const Layer& layer : layers.layers) {
    // Fills of its own: the row has room for those of the stack only.
    if (layer.fills != 0) return false;
    bool empty = false;
    for (int d = 0; d < layers.ndim; ++d) empty = empty || layer.begin[d] >= layer.end[d];
    if (!empty) used.push_back(&layer);
  }
  const auto every = [&](auto holds) { return std::all_of(used.begin(), used.end(), [&](const Layer* layer) { return holds(*layer); }); };
  // `left`: the axes that have not joined the row; `inner`: the elements of those that have.
  int left = layers.ndim;
  int64_t inner = 1;
  const auto contiguous = [&](int d) {
    return every([&](const Layer& layer) { return layer.in == nullptr || layer.stride[d] == inner || layer.end[d] - layer.begin[d] <= 1; });
  };
  // The fills differ by channel, which therefore stays a separate axis, unless it is the last one: its fills repeat within the row.
  const auto in_row = [&](int d) { return d != layers.channel || d == layers.ndim - 1; };
  // Axes that every layer covers completely join the row, from the last one outward.
  while (left > 0 && in_row(left - 1) && contiguous(left - 1) &&
         every([&](const Layer& layer) { return layer.begin[left - 1] == 0 && layer.end[left - 1] == layers.extent[left - 1]; }))
    inner *= layers.extent[--left];
  // One more axis joins, which layers may cover in part: that is what a box is in a row.
  const int axis = left > 0 && in_row(left - 1) && contiguous(left - 1) ? --left : -1;
  const int64_t row_bytes = inner * item * (axis >= 0 ? layers.extent[axis] : 1);
  Shape shape{};
  shape.channel = -1;
  std::vector<int> leading;
  int64_t rows = 1;
  for (int d = 0; d < left; ++d) {
    rows *= layers.extent[d];
    if (layers.extent[d] == 1 && d != layers.channel) continue;
    if (leading.size() == kMaxLeading || layers.extent[d] > INT32_MAX) return false;
    if (d == layers.channel) shape.channel = static_cast<int32_t>(leading.size());
    shape.extent[leading.size()] = static_cast<uint32_t>(layers.extent[d]);
    leading.push_back(d);
  }
  // A warp writes a segment; long rows have several, so a batch of few rows keeps all warps busy.
  const int64_t segments = (row_bytes + kSegment - 1) / kSegment;
  const int64_t period = (layers.channel >= left ? layers.extent[layers.channel] : 1) * item;
  if (rows == 0 || row_bytes == 0) return true;
  // Positions, segments and phases of fills are 32-bit numbers in the kernel.
  if (row_bytes > INT32_MAX - 2 * kSegment || rows > INT32_MAX / (2 * segments) || period > INT32_MAX / (2 * kVector)) return false;
  const bool apart = shape.channel >= 0;  // each row has the fill of one channel
  const int64_t fill_step = fill_vectors(item) * kVector;
  if (apart && static_cast<int64_t>(layers.fills.size()) > INT32_MAX / fill_step) return false;
  std::vector<int64_t> together(left > 0 ? layers.extent[0] : 1);  // the number of layers at each position of the first axis
  std::vector<Box> boxes;
  tables.stacks.push_back({static_cast<char*>(layers.out), 0, static_cast<uint32_t>(tables.inputs.size()), 0});
  for (const Layer* layer : used) {
    boxes.push_back(box_of(*layer, item, axis, inner, row_bytes, leading, layers.ndim));
    tables.inputs.push_back(static_cast<const char*>(layer->in));
    const int64_t end = left > 0 ? layer->end[0] : 1;
    // A warp holds one strip per lane, so no row may meet more than 32 layers. Counted along the first axis only: a bound, not the exact number.
    for (int64_t k = left > 0 ? layer->begin[0] : 0; used.size() > kMaxLayers && k < end; ++k)
      if (++together[k] > kMaxLayers) return false;
  }
  shape.leading = static_cast<int32_t>(leading.size());
  shape.row_bytes = static_cast<int32_t>(row_bytes);
  shape.segments = static_cast<int32_t>(segments);
  shape.work = static_cast<int32_t>(rows * segments);
  shape.count = static_cast<int32_t>(boxes.size());
  shape.period = static_cast<int32_t>(period);
  shape.step = static_cast<int32_t>(fill_step);
  // Batches of equal stacks, as in paste with constant arguments, share one shape and its boxes.
  const bool known = !tables.shapes.empty() && tables.shapes.back().count == shape.count &&
                     std::memcmp(boxes.data(), tables.boxes.data() + tables.shapes.back().first, boxes.size() * sizeof(Box)) == 0;
  shape.first = known ? tables.shapes.back().first : static_cast<int32_t>(tables.boxes.size());
  if (!known) tables.boxes.insert(tables.boxes.end(), boxes.begin(), boxes.end());
  if (!known || std::memcmp(&tables.shapes.back(), &shape, sizeof(Shape)) != 0) tables.shapes.push_back(shape);
  if (tables.fills.empty() || layers.fills != tables.last_fills || apart != tables.fills_apart) add_fills(tables, layers.fills, apart, dtype);
  tables.stacks.back().shape = static_cast<uint32_t>(tables.shapes.size() - 1);
  tables.stacks.back().fills = static_cast<uint32_t>(tables.first_fill * kVector);
  tables.most = std::max<int64_t>(tables.most, shape.work);
  return true;
}

bool launch_bytes(const std::string& op, const std::vector<Layers>& stacks, DType dtype) {
  Tables tables;
  for (const Layers& layers : stacks)
    if (!add_stack(tables, layers, dtype)) return false;
  if (tables.stacks.empty()) return true;
  const KernelTable<Stack> rows(tables.stacks);
  const KernelTable<Shape> shapes(tables.shapes);
  const KernelTable<Box> boxes(tables.boxes);
  const KernelTable<const char*> inputs(tables.inputs);
  const KernelTable<uint4> fills(tables.fills);
  const auto count = static_cast<int64_t>(tables.stacks.size());
  const dim3 grid = batch_grid(tables.most, kWarps, count, std::max<int64_t>(1, kResidentBlocks * multiprocessors() / count));
  run_bytes<<<grid, kThreads, 0, current_cuda_stream()>>>(rows.rows(), count, shapes.rows(), boxes.rows(), inputs.rows(), fills.rows());
  check_launch(op.c_str());
  return true;
}

// A sample for the general path: its own extents, and where its layers and fills begin in the tables of all samples.
struct LayersTable {
  void* out;
  int ndim, channel;
  int64_t extent[kSliceDims];
  int64_t first, count, volume;  // layers
  int64_t fills;  // index of its first fill
};

// The general path, for different input and output types, and for more than 32 layers in a row: one element per thread.
__global__ void run_layers_gpu(const LayersTable* samples, int64_t count, const Layer* layers, const float* fills, DType in, DType out) {
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const LayersTable s = samples[i];
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < s.volume; e += int64_t{gridDim.x} * blockDim.x) {
      int64_t at[kSliceDims], rest = e;
      for (int d = s.ndim - 1; d >= 0; --d) {
        const int64_t outer = rest / s.extent[d];
        at[d] = rest - outer * s.extent[d];
        rest = outer;
      }
      // From the top down: the first layer that contains the element is the one that is seen. The lowest covers everything.
      int64_t k = s.first + s.count - 1;
      while (k > s.first && !layers[k].contains(at, s.ndim)) --k;
      const Layer& layer = layers[k];
      if (layer.in == nullptr) store_element(fills[s.fills + layer.fills + (s.channel < 0 ? 0 : at[s.channel])], s.out, out, e);
      else if (in == out) copy_element(layer.in, layer.source(at, s.ndim), s.out, e, out);
      else store_element(load_element(layer.in, in, layer.source(at, s.ndim)), s.out, out, e);
    }
  }
}

}  // namespace

void run_layers_cuda(const std::string& op, const std::vector<Layers>& stacks, DType in, DType out) {
  if (in == out && launch_bytes(op, stacks, out)) return;
  std::vector<LayersTable> table;
  std::vector<Layer> layers;
  std::vector<float> fills;
  int64_t most = 0;
  for (const Layers& stack : stacks) {
    LayersTable row{stack.out,
                    stack.ndim,
                    stack.channel,
                    {},
                    static_cast<int64_t>(layers.size()),
                    static_cast<int64_t>(stack.layers.size()),
                    1,
                    static_cast<int64_t>(fills.size())};
    for (int d = 0; d < stack.ndim; ++d) row.volume *= row.extent[d] = stack.extent[d];
    most = std::max(most, row.volume);
    table.push_back(row);
    layers.insert(layers.end(), stack.layers.begin(), stack.layers.end());
    fills.insert(fills.end(), stack.fills.begin(), stack.fills.end());
  }
  if (most == 0) return;
  // An empty table has no address.
  if (fills.empty()) fills.push_back(0.0f);
  const CudaTable<LayersTable> rows(table);
  const CudaTable<Layer> boxes(layers);
  const CudaTable<float> values(fills);
  const int64_t count = static_cast<int64_t>(stacks.size());
  const dim3 grid = batch_grid(most, 1024, count);
  run_layers_gpu<<<grid, 256, 0, current_cuda_stream()>>>(rows.data(), count, boxes.data(), values.data(), in, out);
  check_launch(op.c_str());
}

}  // namespace ndd
