// SPDX-License-Identifier: Apache-2.0
// CUDA side of the color matrix driver. A warp takes tiles of 128 pixels, a thread 4 neighboring pixels of them. Memory is accessed in rows of 4
// elements per thread by neighboring threads (4 bytes for uint8, 16 for float32), and three channels are exchanged through shared memory: if each
// thread accessed its own 12 elements, every 32-byte sector would be written two or three times. For uint8 this takes 18 wavefronts of the L1 cache
// for 768 bytes, out of a budget of 37.
#include "ndd/color/matrix.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ndd/color/pixels.cuh"
#include "ndd/cuda.h"
#include "ndd/dtypes.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/elementwise/saturate.h"
#include "ndd/elementwise/vectors.cuh"

namespace ndd::color_matrix_detail {

// --- Bytes of three channels, by ndd/color/pixels.cuh ---------------------------------------------------

// In fixed point.
template <int kOut>
struct ByteMatrix {
  FixedMatrix fixed;

  __device__ __forceinline__ void operator()(int64_t, const uint32_t (&in)[3], uint32_t (&out)[kOut]) const {
    pixels::map_each(in, out, [&](const uint32_t (&rgb)[3], uint32_t (&level)[kOut]) {
      const auto red = static_cast<int32_t>(rgb[0]), green = static_cast<int32_t>(rgb[1]), blue = static_cast<int32_t>(rgb[2]);
#pragma unroll
      for (int c = 0; c < kOut; ++c) level[c] = static_cast<uint32_t>(fixed.level(c, red, green, blue));
    });
  }
};

// Copies of channels: byte selectors for each output word of four pixels. `low` selects among the first eight bytes, `high` among the result of `low`
// and the last four.
template <int kOut>
struct ByteCopies {
  uint32_t low[kOut], high[kOut];

  explicit ByteCopies(const int (&from)[3]) : low{}, high{} {
    for (int word = 0; word < kOut; ++word) {
      for (int b = 0; b < 4; ++b) {
        const int place = 4 * word + b, source = place / kOut * 3 + from[place % kOut];
        low[word] |= static_cast<uint32_t>(source < 8 ? source : 0) << 4 * b;
        // The last word is the second operand of the second permutation, whose selectors for it are 4 to 7.
        high[word] |= static_cast<uint32_t>(source < 8 ? b : source - 4) << 4 * b;
      }
    }
  }

  __device__ __forceinline__ void operator()(int64_t, const uint32_t (&in)[3], uint32_t (&out)[kOut]) const {
#pragma unroll
    for (int w = 0; w < kOut; ++w) out[w] = __byte_perm(__byte_perm(in[0], in[1], low[w]), in[2], high[w]);
  }
};

// Returns false, without launching, if the runs do not qualify. A matrix that only copies is exact in fixed point too.
template <int kOut>
bool launch_bytes(const std::vector<PointwiseRun<ColorMatrix>>& runs) {
  std::vector<pixels::PixelRun<ByteMatrix<kOut>>> mapped;
  std::vector<pixels::PixelRun<ByteCopies<kOut>>> copied;
  for (const auto& run : runs) {
    const auto* const in = static_cast<const uint8_t*>(run.in);
    auto* const out = static_cast<uint8_t*>(run.out);
    const FixedMatrix fixed(run.f);
    if (!fixed) return false;
    mapped.push_back({in, out, run.count / 3, {fixed}});
    int from[3] = {};
    if (run.f.template copies<3, kOut>(from)) copied.push_back({in, out, run.count / 3, ByteCopies<kOut>(from)});
  }
  // One launch for the batch: copies only if all matrices are.
  return copied.size() == runs.size() ? pixels::launch<3, kOut>(copied) : pixels::launch<3, kOut>(mapped);
}

// --- All types ------------------------------------------------------------------------------------------

constexpr int kThreads = 256, kWarp = 32, kPixels = 4, kTile = kWarp * kPixels;

// The fixed-point matrix is computed on the host: its rounding must be that of the CPU.
struct GpuRun : PointwiseRun<ColorMatrix> {
  FixedMatrix fixed;
  explicit GpuRun(const PointwiseRun<ColorMatrix>& run) : PointwiseRun<ColorMatrix>(run), fixed(run.f) {}
};

template <class T>
// Elements of an access of up to 16 bytes.
inline constexpr int kPart = sizeof(T) == 8 ? 2 : 4;

// Four elements in shared or read-only global memory, moved through registers in one access of up to 16 bytes, or two.
template <class T>
__device__ __forceinline__ void read_four(const T* from, T* to) {
  using Part = AlignedVector<T, kPart<T>>;
#pragma unroll
  for (int k = 0; k < 4; k += kPart<T>) {
    const typename Part::Word word = *reinterpret_cast<const typename Part::Word*>(from + k);
    Part part;
    memcpy(&part, &word, sizeof(Part));
#pragma unroll
    for (int e = 0; e < kPart<T>; ++e) to[k + e] = part.element[e];
  }
}

template <class T>
__device__ __forceinline__ void write_four(const T* from, T* to) {
  using Part = AlignedVector<T, kPart<T>>;
#pragma unroll
  for (int k = 0; k < 4; k += kPart<T>) {
    Part part;
#pragma unroll
    for (int e = 0; e < kPart<T>; ++e) part.element[e] = from[k + e];
    typename Part::Word word;
    memcpy(&word, &part, sizeof(Part));
    *reinterpret_cast<typename Part::Word*>(to + k) = word;
  }
}

// Stores to global memory.
template <class T>
__device__ __forceinline__ void store_four(const T* from, T* to) {
  using Part = AlignedVector<T, kPart<T>>;
#pragma unroll
  for (int k = 0; k < 4; k += kPart<T>) {
    Part part;
#pragma unroll
    for (int e = 0; e < kPart<T>; ++e) part.element[e] = from[k + e];
    Part::store(part, to + k);
  }
}

template <class T>
__device__ __forceinline__ void load_four(const T* from, bool aligned, T (&to)[4]) {
  if (aligned) {
    read_four(from, to);
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) to[k] = from[k];
  }
}

