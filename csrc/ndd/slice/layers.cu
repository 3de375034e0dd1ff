// SPDX-License-Identifier: Apache-2.0
// The layers driver on the GPU: each 16 bytes of the output are assembled from the layers that cover them, without writing anything twice.
#include <algorithm>
#include <string>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/slice/layers.h"

namespace ndd {
namespace {

// A stack as rows of bytes. A row consists of the trailing axes that every layer covers completely and the axis before them; the leading axes count
// the rows.
struct Stack {
  char* out;
  int32_t leading, channel;  // channel: the leading axis along which the fills differ, or -1
  int64_t extent[kSliceDims];
  int64_t row_bytes, segments, work;  // segments per row, and of all rows
  int64_t first, count;               // layers
  int64_t fills, period, step;        // in bytes: the first fill, the period after which a row's fills repeat, and the step along `channel`
};

struct ByteLayer {
  const char* in;  // null for a filled layer
  int64_t origin, row_begin, row_end;
  int64_t begin[kSliceDims], end[kSliceDims], stride[kSliceDims];  // of the leading axes
};

constexpr int kVector = 16, kWarps = 8, kMaxLayers = 32;
constexpr int64_t kSegment = 4096;  // bytes

// Expands the four lowest bits to bytes of all ones or zeros.
__device__ uint32_t spread(uint32_t bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) * 255u; }

__device__ int64_t quotient(int64_t a, int64_t b, bool small) { return small ? static_cast<uint32_t>(a) / static_cast<uint32_t>(b) : a / b; }

// The selected bytes of the 16 bytes at `from`. Only these are read: the others may lie outside the input.
__device__ uint4 chosen_bytes(const char* from, uint32_t bits) {
  if (bits == 0xFFFFu && reinterpret_cast<uintptr_t>(from) % kVector == 0) return __ldg(reinterpret_cast<const uint4*>(from));
  uint32_t word[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    word[w] = 0;
#pragma unroll
    for (int b = 0; b < 4; ++b)
      if (bits >> (4 * w + b) & 1) word[w] |= static_cast<uint32_t>(__ldg(reinterpret_cast<const unsigned char*>(from) + 4 * w + b)) << 8 * b;
  }
  return {word[0], word[1], word[2], word[3]};
}

__device__ uint4 filled_bytes(const unsigned char* fills, int64_t at, int64_t period) {
  int64_t k = at < (int64_t{1} << 31) && period < (int64_t{1} << 31) ? static_cast<uint32_t>(at) % static_cast<uint32_t>(period) : at % period;
  uint32_t word[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    word[w] = 0;
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      word[w] |= static_cast<uint32_t>(__ldg(fills + k)) << 8 * b;
      k = k + 1 == period ? 0 : k + 1;
    }
  }
  return {word[0], word[1], word[2], word[3]};
}

