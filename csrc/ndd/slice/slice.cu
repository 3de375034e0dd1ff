// SPDX-License-Identifier: Apache-2.0
// The slice driver on the GPU. A warp processes a tile of a row at a time; all slices of a batch go in one launch, whatever their sizes. Rows that
// are only moved are copied in units of 16 bytes, shifted in registers if input and output are aligned differently. Other rows are read in 16-byte
// units into shared memory, where the order of elements costs nothing, and written in 4-byte words by neighboring threads. Planes are transposed in
// tiles. The rest goes element by element.
#include "ndd/slice/slice.h"

#include <cstring>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/elementwise/vectors.cuh"
#include "ndd/slice/plan.h"
#include "ndd/slice/tiles.cuh"

namespace ndd {
namespace slice_gpu {
namespace {

// Four to six times as many as run concurrently on the 132 multiprocessors of an H200, so that all of them finish at about the same time.
constexpr int64_t kBlocks = 4096;

// Moves a row's bytes, and fills what lies outside the window with the bits of `fills`. `item` is the size of an item in bytes.
__global__ void __launch_bounds__(kThreads, 5) copy_gpu(const Plan* plans, int count, uint32_t units, const unsigned long long* fills, int item) {
  __shared__ Tile tiles[kWarps];
  const int lane = threadIdx.x % kLane;
  Tile& tile = tiles[threadIdx.x / kLane];
  for_each_tile(plans, count, units, tile, [&] {
    const char *const low = tile.low, *const high = tile.high;
    const int length = tile.count;
#pragma unroll 1
    for (int row = 0; row < tile.rows; ++row) {
      const char* const in = tile.in + row * tile.row_in;
      char* const out = tile.out + row * tile.row_out;
      const int begin = tile.begin, end = begin + tile.shown(row), before = misalignment(out), vectors = (before + length + 15) / 16;
      // The distance between input and output is the same everywhere, and so is the input's misalignment relative to the output's vectors.
      const int shift = misalignment(in - before), taken = shift == 0 ? 16 : 32;
      const char* const from = in - shift;
      const auto whole = [&](int at) { return at >= begin && at + 16 <= end && from + at >= low && from + at + taken <= high; };
      const auto load = [&](int at) {
        const uint4 a = load_vector(from + at);
        return shift == 0 ? a : shifted(a, load_vector(from + at + 16), shift);
      };
      const auto store = [&](int at, const uint4& value) { *reinterpret_cast<uint4*>(out + at) = value; };
      const auto piecewise = [&](int at) {
#pragma unroll 1
        for (int b = max(at, 0); b < min(at + 16, length); ++b)
          out[b] = b >= begin && b < end ? load_byte(in + b) : static_cast<char>(fills[tile.channel] >> 8 * (b & (item - 1)));
      };
      // Two at a time, so that both loads are in flight together.
#pragma unroll 1
      for (int v = lane; v < vectors; v += 2 * kLane) {
        const int at = 16 * v - before, next = at + 16 * kLane;
        const bool first = whole(at), second = whole(next);
        uint4 a{}, b{};
        if (first) a = load(at);
        if (second) b = load(next);
        if (first) store(at, a);
        else piecewise(at);
        if (second) store(next, b);
        else piecewise(next);
      }
    }
  });
}

// What happens to an element: it is moved, as an item of a given size, or normalized and converted.
template <class T>
struct Move {
  using In = T;
  using Out = T;
  struct Values {};
  static constexpr bool moves = true;
  const unsigned long long* fills;  // the bits of each channel's fill
  __device__ Values values(int64_t) const { return {}; }
  __device__ T fill(int64_t channel) const { return static_cast<T>(fills[channel]); }
  __device__ T operator()(T value, Values) const { return value; }
};

template <class From, class To>
struct Convert {
  using In = From;
  using Out = To;
  using Values = Channel;
  static constexpr bool moves = false;
  const Channel* channels;
  __device__ Channel values(int64_t channel) const { return channels[channel]; }
  __device__ To fill(int64_t channel) const { return saturate<To>(channels[channel].fill); }
  __device__ To operator()(From value, const Channel& channel) const { return saturate<To>(channel(static_cast<float>(value))); }
};

// Writes value(0) to value(count - 1), in 4-byte words where these are complete: word(at) makes one.
template <class Out, class Word, class Value>
__device__ void write_words(Out* to, int count, int lane, Word word, Value value) {
  constexpr int kPer = sizeof(Out) < 4 ? 4 / sizeof(Out) : 1;
  using Vector = AlignedVector<Out, kPer>;
  const int before = static_cast<int>(reinterpret_cast<uintptr_t>(to) % sizeof(Vector) / sizeof(Out)), head = min((kPer - before) % kPer, count);
  const int words = (count - head) / kPer, single = count - words * kPer;
  auto* const vectors = reinterpret_cast<Vector*>(to + head);
  for (int w = lane; w < words; w += kLane) vectors[w] = word(head + w * kPer);
  if constexpr (kPer > 1) {
#pragma unroll 1
    for (int i = lane; i < single; i += kLane) {
      const int e = i < head ? i : words * kPer + i;
      to[e] = value(e);
    }
  }
}

template <class Out, class Value>
__device__ void write_run(Out* to, int count, int lane, Value value) {
  constexpr int kPer = sizeof(Out) < 4 ? 4 / sizeof(Out) : 1;
  const auto word = [&](int at) {
    AlignedVector<Out, kPer> word;
#pragma unroll
    for (int k = 0; k < kPer; ++k) word.element[k] = value(at + k);
    return word;
  };
  write_words(to, count, lane, word, value);
}

// Reads `bytes` from `low` on into the stage, keeping their position within 16 bytes; two loads are in flight at a time.
__device__ void read_run(const char* low, int bytes, const char* first, const char* last, uint4* stage, int lane) {
  const int before = misalignment(low), vectors = (before + bytes + 15) / 16;
  const char* const from = low - before;
  const auto whole = [&](int v) { return v < vectors && from + 16 * v >= first && from + 16 * v + 16 <= last; };
  const auto piecewise = [&](int v) {
#pragma unroll 1
    for (int b = max(16 * v, before); b < min(16 * v + 16, before + bytes); ++b) reinterpret_cast<char*>(stage)[b] = load_byte(from + b);
  };
#pragma unroll 1
  for (int v = lane; v < vectors; v += 2 * kLane) {
    const bool first_whole = whole(v), second_whole = whole(v + kLane);
    uint4 a{}, b{};
    if (first_whole) a = load_vector(from + 16 * v);
    if (second_whole) b = load_vector(from + 16 * (v + kLane));
    if (first_whole) stage[v] = a;
    else piecewise(v);
    if (second_whole) stage[v + kLane] = b;
    else piecewise(v + kLane);
  }
}

// A row of a tile whose window is in shared memory. Offsets are in bytes.
template <class F>
struct Staged {
  using In = typename F::In;
  using Out = typename F::Out;
  F f;
  const char* stage;
  const Tile& tile;
  int end, step, pixel;  // of the tile, for this row
  int zero;  // the offset of element 0 of pixel 0, even if it is not staged; with separate runs, without their alignment
  unsigned int low;  // the lowest bits of the address that the row comes from
  bool whole;