// A thread's pixels of a warp's tile, which has `count` elements, a multiple of four pixels.
template <int kChannels, class T>
__device__ __forceinline__ void load_pixels(const void* data, int64_t first, int count, void* shared, T (&pixels)[kPixels * kChannels]) {
  const T* const from = static_cast<const T*>(data) + first;
  T* const stage = static_cast<T*>(shared);
  // The output is aligned by the head of the run; the input may begin anywhere.
  const bool aligned = reinterpret_cast<uintptr_t>(from) % (kPart<T> * sizeof(T)) == 0;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  T rows[kChannels][4] = {};
#pragma unroll
  for (int r = 0; r < kChannels; ++r)
    if (r * kTile + lane * 4 < count) load_four(from + r * kTile + lane * 4, aligned, rows[r]);
  if constexpr (kChannels == 1) {
#pragma unroll
    for (int k = 0; k < 4; ++k) pixels[k] = rows[0][k];
  } else {
#pragma unroll
    // Neighboring threads have read neighboring rows; through shared memory each gets the elements of its own pixels.
    for (int r = 0; r < kChannels; ++r) write_four(rows[r], stage + r * kTile + lane * 4);
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kChannels; ++r) read_four(stage + lane * kPixels * kChannels + r * 4, pixels + r * 4);
    __syncwarp();
  }
}

// The same, to aligned memory.
template <int kChannels, class T>
__device__ __forceinline__ void store_pixels(const T (&pixels)[kPixels * kChannels], void* data, int64_t first, int count, void* shared) {
  T *const to = static_cast<T*>(data) + first, *const stage = static_cast<T*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if constexpr (kChannels == 1) {
    if (lane * 4 < count) store_four(pixels, to + lane * 4);
  } else {
#pragma unroll
    for (int r = 0; r < kChannels; ++r) write_four(pixels + r * 4, stage + lane * kPixels * kChannels + r * 4);
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kChannels; ++r)
      if (r * kTile + lane * 4 < count) {
        T four[4];
        read_four(stage + r * kTile + lane * 4, four);
        store_four(four, to + r * kTile + lane * 4);
      }
    // The next tile overwrites the stage.
    __syncwarp();
  }
}

template <int kIn, int kOut, class T>
__device__ __forceinline__ void choose_channels(const int (&from)[kOut], const T (&pixels)[kPixels * kIn], T (&mapped)[kPixels * kOut]) {
#pragma unroll
  for (int p = 0; p < kPixels; ++p) {
#pragma unroll
    for (int c = 0; c < kOut; ++c) {
      // Selected by the bits of the index: a chain of comparisons would make the compiler build a table in memory.
      const T low = kIn > 1 && (from[c] & 1) ? pixels[p * kIn + (kIn > 1)] : pixels[p * kIn];
      // The places in brackets exist for every kIn: the compiler sees them even where the condition is never true.
      mapped[p * kOut + c] = kIn > 2 && (from[c] & 2) ? pixels[p * kIn + (kIn > 2 ? 2 : 0)] : low;
    }
  }
}

// A single pixel at the ends of a run.
template <int kIn, int kOut>
__device__ void run_pixel(const GpuRun& run, const int (&from)[kOut], bool copies, bool bytes, DType in, DType out, int64_t i) {
  if (copies) {
#pragma unroll
    for (int c = 0; c < kOut; ++c) copy_element(run.in, kIn * i + from[c], run.out, kOut * i + c, in);
  } else if (bytes) {
    run.fixed.template apply<kOut>(static_cast<const uint8_t*>(run.in) + kIn * i, static_cast<uint8_t*>(run.out) + kOut * i);
  } else {
    float pixel[kIn], mapped[kOut];
    for (int c = 0; c < kIn; ++c) pixel[c] = load_element(run.in, in, kIn * i + c);
    run.f.template apply<kIn, kOut>(pixel, mapped);
    for (int c = 0; c < kOut; ++c) store_element(mapped[c], run.out, out, kOut * i + c);
  }
}

