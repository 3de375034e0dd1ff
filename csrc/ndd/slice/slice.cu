// SPDX-License-Identifier: Apache-2.0
// The slice driver on the GPU. A warp processes a tile of some rows at a time; all slices of a batch go in one launch, whatever their sizes, and a
// dense batch is a single slice. Rows that are only moved are copied in units of 16 bytes (copy.cuh). Other rows are read in 16-byte units into shared
// memory, where the order of elements costs nothing, and written in vectors of four elements. Planes are transposed in tiles (planes.cuh). The rest
// goes element by element.
#include "ndd/slice/slice.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/elementwise/vectors.cuh"
#include "ndd/slice/copy.cuh"
#include "ndd/slice/plan.h"
#include "ndd/slice/planes.cuh"
#include "ndd/slice/tiles.cuh"

namespace ndd {
namespace slice_gpu {
namespace {

constexpr int64_t kResidentBlocks = 4;  // of a multiprocessor

// What happens to an element: it is moved, as an item of a given size, or normalized and converted.
// A functor of rows_gpu has the element types, the row type of its table (`Row`), what it needs for each channel (`Values`), the fill, and the
// function itself.
template <class T>
struct Move {
  using In = T;
  using Out = T;
  using Row = unsigned long long;
  struct Values {};
  static constexpr bool moves = true;
  const unsigned long long* fills;  // the bits of each channel's fill, repeated to 8 bytes
  __device__ Values values(int64_t) const { return {}; }
  __device__ T fill(int64_t channel) const { return static_cast<T>(fills[channel]); }
  __device__ T operator()(T value, Values) const { return value; }
};

template <class From, class To>
struct Convert {
  using In = From;
  using Out = To;
  using Row = Channel;
  using Values = Channel;
  static constexpr bool moves = false;
  const Channel* channels;
  __device__ Channel values(int64_t channel) const { return channels[channel]; }
  __device__ To fill(int64_t channel) const { return saturate<To>(channels[channel].fill); }
  __device__ To operator()(From value, const Channel& channel) const { return saturate<To>(channel(static_cast<float>(value))); }
};

// Elements that a thread writes in one access: 16 bytes of float32. More than four would read pixels of three bytes with bank conflicts.
template <class Out>
constexpr int kTogether = sizeof(Out) <= 4 ? 4 : 2;

// Writes value(0) to value(count - 1), in vectors where these are complete: word(at) makes one. Thirteen kernels have several such loops, so each is
// unrolled no further than pays off: other warps hide the latency.
template <int unrolled, class Out, class Word, class Value>
__device__ void write_words(Out* to, int count, int lane, Word word, Value value) {
  constexpr int kPer = kTogether<Out>;
  using Vector = AlignedVector<Out, kPer>;
  // The elements before the first aligned vector and after the last whole one are written one by one.
  const int before = static_cast<int>(reinterpret_cast<uintptr_t>(to) % sizeof(Vector) / sizeof(Out)), head = min((kPer - before) % kPer, count);
  const int words = (count - head) / kPer, single = count - words * kPer;
  auto* const vectors = reinterpret_cast<Vector*>(to + head);
#pragma unroll unrolled
  for (int w = lane; w < words; w += kLane) Vector::store(word(head + w * kPer), vectors + w);
#pragma unroll 1
  for (int i = lane; i < single; i += kLane) {
    // The first `head` elements lie in front of the aligned vectors, the others follow them.
    const int e = i < head ? i : words * kPer + i;
    to[e] = value(e);
  }
}

template <int unrolled, class Out, class Value>
__device__ void write_run(Out* to, int count, int lane, Value value) {
  constexpr int kPer = kTogether<Out>;
  const auto word = [&](int at) {
    AlignedVector<Out, kPer> word;
#pragma unroll
    for (int k = 0; k < kPer; ++k) word.element[k] = value(at + k);
    return word;
  };
  write_words<unrolled>(to, count, lane, word, value);
}

// Writes the same value everywhere, 16 bytes at a time.
template <class Out>
__device__ void write_repeated(Out* to, int count, int lane, Out value) {
  constexpr int kPer = 16 / sizeof(Out);
  using Vector = AlignedVector<Out, kPer>;
  Vector pattern;
#pragma unroll
  for (int k = 0; k < kPer; ++k) pattern.element[k] = value;
  // As in write_words().
  const int before = static_cast<int>(reinterpret_cast<uintptr_t>(to) % sizeof(Vector) / sizeof(Out)), head = min((kPer - before) % kPer, count);
  const int vectors = (count - head) / kPer, single = count - vectors * kPer;
#pragma unroll 1
  for (int v = lane; v < vectors; v += kLane) Vector::store(pattern, to + head + v * kPer);
#pragma unroll 1
  for (int i = lane; i < single; i += kLane) to[i < head ? i : vectors * kPer + i] = value;
}

// Reads a tile's rows into the stage, in aligned units of 16 bytes: each run of bytes keeps its position within 16. All rows are read together, for
// the reason given at copy_gpu.
template <int item>
__device__ void stage_rows(const Tile& tile, uint4* stage, int lane) {
  const int first = tile.pixel_begin, step = static_cast<int>(tile.in_step), runs = tile.run == 0 ? 1 : tile.pixel;
  const int shown = tile.end - tile.begin, span = abs(step) * (shown - 1) + (tile.run == 0 ? tile.pixel_end - first : 1) * item;
  const int units = (tile.run == 0 ? tile.row_bytes : tile.run) / 16, total = tile.rows * runs * units;
  // Multiplications in place of divisions by numbers that all lanes share.
  const uint32_t inverse = inverse_of(units), inverse_runs = inverse_of(runs);
  const int64_t row_in = tile.row_in;
  // The lowest address that is read of the first row: with a negative step, that of its last pixel.
  const char* const start = tile.in + static_cast<int64_t>(tile.begin) * step + (step < 0 ? static_cast<int64_t>(shown - 1) * step : 0) +
                            (tile.run == 0 ? first * item : 0);
  if (runs == 1 && shown > 0 && units > 1 && all_readable(tile, start, 16 * units, 16)) {
#pragma unroll 1
    for (int from = lane; from < total; from += kInFlight * kLane) {
      uint4 value[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        // Lanes beyond the end read the last unit again, so no branch lies between the loads.
        const int u = min(from + k * kLane, total - 1), row = quotient(u, inverse);
        const char* const source = start + row * row_in;
        value[k] = load_vector(source - misalignment(source) + 16 * (u - row * units));
      }
#pragma unroll
      for (int k = 0; k < kInFlight; ++k)
        if (from + k * kLane < total) stage[from + k * kLane] = value[k];
    }
    return;
  }
#pragma unroll 1
  for (int u = lane; u < total; u += kLane) {
    const int run = units == 1 ? u : quotient(u, inverse), row = runs == 1 ? run : quotient(run, inverse_runs), c = run - row * runs;
    const char* const source = start + row * row_in + (runs == 1 ? 0 : c * tile.pixel_in);
    const int at = 16 * (u - run * units) - misalignment(source);
    const uint32_t wanted = tile.shown(row) > 0 && (runs == 1 || (c >= first && c < tile.pixel_end)) ? bits_within(at, 0, span) : 0u;
    if (wanted == 0) continue;
    // A whole unit is read only inside the readable range; at its ends, byte by byte what is wanted.
    if (source + at >= tile.low && source + at + 16 <= tile.high) stage[u] = load_vector(source + at);
    else stage[u] = load_bytes(source + at, wanted);
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
    // Whole rows take no comparison per element; with a step of 0 they need a single load as well.
    if (whole && step == 0) {
      write_repeated(to, count, lane, f(load(from), values));
    } else if (whole) {
      write_run<2>(to, count, lane, [&](int p) { return f(load(from + p * step), values); });
    } else {
      const int begin = tile.begin, last = c >= tile.pixel_begin && c < tile.pixel_end ? end : begin;
      const Out fill = f.fill(channel(c));
      write_run<1>(to, count, lane, [&](int p) { return p >= begin && p < last ? f(load(from + p * step), values) : fill; });
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
    if (!whole || tile.run != 0) return write_run<1>(to, count, lane, any);
    if constexpr (F::moves && sizeof(Out) == 1) {
      // Pixels of 3 bytes, as in a flip: the distances from the first byte of a word to the others depend only on its position within a pixel. Takes
      // 22 instructions per word instead of 29.
      const auto word = [&](int e) {
        const int p = pixel_of(e), c = e - 3 * p, at = zero + p * step + c, next = step - 3;
        return AlignedVector<Out, 4>{{load(at), load(c < 2 ? at + 1 : at + 1 + next), load(c < 1 ? at + 2 : at + 2 + next), load(at + 3 + next)}};
      };
      if (pixel == 3) return write_words<2>(to, count, lane, word, any);
    }
    const int skip = step - pixel * static_cast<int>(sizeof(In)), each = tile.channel_of_pixel;
    const int64_t first = tile.channel;
    write_run<1>(to, count, lane, [&](int e) {
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

// A warp takes a tile of rows of one slice: it reads their windows into its part of shared memory, and writes each row in the order of the
// output.
template <class F>
__global__ void __launch_bounds__(kThreads, 4)
    rows_gpu(const __grid_constant__ TableRows<Place> places, int count, const __grid_constant__ TableRows<Plan> plans, uint32_t units,
             const __grid_constant__ TableRows<typename F::Row> values) {
  constexpr int kItem = sizeof(typename F::In);
  using Out = typename F::Out;
  __shared__ uint4 stages[kWarps * kStageBytes / 16];
  __shared__ Tile tiles[kWarps];
  const F f{values.data()};
  const int lane = threadIdx.x % kLane;
  Tile& tile = tiles[threadIdx.x / kLane];
  uint4* const stage = stages + threadIdx.x / kLane * (kStageBytes / 16);
  for_each_tile(places, count, plans, units, tile, [&] {
    stage_rows<kItem>(tile, stage, lane);
    __syncwarp();
#pragma unroll 1
    for (int row = 0; row < tile.rows; ++row) {
      const int shown = tile.shown(row), step = static_cast<int>(tile.in_step), back = step < 0 ? (shown - 1) * step : 0, pixel = tile.pixel;
      const char* const low = tile.in + row * tile.row_in + static_cast<int64_t>(tile.begin) * step + back;  // the lowest address of the window
      char* const out = tile.out + row * tile.row_out;
      assume_global(out);
      // The first element of a pixel that is read.
      const int shift = tile.pixel_begin * kItem;
      const Staged<F> staged{f,
                             reinterpret_cast<const char*>(stage) + row * tile.row_bytes,
                             tile,
                             tile.begin + shown,
                             step,
                             pixel,
                             (tile.run == 0 ? misalignment(low + shift) - shift : 0) - (tile.begin * step + back),
                             static_cast<unsigned int>(reinterpret_cast<uintptr_t>(low)),
                             shown == tile.count && tile.pixel_begin == 0 && tile.pixel_end == pixel};
      // Chosen by the output alone: the order of elements in the stage costs nothing, but writes must be consecutive for the lanes of a warp.
      if (tile.out_step == sizeof(Out)) {
#pragma unroll 1
        for (int c = 0; c < pixel; ++c) staged.write_plane(reinterpret_cast<Out*>(out + c * tile.pixel_out), c, lane);
      } else if (pixel > 1 && tile.out_step == pixel * static_cast<int64_t>(sizeof(Out)) && tile.pixel_out == sizeof(Out)) {
        staged.write_pixels(reinterpret_cast<Out*>(out), lane);
      } else {
        staged.write_scattered(out, lane);
      }
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
    // The position along this axis, without a second division for the remainder.
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

// The slices of one kind, with their total number of units. Plans that agree are stored once: those of a batch of crops are a few hundred bytes
// instead of 120 KB, and travel in the parameters of the launch.
struct SliceWork {
  std::vector<Place> places;
  std::vector<Plan> plans;
  int64_t units = 0;

  bool has_room(const Plan& plan) const { return units + plan.units <= INT32_MAX; }
  void add(const Slice& slice, int64_t in_item, const Plan& plan) {
    // Mirrored and other images may alternate, so a few recent plans are compared.
    constexpr size_t kRecent = 4;
    size_t k = plans.size();
    while (k > 0 && plans.size() - k < kRecent && std::memcmp(&plans[k - 1], &plan, sizeof(Plan)) != 0) --k;
    if (k == 0 || plans.size() - k == kRecent) plans.push_back(plan), k = plans.size();
    places.push_back({static_cast<const char*>(slice.in) + slice.origin * in_item, static_cast<char*>(slice.out), static_cast<uint32_t>(k - 1),
                      static_cast<uint32_t>(units)});
    units += plan.units;
  }
  template <class Row>
  void launch(void (*kernel)(TableRows<Place>, int, TableRows<Plan>, uint32_t, TableRows<Row>), const KernelTable<Row>& values) const {
    if (units == 0) return;
    const KernelTable<Place> place_table(places);
    const KernelTable<Plan> plan_table(plans);
    const auto blocks = static_cast<unsigned>(std::min<int64_t>((units + kWarps - 1) / kWarps, kResidentBlocks * multiprocessors()));
    kernel<<<blocks, kThreads, 0, current_cuda_stream()>>>(place_table.rows(), static_cast<int>(places.size()), plan_table.rows(),
                                                           static_cast<uint32_t>(units), values.rows());
  }
};

// The fill of each channel in the output type, repeated to 8 bytes.
std::vector<unsigned long long> fill_bits(const std::vector<Channel>& channels, DType dtype) {
  std::vector<unsigned long long> bits;
  for (const Channel& channel : channels) {
    for_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      // The same bits whether the kernel moves one byte or eight: the fill repeats.
      const T value = saturate<T>(channel.fill);
      unsigned long long word = 0;
      for (size_t at = 0; at < 8; at += sizeof(T)) std::memcpy(reinterpret_cast<char*>(&word) + at, &value, sizeof(T));
      bits.push_back(word);
    });
  }
  return bits;
}

// Stores once the channels that neighboring slices have in common, usually the same for the whole batch.
void share_channels(std::vector<Slice>& slices, std::vector<Channel>& channels) {
  if (channels.empty()) return;
  std::vector<Channel> kept;
  int64_t before = 0;  // the number of channels of the slice before
  for (Slice& slice : slices) {
    const int64_t count = slice.channel < 0 ? 1 : slice.extent[slice.channel];
    const Channel* const own = channels.data() + slice.channels;
    if (count != before || std::memcmp(own, kept.data() + kept.size() - count, count * sizeof(Channel)) != 0)
      kept.insert(kept.end(), own, own + count);
    slice.channels = static_cast<int64_t>(kept.size()) - count;
    before = count;
  }
  channels = std::move(kept);
}

bool same_shape(const Slice& a, const Slice& b) {
  const auto same = [&](const int64_t* x, const int64_t* y) { return std::equal(x, x + a.ndim, y); };
  return a.ndim == b.ndim && a.channel == b.channel && a.copies == b.copies && a.channels == b.channels && same(a.extent, b.extent) &&
         same(a.stride, b.stride) && same(a.out_stride, b.out_stride) && same(a.begin, b.begin) && same(a.end, b.end);
}

// Slices that repeat at equal distances, `period` for each sample, as those of a dense batch do, become slices of the whole batch, with an axis in
// front. Returns false, and changes nothing, if they do not.
bool merge_samples(std::vector<Slice>& slices, size_t period, int64_t in_item, int64_t out_item) {
  const size_t samples = slices.size() / period;
  if (samples < 2 || slices.size() % period != 0) return false;
  const auto source = [&](const Slice& s) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(s.in)) + s.origin * in_item; };
  const auto target = [&](const Slice& s) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(s.out)); };
  for (size_t k = 0; k < slices.size(); ++k) {
    const Slice &first = slices[k % period], &second = slices[k % period + period];
    const auto sample = static_cast<int64_t>(k / period);
    const int64_t in_step = source(second) - source(first), out_step = target(second) - target(first);
    if (first.ndim == kSliceDims || in_step % in_item != 0 || out_step % out_item != 0 || !same_shape(first, slices[k]) ||
        source(slices[k]) != source(first) + sample * in_step || target(slices[k]) != target(first) + sample * out_step)
      return false;
  }
  std::vector<Slice> merged;
  for (size_t p = 0; p < period; ++p) {
    const Slice &first = slices[p], &second = slices[p + period];
    Slice slice = first;
    slice.ndim = 0;
    slice.add_axis(static_cast<int64_t>(samples), static_cast<int64_t>(samples), (source(second) - source(first)) / in_item, 0, false);
    slice.origin = first.origin;
    slice.out_stride[0] = (target(second) - target(first)) / out_item;
    const auto behind = [&](const int64_t* from, int64_t* to) { std::copy(from, from + first.ndim, to + 1); };
    behind(first.extent, slice.extent);
    behind(first.stride, slice.stride);
    behind(first.out_stride, slice.out_stride);
    behind(first.begin, slice.begin);
    behind(first.end, slice.end);
    slice.ndim = first.ndim + 1;
    if (slice.channel >= 0) ++slice.channel;
    slice.batched = true;
    merged.push_back(slice);
  }
  slices = std::move(merged);
  return true;
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
void launch_slices(const std::string& op, SliceBatch batch, DType in, DType out) {
  using namespace slice_gpu;
  constexpr size_t kMaxPeriod = 9;  // inputs of cat and stack, boxes of an image with a border on all sides
  // By kernel: contiguous rows, normalized or converted elements, moved items by their size, and planes whose axes are exchanged.
  SliceWork copied, converted, moved[4], turned;
  std::vector<Slice> general;
  auto& [slices, channels] = batch;
  slices.erase(std::remove_if(slices.begin(), slices.end(), [](const Slice& slice) { return slice.volume() <= 0; }), slices.end());
  share_channels(slices, channels);
  // A dense batch becomes one slice with another axis: one row of parameters instead of one for each sample.
  for (size_t period = 1; period <= kMaxPeriod; ++period)
    if (merge_samples(slices, period, item_bytes(in), item_bytes(out))) break;
  bool fills = false;
  const bool convertible = for_common_pair(in, out, [](auto, auto) {});
  for (const Slice& slice : slices) {
    Plan plan;
    int64_t item = 0;
    const Kind kind = make_plan(slice, item_bytes(in), item_bytes(out), item, plan);
    // Items of 1, 2, 4 or 8 bytes are moved as one unsigned number.
    const int power = item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : 3;
    SliceWork& work = kind == Kind::copy ? copied : kind == Kind::planes ? turned : slice.copies ? moved[power] : converted;
    fills = fills || (slice.copies && slice.filled());
    // Other pairs of types have no kernel of their own: the general one finds out the types of each element.
    if (kind == Kind::general || !(slice.copies || convertible) || !work.has_room(plan)) general.push_back(slice);
    else work.add(slice, item_bytes(in), plan);
  }
  const KernelTable<unsigned long long> bits(fills ? fill_bits(channels, out) : std::vector<unsigned long long>());
  copied.launch(copy_gpu, bits);
  moved[0].launch(rows_gpu<Move<uint8_t>>, bits);
  moved[1].launch(rows_gpu<Move<uint16_t>>, bits);
  moved[2].launch(rows_gpu<Move<uint32_t>>, bits);
  moved[3].launch(rows_gpu<Move<unsigned long long>>, bits);
  turned.launch(planes_gpu, bits);
  if (converted.units > 0) {
    const KernelTable<Channel> table(channels);
    for_common_pair(in, out, [&](auto in_tag, auto out_tag) {
      converted.launch(rows_gpu<Convert<typename decltype(in_tag)::type, typename decltype(out_tag)::type>>, table);
    });
  }
  launch_general(general, channels, in, out);
  check_launch(op.c_str());
}

}  // namespace ndd