  // The offset of element c of pixel 0. Each run keeps the position of its address within 16 bytes.
  __device__ int offset(int c) const {
    if (tile.run == 0) return zero + c * static_cast<int>(sizeof(In));
    return zero + c * tile.run + static_cast<int>((low + c * static_cast<unsigned int>(tile.pixel_in)) % 16);
  }
  __device__ int64_t channel(int c) const { return tile.channel_of_pixel ? tile.channel + c : tile.channel; }
  __device__ In load(int at) const { return *reinterpret_cast<const In*>(stage + at); }

  __device__ void write_plane(Out* to, int c, int lane) const {
    const int from = offset(c), count = tile.count;
    const auto values = f.values(channel(c));
    if (whole) {
      write_run(to, count, lane, [&](int p) { return f(load(from + p * step), values); });
    } else {
      const int begin = tile.begin, last = c >= tile.pixel_begin && c < tile.pixel_end ? end : begin;
      const Out fill = f.fill(channel(c));
      write_run(to, count, lane, [&](int p) { return p >= begin && p < last ? f(load(from + p * step), values) : fill; });
    }
  }

  // Any element; slow.
  __device__ Out value(int p, int c) const {
    const bool visible = p >= tile.begin && p < end && c >= tile.pixel_begin && c < tile.pixel_end;
    return visible ? f(load(offset(c) + p * step), f.values(channel(c))) : f.fill(channel(c));
  }

