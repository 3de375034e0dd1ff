// SPDX-License-Identifier: Apache-2.0
// yuv_to_rgb on CUDA: a thread converts eight pixels of a row. Frames as NVDEC writes them, with aligned rows and blue and red samples alternately, are
// read by one load for luma and one for each row of chroma, and written by three stores; all other frames go sample by sample.
#include "ops/color/yuv_to_rgb.h"

#include "ndd/cuda.h"
#include "ndd/kernel.h"

namespace ndd::yuv {
namespace {

constexpr int kPixels = 8;  // of a thread, side by side
constexpr int kColumns = 32, kRows = 4;
constexpr int kMaxBlocks = 65535;

template <class T>
struct alignas(kPixels * sizeof(T)) Samples8 {
  T at[kPixels];
};

struct alignas(8) Bytes8 {
  uint32_t word[2];
};

template <class T>
__device__ Samples8<T> load8(const T* from) {
  return *reinterpret_cast<const Samples8<T>*>(from);
}

// 24 bytes, eight at a time.
__device__ void store8(const Rgb* pixels, uint8_t* out) {
  const auto byte = [&](int k) -> uint32_t {
    const Rgb& pixel = pixels[k / 3];
    return k % 3 == 0 ? pixel.r : k % 3 == 1 ? pixel.g : pixel.b;
  };
#pragma unroll
  for (int part = 0; part < 3; ++part) {
    Bytes8 bytes;
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const int k = 8 * part + 4 * w;
      bytes.word[w] = byte(k) | byte(k + 1) << 8 | byte(k + 2) << 16 | byte(k + 3) << 24;
    }
    reinterpret_cast<Bytes8*>(out)[part] = bytes;
  }
}

// Whether there is convert8: for the formats in which NVDEC writes nearly all videos, 8 bits and more bits with chroma of half size.
template <class T, Rule rule>
constexpr bool kHasConvert8 = rule == Rule::repeated || (rule == Rule::stepped && sizeof(T) == 2);

// Eight pixels of a frame whose rows are aligned and whose blue and red samples lie alternately.
template <class T, Rule rule>
__device__ void convert8(const Frame& f, int32_t row, int32_t x) {
  const Samples8<T> luma = load8(row_of<T>(f.luma, row) + x);
  Rgb pixels[kPixels];
  if constexpr (rule == Rule::stepped) {
    const Taps taps = find_row_taps(f, row);
    // Blue samples lie at even places and red ones at odd places; both have the same weights.
    int32_t sums[kPixels];
#pragma unroll
    for (int k = 0; k < kPixels; ++k) sums[k] = 1 << 18;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      // All threads of a warp have the same row, so they leave out the same loads.
      if (taps.weight[j] == 0) continue;
      const Samples8<T> chroma = load8(row_of<T>(f.blue, clamp_index(taps.first + j, f.chroma_height)) + x);
#pragma unroll
      for (int k = 0; k < kPixels; ++k) sums[k] += taps.weight[j] * sample_of(f, chroma.at[k]);
    }
#pragma unroll
    for (int k = 0; k < kPixels; k += 2) {
      const Tint tint = tint_stepped(f, level(sums[k] >> 19), level(sums[k + 1] >> 19));
      pixels[k] = pixel_stepped(f, sample_of(f, luma.at[k]), tint);
      pixels[k + 1] = pixel_stepped(f, sample_of(f, luma.at[k + 1]), tint);
    }
  } else {
    const Samples8<T> chroma = load8(row_of<T>(f.blue, f.chroma_height == f.height ? row : row / 2) + x);
#pragma unroll
    for (int k = 0; k < kPixels; k += 2) {
      const Tint tint = tint_repeated(f, chroma.at[k], chroma.at[k + 1]);
      pixels[k] = pixel_repeated(f, luma.at[k], tint);
      pixels[k + 1] = pixel_repeated(f, luma.at[k + 1], tint);
    }
  }
  store8(pixels, f.out + (int64_t{row} * f.width + x) * 3);
}

template <class T, Rule rule, bool aligned>
__global__ void __launch_bounds__(kColumns* kRows) convert_gpu(const __grid_constant__ Frame frame) {
  const int32_t x = static_cast<int32_t>(blockIdx.x * kColumns + threadIdx.x) * kPixels;
  if (x >= frame.width) return;
  for (int32_t row = static_cast<int32_t>(blockIdx.y * kRows + threadIdx.y); row < frame.height; row += static_cast<int32_t>(gridDim.y * kRows)) {
    if constexpr (aligned) convert8<T, rule>(frame, row, x);
    else convert_pixels<T, rule>(frame, row, x, min(x + kPixels, frame.width));
  }
}

bool is_aligned(const Plane& plane, size_t bytes, int64_t item) {
  return reinterpret_cast<uintptr_t>(plane.data) % bytes == 0 && plane.stride * item % static_cast<int64_t>(bytes) == 0;
}

// Whether convert8 can read and write the frame.
bool is_aligned(const Frame& f, int64_t item) {
  const size_t bytes = static_cast<size_t>(kPixels * item);
  const bool alternate = static_cast<const char*>(f.blue.data) + item == f.red.data && f.blue.stride == f.red.stride && f.step == 2;
  return f.width % kPixels == 0 && reinterpret_cast<uintptr_t>(f.out) % sizeof(Bytes8) == 0 && alternate && is_aligned(f.luma, bytes, item) &&
         is_aligned(f.blue, bytes, item);
}

void yuv_to_rgb_cuda(const Tensor& luma, const Tensor& blue, const Tensor& red, int64_t bits, int64_t matrix, bool full_range, const Tensor& output) {
  const Frame frame = frame_of(luma, blue, red, bits, matrix, full_range, output);
  const int32_t groups = (frame.width + kPixels - 1) / kPixels;
  const dim3 grid(static_cast<unsigned>((groups + kColumns - 1) / kColumns),
                  static_cast<unsigned>(std::min((frame.height + kRows - 1) / kRows, kMaxBlocks)));
  with_types(luma.dtype(), frame.rule, [&](auto zero, auto rule) {
    using T = decltype(zero);
    constexpr Rule kRule = decltype(rule)::value;
    // Decided for the whole frame, because a branch for each thread would keep both bodies' registers.
    auto* kernel = convert_gpu<T, kRule, false>;
    if constexpr (kHasConvert8<T, kRule>) kernel = is_aligned(frame, sizeof(T)) ? convert_gpu<T, kRule, true> : kernel;
    kernel<<<grid, dim3(kColumns, kRows), 0, current_cuda_stream()>>>(frame);
  });
  check_launch("yuv_to_rgb");
}

}  // namespace
}  // namespace ndd::yuv
NDD_KERNEL(yuv_to_rgb, CUDA, ndd::yuv::yuv_to_rgb_cuda)