template <int kIn, int kOut>
__global__ void __launch_bounds__(kThreads, 3) run_gpu(const __grid_constant__ TableRows<GpuRun> runs, int64_t count, DType in, DType out) {
  __shared__ uint4 shared[kThreads / kWarp][kTile * 3 * sizeof(uint64_t) / sizeof(uint4)];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  void* const stage = shared[warp];
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const GpuRun& run = runs.data()[k];  // a copy would be indexed in local memory
    int from[kOut] = {};
    const bool copies = in == out && run.f.template copies<kIn, kOut>(from);
    // Three ways for a run: copies of channels of any type, bytes in fixed point, and everything else in floats.
    const bool bytes = kIn == 3 && in == DType::uint8 && out == DType::uint8 && run.fixed;
    // The number of pixels until the output is aligned: a gap of three elements is one pixel more than a vector of four elements, or two.
    const int64_t pixels = run.count / kIn, item = item_bytes(out), vector = min(4 * item, int64_t{16});
    const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(run.out) % static_cast<uintptr_t>(vector)) / item,
                  unit = vector / item;
    const int64_t head = min(pixels, kOut == 3 ? misaligned : (unit - misaligned) % unit);
    // Pixels in groups of four, which a thread takes; what is before and after them is computed one by one.
    const int64_t body = (pixels - head) / kPixels * kPixels;
    for (int64_t done = (int64_t{blockIdx.x} * (kThreads / kWarp) + warp) * kTile; done < body;
         done += int64_t{gridDim.x} * (kThreads / kWarp) * kTile) {
      const int64_t first = head + done;
      const int here = static_cast<int>(min(body - done, int64_t{kTile}));
      if (copies) {
        for_bytes(item, [&](auto tag) {
          using T = typename decltype(tag)::type;
          T pixel[kPixels * kIn], mapped[kPixels * kOut];
          load_pixels<kIn>(run.in, kIn * first, kIn * here, stage, pixel);
          choose_channels<kIn, kOut>(from, pixel, mapped);
          store_pixels<kOut>(mapped, run.out, kOut * first, kOut * here, stage);
        });
      } else if (bytes) {
        uint8_t pixel[kPixels * kIn], mapped[kPixels * kOut];
        load_pixels<kIn>(run.in, kIn * first, kIn * here, stage, pixel);
        if constexpr (kIn == 3) {
#pragma unroll
          for (int p = 0; p < kPixels; ++p) run.fixed.template apply<kOut>(pixel + p * kIn, mapped + p * kOut);
        }
        store_pixels<kOut>(mapped, run.out, kOut * first, kOut * here, stage);
      } else {
        float pixel[kPixels * kIn], result[kPixels * kOut];
        for_dtype(in, [&](auto tag) {
          using T = typename decltype(tag)::type;
          T raw[kPixels * kIn];
          load_pixels<kIn>(run.in, kIn * first, kIn * here, stage, raw);
#pragma unroll
          for (int e = 0; e < kPixels * kIn; ++e) pixel[e] = static_cast<float>(raw[e]);
        });
#pragma unroll
        for (int p = 0; p < kPixels; ++p) run.f.template apply<kIn, kOut>(pixel + p * kIn, result + p * kOut);
        for_dtype(out, [&](auto tag) {
          using T = typename decltype(tag)::type;
          T stored[kPixels * kOut];
#pragma unroll
          for (int e = 0; e < kPixels * kOut; ++e) stored[e] = saturate<T>(result[e]);
          store_pixels<kOut>(stored, run.out, kOut * first, kOut * here, stage);
        });
      }
    }
    // What no group of four pixels covers: those of the head, and up to three behind the body.
    if (blockIdx.x == 0 && threadIdx.x < pixels - body)
      run_pixel<kIn, kOut>(run, from, copies, bytes, in, out, threadIdx.x < head ? threadIdx.x : threadIdx.x + body);
  }
}

void launch_gpu(const std::string& op, const std::vector<PointwiseRun<ColorMatrix>>& runs, Channels channels, DType in, DType out) {
  int64_t most = 0;
  for (const auto& run : runs) most = std::max(most, run.count / channels.in);
  if (most == 0) return;
  if (channels.in == 3 && in == DType::uint8 && out == DType::uint8 && (channels.out == 1 ? launch_bytes<1>(runs) : launch_bytes<3>(runs)))
    return check_launch(op.c_str());
  const KernelTable<GpuRun> table(std::vector<GpuRun>(runs.begin(), runs.end()));
  const int64_t count = static_cast<int64_t>(runs.size()), block = kThreads * kPixels;
  const dim3 grid = batch_grid(most, block, count);
  const auto kernel = channels.in == 1 ? (channels.out == 1 ? run_gpu<1, 1> : run_gpu<1, 3>) : (channels.out == 1 ? run_gpu<3, 1> : run_gpu<3, 3>);
  kernel<<<grid, kThreads, 0, current_cuda_stream()>>>(table.rows(), count, in, out);
  check_launch(op.c_str());
}

}  // namespace ndd::color_matrix_detail