  // Writes consecutive pixels.
  __device__ void write_pixels(Out* to, int lane) const {
    const uint32_t inverse = tile.inverse;
    const int count = tile.count * pixel;
    const auto pixel_of = [&](int e) { return static_cast<int>(__umulhi(static_cast<uint32_t>(e), inverse)); };
    const auto any = [&](int e) {
      const int p = pixel_of(e);
      return value(p, e - p * pixel);
    };
    if (!whole || tile.run != 0) return write_run(to, count, lane, any);
    if constexpr (F::moves && sizeof(Out) == 1) {
      // Pixels of 3 bytes, as in a flip: the distances from the first byte of a word to the others depend only on its position within a pixel. Takes
      // 22 instructions per word instead of 29.
      const auto word = [&](int e) {
        const int p = pixel_of(e), c = e - 3 * p, at = zero + p * step + c, next = step - 3;
        return AlignedVector<Out, 4>{{load(at), load(c < 2 ? at + 1 : at + 1 + next), load(c < 1 ? at + 2 : at + 2 + next), load(at + 3 + next)}};
      };
      if (pixel == 3) return write_words(to, count, lane, word, any);
    }
    const int skip = step - pixel * static_cast<int>(sizeof(In)), each = tile.channel_of_pixel;
    const int64_t first = tile.channel;
    write_run(to, count, lane, [&](int e) {
      const int p = pixel_of(e);
      return f(load(zero + e * static_cast<int>(sizeof(In)) + p * skip), f.values(first + (e - p * pixel) * each));
    });
  }