// Each warp writes a segment of a row. Lane j holds the j-th layer from the top that the row meets, and each thread assembles 16 bytes from those
// layers, with about 20 instructions per layer and 30 for the rest; at full bandwidth there is time for 190.
__global__ void __launch_bounds__(kWarps * 32) run_bytes(const Stack* stacks, int64_t count, const ByteLayer* layers, const unsigned char* fills) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const Stack& s = stacks[i];
    const int64_t work = s.work, row_bytes = s.row_bytes;
    const bool small = work < (int64_t{1} << 31);
    for (int64_t w = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; w < work; w += int64_t{gridDim.x} * kWarps) {
      const int64_t row = quotient(w, s.segments, small), start = (w - row * s.segments) * kSegment;
      const int64_t stop = start + kSegment < row_bytes ? start + kSegment : row_bytes;
      // Finds the layers that the row meets: 32 are tested at a time, and every hit is handed to the next lane.
      const char* in = nullptr;
      int64_t begin = 0, end = 0;
      int32_t met = 0;
      for (int64_t last = s.count; last > 0 && met < kMaxLayers; last -= 32) {
        const int64_t tried = last - 1 - lane;
        bool meets = tried >= 0;
        const char* source = nullptr;
        int64_t from = 0, to = 0;
        if (meets) {
          const ByteLayer& layer = layers[s.first + tried];
          int64_t offset = layer.origin, rest = row;
          for (int d = s.leading - 1; d >= 0; --d) {
            const int64_t outer = quotient(rest, s.extent[d], small), at = rest - outer * s.extent[d];
            rest = outer;
            meets = meets && at >= layer.begin[d] && at < layer.end[d];
            offset += (at - layer.begin[d]) * layer.stride[d];
          }
          from = layer.row_begin;
          to = layer.row_end;
          meets = meets && from < stop && to > start;
          source = layer.in == nullptr ? nullptr : layer.in + offset - from;
        }
        uint32_t found = __ballot_sync(0xFFFFFFFFu, meets);
        for (; found != 0 && met < kMaxLayers; found &= found - 1, ++met) {
          const int32_t owner = __popc((found & (0u - found)) - 1u);
          const auto layer_in = __shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long long>(source), owner);
          const auto layer_begin = __shfl_sync(0xFFFFFFFFu, static_cast<long long>(from), owner);
          const auto layer_end = __shfl_sync(0xFFFFFFFFu, static_cast<long long>(to), owner);
          if (lane != met) continue;
          in = reinterpret_cast<const char*>(layer_in);
          begin = layer_begin;
          end = layer_end;
        }
      }
      int64_t fill = s.fills;
      if (s.channel >= 0) {
        int64_t rest = row;
        for (int d = s.leading - 1; d > s.channel; --d) rest = quotient(rest, s.extent[d], small);
        fill += (rest - quotient(rest, s.extent[s.channel], small) * s.extent[s.channel]) * s.step;
      }
      char* const out = s.out + row * row_bytes;
      const int32_t before = static_cast<int32_t>(reinterpret_cast<uintptr_t>(out + start) % kVector);
      for (int64_t base = start - before; base < stop; base += 32 * kVector) {
        const int64_t first = base + lane * kVector;
        uint32_t wanted = 0xFFFFu;  // bytes that no layer has provided yet
        if (first < start) wanted &= 0xFFFFu << (start - first);
        if (first + kVector > stop) wanted &= first < stop ? 0xFFFFu >> (first + kVector - stop) : 0u;
        const uint32_t written = wanted;
        uint4 result{0, 0, 0, 0};
        for (int32_t j = 0; j < met; ++j) {
          const auto layer_in = __shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long long>(in), j);
          const auto from = __shfl_sync(0xFFFFFFFFu, static_cast<long long>(begin), j), to = __shfl_sync(0xFFFFFFFFu, static_cast<long long>(end), j);
          uint32_t bits = from < first + kVector && to > first ? wanted : 0u;
          if (from > first && bits != 0) bits &= 0xFFFFu << (from - first);
          if (to < first + kVector && bits != 0) bits &= 0xFFFFu >> (first + kVector - to);
          if (bits == 0) continue;
          const uint4 bytes = layer_in == 0 ? filled_bytes(fills + fill, first + kVector * s.period, s.period)
                                            : chosen_bytes(reinterpret_cast<const char*>(layer_in) + first, bits);
          result.x |= bytes.x & spread(bits);
          result.y |= bytes.y & spread(bits >> 4);
          result.z |= bytes.z & spread(bits >> 8);
          result.w |= bytes.w & spread(bits >> 12);
          wanted &= ~bits;
        }
        if (written == 0xFFFFu) {
          *reinterpret_cast<uint4*>(out + first) = result;
        } else {
          const uint32_t word[4] = {result.x, result.y, result.z, result.w};
#pragma unroll
          for (int b = 0; b < kVector; ++b)
            if (written >> b & 1) out[first + b] = static_cast<char>(word[b / 4] >> b % 4 * 8);
        }
      }
    }
  }
}