  __device__ void write_scattered(char* to, int lane) const {
#pragma unroll 1
    for (int e = lane; e < tile.count * pixel; e += kLane) {
      const int p = e / pixel, c = e - p * pixel;
      *reinterpret_cast<Out*>(to + p * tile.out_step + c * tile.pixel_out) = value(p, c);
    }
  }
};

template <class F>
__global__ void __launch_bounds__(kThreads, 5) rows_gpu(const Plan* plans, int count, uint32_t units, F f) {
  constexpr int kItem = sizeof(typename F::In);
  using Out = typename F::Out;
  __shared__ uint4 stages[kWarps * kStageBytes / 16];
  __shared__ Tile tiles[kWarps];
  const int lane = threadIdx.x % kLane;
  Tile& tile = tiles[threadIdx.x / kLane];
  uint4* const stage = stages + threadIdx.x / kLane * (kStageBytes / 16);
  for_each_tile(plans, count, units, tile, [&] {
#pragma unroll 1
    for (int row = 0; row < tile.rows; ++row) {
      const int shown = tile.shown(row), step = static_cast<int>(tile.in_step), back = step < 0 ? (shown - 1) * step : 0, run = tile.run,
                pixel = tile.pixel;
      const char* const low = tile.in + row * tile.row_in + static_cast<int64_t>(tile.begin) * step + back;  // the lowest address of the window
      char* const out = tile.out + row * tile.row_out;
      // `first` is the first element of a pixel that is read.
      const int first = tile.pixel_begin, shift = first * kItem;
      if (shown > 0) {
        const int span = abs(step) * (shown - 1) + kItem;
        if (run == 0) {
          read_run(low + shift, span + (tile.pixel_end - 1 - first) * kItem, tile.low, tile.high, stage, lane);
        } else {
#pragma unroll 1
          for (int c = first; c < tile.pixel_end; ++c) read_run(low + c * tile.pixel_in, span, tile.low, tile.high, stage + c * (run / 16), lane);
        }
      }
      __syncwarp();
      const Staged<F> staged{f,
                             reinterpret_cast<const char*>(stage),
                             tile,
                             tile.begin + shown,
                             step,
                             pixel,
                             (run == 0 ? misalignment(low + shift) - shift : 0) - (tile.begin * step + back),
                             static_cast<unsigned int>(reinterpret_cast<uintptr_t>(low)),
                             shown == tile.count && tile.pixel_begin == 0 && tile.pixel_end == pixel};
      if (tile.out_step == sizeof(Out)) {
#pragma unroll 1
        for (int c = 0; c < pixel; ++c) staged.write_plane(reinterpret_cast<Out*>(out + c * tile.pixel_out), c, lane);
      } else if (pixel > 1 && tile.out_step == pixel * static_cast<int64_t>(sizeof(Out)) && tile.pixel_out == sizeof(Out)) {
        staged.write_pixels(reinterpret_cast<Out*>(out), lane);
      } else {
        staged.write_scattered(out, lane);
      }
      __syncwarp();
    }
  });
}

// Transposes tiles of up to 32 rows and columns: read along one axis, written along the other. Rows of the stage are an odd number of elements apart,
// so that neither side has bank conflicts.
template <class F>
__global__ void __launch_bounds__(kThreads, 5) planes_gpu(const Plan* plans, int count, uint32_t units, F f) {
  using Item = typename F::Out;
  __shared__ Item stages[kWarps * kPlane * (kPlane + 1)];
  __shared__ Tile tiles[kWarps];
  const int lane = threadIdx.x % kLane;
  Tile& tile = tiles[threadIdx.x / kLane];
  Item* const stage = stages + threadIdx.x / kLane * kPlane * (kPlane + 1);
  for_each_tile(plans, count, units, tile, [&] {
    const int rows = tile.rows, columns = tile.count;
    const int rows_begin = tile.rows_begin, rows_end = tile.rows_end;
    const bool row_shown = lane >= rows_begin && lane < rows_end;
    const char* const in = tile.in + lane * tile.row_in;
    const int64_t in_step = tile.in_step;
    const int begin = tile.begin, end = tile.end;
#pragma unroll 8
    for (int p = 0; p < kPlane; ++p)
      if (row_shown && p >= begin && p < end) stage[p * (kPlane + 1) + lane] = __ldg(reinterpret_cast<const Item*>(in + p * in_step));
    __syncwarp();
    const bool column_shown = lane >= begin && lane < end;
    char* const out = tile.out + lane * tile.out_step;
    const int64_t row_out = tile.row_out;
    for (int r = 0; r < rows && lane < columns; ++r) {
      const bool shown = column_shown && r >= rows_begin && r < rows_end;
      *reinterpret_cast<Item*>(out + r * row_out) = shown ? stage[lane * (kPlane + 1) + r] : f.fill(tile.channel + (tile.channel_of_row ? r : 0));
    }
  });
}

constexpr int kElementsPerThread = 4;

// Index is 32 bits wide where that suffices: a 64-bit division costs ten times as much.
template <class Index>
__device__ void general_element(const Slice& s, const Channel* channels, DType in, DType out, Index e) {
  Index rest = e;
  int64_t from = s.origin, to = 0, channel = 0;
  bool inside = true;
  for (int d = s.ndim - 1; d >= 0; --d) {
    const Index extent = static_cast<Index>(s.extent[d]), outer = rest / extent;
    const int64_t at = rest - outer * extent;
    rest = outer;
    inside = inside && at >= s.begin[d] && at < s.end[d];
    from += at * s.stride[d];
    to += at * s.out_stride[d];
    if (d == s.channel) channel = at;
  }
  const Channel& values = channels[s.channels + channel];
  if (!inside) store_element(values.fill, s.out, out, to);
  else if (s.copies) copy_element(s.in, from, s.out, to, out);
  else store_element(values(load_element(s.in, in, from)), s.out, out, to);
}

__global__ void general_gpu(const Slice* slices, int64_t count, const Channel* channels, DType in, DType out) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Slice& s = slices[k];
    const int64_t volume = s.volume(), step = int64_t{gridDim.x} * kThreads;
    for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < volume; e += step) {
      if (volume <= UINT32_MAX) general_element<uint32_t>(s, channels, in, out, static_cast<uint32_t>(e));
      else general_element<uint64_t>(s, channels, in, out, static_cast<uint64_t>(e));
    }
  }
}

// The slices of one kind, with their total number of units.
struct SliceWork {
  std::vector<Plan> plans;
  int64_t units = 0;

  bool has_room(const Plan& plan) const { return units + plan.units <= INT32_MAX; }
  void add(Plan& plan) {
    plan.first_unit = static_cast<uint32_t>(units);
    units += plan.units;
    plans.push_back(plan);
  }
  template <class Kernel, class... Arguments>
  void launch(Kernel kernel, Arguments... arguments) const {
    if (units == 0) return;
    const CudaTable<Plan> table(plans);
    const auto blocks = static_cast<unsigned>(std::min<int64_t>((units + kWarps - 1) / kWarps, kBlocks));
    kernel<<<blocks, kThreads, 0, current_cuda_stream()>>>(table.data(), static_cast<int>(plans.size()), static_cast<uint32_t>(units), arguments...);
  }
};

// The fill of each channel in the output type, repeated to 8 bytes.
std::vector<unsigned long long> fill_bits(const std::vector<Channel>& channels, DType dtype) {
  std::vector<unsigned long long> bits;
  for (const Channel& channel : channels) {
    for_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T value = saturate<T>(channel.fill);
      unsigned long long word = 0;
      for (size_t at = 0; at < 8; at += sizeof(T)) std::memcpy(reinterpret_cast<char*>(&word) + at, &value, sizeof(T));
      bits.push_back(word);
    });
  }
  return bits;
}

void launch_general(const std::vector<Slice>& general, const std::vector<Channel>& channels, DType in, DType out) {
  if (general.empty()) return;
  int64_t most = 0;
  for (const Slice& slice : general) most = std::max(most, slice.volume());
  const CudaTable<Slice> slices(general);
  const CudaTable<Channel> table(channels);
  const int64_t count = static_cast<int64_t>(general.size());
  const dim3 grid = batch_grid(most, kThreads * kElementsPerThread, count);
  general_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(slices.data(), count, table.data(), in, out);
}

}  // namespace
}  // namespace slice_gpu

// One launch for each kind of slice in the batch, usually a single one.
void launch_slices(const std::string& op, const SliceBatch& batch, DType in, DType out) {
  using namespace slice_gpu;
  SliceWork copied, converted, moved[4], turned[3];
  std::vector<Slice> general;
  bool fills = false;
  const bool convertible = for_common_pair(in, out, [](auto, auto) {});
  for (const Slice& slice : batch.slices) {
    if (slice.volume() == 0) continue;
    Plan plan;
    int64_t item = 0;
    const Kind kind = make_plan(slice, item_bytes(in), item_bytes(out), item, plan);
    const int power = item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : 3;
    SliceWork& work = kind == Kind::copy ? copied : kind == Kind::planes ? turned[power] : slice.copies ? moved[power] : converted;
    fills = fills || (slice.copies && slice.filled());
    if (kind == Kind::general || !(slice.copies || convertible) || !work.has_room(plan)) general.push_back(slice);
    else work.add(plan);
  }
  const CudaTable<unsigned long long> bits(fills ? fill_bits(batch.channels, out) : std::vector<unsigned long long>());
  copied.launch(copy_gpu, bits.data(), static_cast<int>(item_bytes(out)));
  moved[0].launch(rows_gpu<Move<uint8_t>>, Move<uint8_t>{bits.data()});
  moved[1].launch(rows_gpu<Move<uint16_t>>, Move<uint16_t>{bits.data()});
  moved[2].launch(rows_gpu<Move<uint32_t>>, Move<uint32_t>{bits.data()});
  moved[3].launch(rows_gpu<Move<unsigned long long>>, Move<unsigned long long>{bits.data()});
  turned[0].launch(planes_gpu<Move<uint8_t>>, Move<uint8_t>{bits.data()});
  turned[1].launch(planes_gpu<Move<uint16_t>>, Move<uint16_t>{bits.data()});
  turned[2].launch(planes_gpu<Move<uint32_t>>, Move<uint32_t>{bits.data()});
  if (converted.units > 0) {
    const CudaTable<Channel> channels(batch.channels);
    for_common_pair(in, out, [&](auto in_tag, auto out_tag) {
      using F = Convert<typename decltype(in_tag)::type, typename decltype(out_tag)::type>;
      converted.launch(rows_gpu<F>, F{channels.data()});
    });
  }
  launch_general(general, batch.channels, in, out);
  check_launch(op.c_str());
}

}  // namespace ndd