// Describes the stack as rows of bytes; false if some layer is not contiguous in its input along those rows.
bool as_bytes(const Layers& layers, int64_t item, Stack& stack, std::vector<ByteLayer>& byte_layers) {
  const auto every = [&](auto holds) { return std::all_of(layers.layers.begin(), layers.layers.end(), holds); };
  int left = layers.ndim;
  int64_t inner = 1;
  const auto contiguous = [&](int d) {
    return every([&](const Layer& layer) { return layer.in == nullptr || layer.stride[d] == inner || layer.end[d] - layer.begin[d] <= 1; });
  };
  const auto in_row = [&](int d) { return d != layers.channel || d == layers.ndim - 1; };
  while (left > 0 && in_row(left - 1) && contiguous(left - 1) &&
         every([&](const Layer& layer) { return layer.begin[left - 1] == 0 && layer.end[left - 1] == layers.extent[left - 1]; }))
    inner *= layers.extent[--left];
  const int axis = left > 0 && in_row(left - 1) && contiguous(left - 1) ? --left : -1;
  stack = {static_cast<char*>(layers.out),
           left,
           layers.channel < left ? layers.channel : -1,
           {},
           inner * item,
           1,
           1,
           static_cast<int64_t>(byte_layers.size()),
           static_cast<int64_t>(layers.layers.size()),
           0,
           item,
           item};
  if (layers.channel >= left) stack.period = layers.extent[layers.channel] * item;
  if (axis >= 0) stack.row_bytes *= layers.extent[axis];
  for (int d = 0; d < left; ++d) stack.work *= stack.extent[d] = layers.extent[d];
  stack.segments = (stack.row_bytes + kSegment - 1) / kSegment;
  stack.work *= stack.segments;
  std::vector<int64_t> together(left > 0 ? layers.extent[0] : 1);  // the number of layers at each position of the first axis
  for (const Layer& layer : layers.layers) {
    ByteLayer byte_layer{static_cast<const char*>(layer.in), layer.origin * item, 0, stack.row_bytes, {}, {}, {}};
    if (axis >= 0) {
      byte_layer.row_begin = layer.begin[axis] * inner * item;
      byte_layer.row_end = layer.end[axis] * inner * item;
    }
    for (int d = 0; d < left; ++d) {
      byte_layer.begin[d] = layer.begin[d];
      byte_layer.end[d] = layer.end[d];
      byte_layer.stride[d] = layer.stride[d] * item;
    }
    byte_layers.push_back(byte_layer);
    const int64_t end = left > 0 ? layer.end[0] : 1;
    for (int64_t k = left > 0 ? layer.begin[0] : 0; layers.layers.size() > kMaxLayers && k < end; ++k)
      if (++together[k] > kMaxLayers) return false;
    if (layer.fills != 0) return false;
  }
  return true;
}

bool launch_bytes(const std::string& op, const std::vector<Layers>& stacks, DType dtype) {
  std::vector<Stack> table;
  std::vector<ByteLayer> layers;
  std::vector<unsigned char> fills;
  const int64_t item = item_bytes(dtype);
  int64_t most = 0;
  for (const Layers& source : stacks) {
    Stack stack;
    if (!as_bytes(source, item, stack, layers)) return false;
    stack.fills = static_cast<int64_t>(fills.size());
    fills.resize(fills.size() + source.fills.size() * item);
    for (size_t c = 0; c < source.fills.size(); ++c) store_element(source.fills[c], fills.data() + stack.fills, dtype, static_cast<int64_t>(c));
    most = std::max(most, stack.work);
    table.push_back(stack);
  }
  if (most == 0) return true;
  if (fills.empty()) fills.push_back(0);
  const CudaTable<Stack> rows(table);
  const CudaTable<ByteLayer> boxes(layers);
  const CudaTable<unsigned char> values(fills);
  const int64_t count = static_cast<int64_t>(stacks.size());
  const dim3 grid = batch_grid(most, kWarps, count);
  run_bytes<<<grid, kWarps * 32, 0, current_cuda_stream()>>>(rows.data(), count, boxes.data(), values.data());
  check_launch(op.c_str());
  return true;
}

struct LayersTable {
  void* out;
  int ndim, channel;
  int64_t extent[kSliceDims];
  int64_t first, count, volume;  // layers
  int64_t fills;                 // index of its first fill
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
