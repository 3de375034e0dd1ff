// SPDX-License-Identifier: Apache-2.0
// noise.salt_and_pepper: replaces pixels or elements by one of two values. Word k of a sample's random stream decides about its pixel k, so the
// result does not depend on how pixels are distributed over threads or blocks.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ndd/kernel.h"
#include "ndd/line_vector.h"
#include "ndd/random/random.h"
#ifdef __CUDACC__
#include "ndd/color/pixels.cuh"
#include "ndd/launch_runs.cuh"
#endif

namespace ndd::salt_and_pepper_kernels {
namespace {

constexpr uint32_t kCertain = 1u << 30;  // a probability of 1, in 30 bits

// The upper 30 bits of a word as a number: salt below `salt`, pepper from there to `any`. Integers, so probabilities 0 and 1 are exact.
// A pixel becomes salt or pepper with the probability prob, and salt with salt_vs_pepper of that: `any` is prob and `salt` the product, both
// times 2^30.
struct Impulse {
  int32_t salt, any;
  NDD_HD uint8_t operator()(uint32_t word) const {
    const int32_t u = static_cast<int32_t>(word >> 2);
    return static_cast<uint8_t>((u < any ? 1 : 0) + (u < salt ? 1 : 0));  // 0: keep, 1: pepper, 2: salt
  }
};

// A sample is outer x channels x inner, and the channels of a pixel share a word. Elements are copied, so only their size matters.
struct Run {
  Philox stream;
  Impulse impulse;
  int64_t outer, channels, inner;
  // In the low bytes, as bits_of() stores them.
  uint64_t salt, pepper;  // the bits
  const void* in;
  void* out;
};

constexpr int64_t kRow = 1024;  // pixels: words and codes stay in the first-level cache

inline void classify(const Impulse& impulse, const uint32_t* words, uint8_t* codes) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const Impulse f = impulse;
    const uint32_t* __restrict src = words;
    uint8_t* __restrict dst = codes;
    for (int64_t k = 0; k < kRow; ++k) dst[k] = f(src[k]);
  });
}

// Three or four channels in one store: with three, the next pixel overwrites the fourth byte, so `repeated` has one byte more than is used.
// C is the number of channels if it is known, and 0 otherwise.
template <int C>
void repeat(const uint8_t* codes, int64_t n, int64_t channels, uint8_t* repeated) {
  for (int64_t k = 0; k < n; ++k) {
    if (C > 0) {
      const uint32_t four = codes[k] * 0x01010101u;
      std::memcpy(repeated + C * k, &four, 4);
    } else {
      for (int64_t c = 0; c < channels; ++c) *repeated++ = codes[k];
    }
  }
}

template <class Bits>
void select(const uint8_t* codes, const Bits* in, int64_t n, Bits salt_value, Bits pepper_value, Bits* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const uint8_t* __restrict code = codes;
    const Bits* __restrict src = in;
    Bits* __restrict dst = out;
    const Bits salt = salt_value, pepper = pepper_value;
    const int64_t count = n;
    for (int64_t e = 0; e < count; ++e) {
      // Both values are selected without branches, which the compiler turns into blends.
      const Bits impulse = code[e] == 2 ? salt : pepper;
      dst[e] = code[e] == 0 ? src[e] : impulse;
    }
  });
}

template <class Bits>
void run_cpu(const Run& run) {
  alignas(64) uint32_t words[kRow];
  alignas(64) uint8_t codes[kRow];
  LineVector<uint8_t> repeated(run.inner == 1 && run.channels > 1 ? kRow * run.channels + 1 : 0);
  const Bits *from = static_cast<const Bits*>(run.in), salt = static_cast<Bits>(run.salt), pepper = static_cast<Bits>(run.pepper);
  Bits* to = static_cast<Bits*>(run.out);
  const int64_t pixels = run.outer * run.inner;
  for (int64_t begin = 0; begin < pixels; begin += kRow) {
    const int64_t end = std::min(begin + kRow, pixels);
    // A block of Philox has four words, and rows begin at multiples of four pixels: the stream continues whatever the row.
    run.stream.fill(static_cast<uint32_t>(begin / 4), kRow / 4, words);
    classify(run.impulse, words, codes);
    // Interleaved channels: the codes are repeated for each channel, and the row is then selected like any other.
    if (run.inner == 1) {
      const uint8_t* each = codes;
      if (run.channels > 1) {
        const auto repeater = run.channels == 3 ? repeat<3> : run.channels == 4 ? repeat<4> : repeat<0>;
        repeater(codes, end - begin, run.channels, repeated.data());
        each = repeated.data();
      }
      select(each, from + begin * run.channels, (end - begin) * run.channels, salt, pepper, to + begin * run.channels);
      continue;
    }
    for (int64_t p = begin; p < end;) {  // to the end of a plane or of the row
      const int64_t plane = p / run.inner, within = p % run.inner, n = std::min(run.inner - within, end - p);
      for (int64_t c = 0; c < run.channels; ++c) {
        const int64_t offset = (plane * run.channels + c) * run.inner + within;
        select(codes + (p - begin), from + offset, n, salt, pepper, to + offset);
      }
      p += n;
    }
  }
}

#ifdef __CUDACC__
constexpr int kThreads = 256;

// Pixels of interleaved bytes. A block of Philox is four pixels: some 60 instructions for 24 bytes of an RGB image.
template <int kChannels>
struct ImpulseBytes {
  static constexpr bool kLong = true;
  Philox stream;
  Impulse impulse;
  uint32_t salt, pepper;

  __device__ __forceinline__ void operator()(int64_t pixel, const uint32_t (&in)[kChannels], uint32_t (&out)[kChannels]) const {
    const auto block = static_cast<uint32_t>(pixel >> 2), shift = static_cast<uint32_t>(pixel & 3);
    uint32_t words[8];
    compute(block, words);
    if (shift > 0) {  // the run does not begin at a multiple of 16 bytes, so its groups of four lie in two blocks
      compute(block + 1, words + 4);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        // By the bits of the shift: an index would put the words into local memory.
        // Shifts by 2 first, for places p and p + 1, then by 1 between them.
        const uint32_t even = shift & 2 ? words[p + 2] : words[p], odd = shift & 2 ? words[p + 3] : words[p + 1];
        words[p] = shift & 1 ? odd : even;
      }
    }
    uint32_t kept = 0, values = 0;  // a byte of each pixel
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const uint8_t code = impulse(words[p]);
      kept |= (code == 0 ? 0xFFu : 0u) << 8 * p;
      values |= (code == 0 ? 0u : code == 2 ? salt : pepper) << 8 * p;
    }
    // The pixel of each byte of a word.
    constexpr uint32_t kSelect[5][4] = {{}, {0x3210}, {}, {0x1000, 0x2211, 0x3332}, {0x0000, 0x1111, 0x2222, 0x3333}};
#pragma unroll
    for (int w = 0; w < kChannels; ++w)
      out[w] = (in[w] & __byte_perm(kept, 0, kSelect[kChannels][w])) | __byte_perm(values, 0, kSelect[kChannels][w]);
  }

 private:
  __device__ __forceinline__ void compute(uint32_t block, uint32_t* words) const {
    uint32_t four[4];
    stream.compute(block, four);
#pragma unroll
    for (int w = 0; w < 4; ++w) words[w] = four[w];
  }
};

// Returns false, without launching, if not all runs are interleaved with that number of channels.
template <int kChannels>
bool launch_bytes(const std::vector<Run>& runs) {
  std::vector<pixels::PixelRun<ImpulseBytes<kChannels>>> bytes;
  for (const Run& run : runs) {
    if (run.channels != kChannels || run.inner != 1) return false;
    bytes.push_back({static_cast<const uint8_t*>(run.in),
                     static_cast<uint8_t*>(run.out),
                     run.outer,
                     {run.stream, run.impulse, static_cast<uint32_t>(run.salt), static_cast<uint32_t>(run.pepper)}});
  }
  return pixels::launch<kChannels, kChannels>(bytes);
}

// Four pixels, a block of Philox, for each thread: 100 instructions for 24 bytes of an RGB image, a third of the bandwidth of an H200.
template <class Bits>
__global__ void run_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    assume_global(run.in, run.out);
    const Bits* in = static_cast<const Bits*>(run.in);
    Bits* out = static_cast<Bits*>(run.out);
    const int64_t pixels = run.outer * run.inner, stride = int64_t{gridDim.x} * kThreads * 4;
    for (int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4; begin < pixels; begin += stride) {
      uint32_t words[4];
      run.stream.compute(static_cast<uint32_t>(begin / 4), words);
      for (int64_t p = begin; p < begin + 4 && p < pixels; ++p) {
        const uint8_t code = run.impulse(words[p - begin]);
        const int64_t plane = run.inner == 1 ? p : p / run.inner, first = plane * run.channels * run.inner + (p - plane * run.inner);
        for (int64_t c = 0; c < run.channels; ++c) {
          const int64_t e = first + c * run.inner;
          out[e] = code == 0 ? in[e] : static_cast<Bits>(code == 2 ? run.salt : run.pepper);
        }
      }
    }
  }
}

void launch_gpu(const std::vector<Run>& runs, int64_t item_bytes) {
  const auto pixels_of = [](const Run& run) { return run.outer * run.inner; };
  if (std::all_of(runs.begin(), runs.end(), [&](const Run& run) { return pixels_of(run) == 0; })) return;
  // The number of channels is a template parameter of the kernel for bytes, and all samples must have it.
  if (item_bytes == 1 && (launch_bytes<3>(runs) || launch_bytes<1>(runs) || launch_bytes<4>(runs))) return check_launch("noise.salt_and_pepper");
  const auto kernel = item_bytes == 1   ? run_gpu<uint8_t>
                      : item_bytes == 2 ? run_gpu<uint16_t>
                      : item_bytes == 4 ? run_gpu<uint32_t>
                                        : run_gpu<uint64_t>;
  launch_runs("noise.salt_and_pepper", runs, pixels_of, kThreads * 4,
              [&](dim3 grid, const auto& rows, int64_t count) { kernel<<<grid, kThreads, 0, current_cuda_stream()>>>(rows, count); });
}
#endif

// A value as the type stores it: the kernels know the sizes of elements only.
uint64_t bits_of(double value, DType dtype) {
  uint64_t bits = 0;
  for_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T stored = saturate<T>(value);
    std::memcpy(&bits, &stored, sizeof(T));
  });
  return bits;
}

// The largest (1) or smallest (-1) value of a type; 1 and -1 of floating-point ones.
uint64_t extreme_bits(int sign, DType dtype) {
  return bits_of(is_floating_dtype(dtype) ? sign : dtype == DType::boolean ? (sign > 0 ? 1.0 : 0.0) : sign * INFINITY, dtype);
}

float probability(const Args<float>& argument, const char* name, int64_t i) {
  const float p = argument(i);
  if (!(p >= 0.0f && p <= 1.0f)) fail("noise.salt_and_pepper: ", name, " must be from 0 to 1, got ", p, " for sample ", i);
  return p;
}

// `channel_axis` is that of a sample whose elements share a word along it; -1 when every element has its own.
void salt_and_pepper(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& probs, const Tensor& salt_vs_pepper,
                     const MaybeTensor& salt_values, const MaybeTensor& pepper_values, int64_t channel_axis, const Tensor& words,
                     const Tensor& output, const MaybeTensor& output_shapes) {
  const std::string op = "noise.salt_and_pepper";
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same(op.c_str(), out, in);
  if (channel_axis >= in.ndim()) fail(Error::Value, op, ": the images have no axis ", channel_axis);
  const Args<float> prob(probs), share(salt_vs_pepper);
  const std::optional<Args<float>> salt = salt_values ? std::optional<Args<float>>(*salt_values) : std::nullopt;
  const std::optional<Args<float>> pepper = pepper_values ? std::optional<Args<float>>(*pepper_values) : std::nullopt;
  const int64_t* drawn = drawn_words(op, words);
  const auto make = [=](int64_t i) {
    // In double until they are rounded to integers, so salt never exceeds the whole.
    const double any = probability(prob, "prob", i), salted = any * probability(share, "salt_vs_pepper", i);
    const Impulse impulse{static_cast<int32_t>(std::llround(salted * kCertain)), static_cast<int32_t>(std::llround(any * kCertain))};
    Run run{Philox(drawn, i), impulse, in.volume(i), 1, 1, 0, 0, in.data(i), out.data(i)};
    if (channel_axis >= 0) {
      run.channels = in.shape(i)[channel_axis];
      for (int64_t d = channel_axis + 1; d < in.ndim(); ++d) run.inner *= in.shape(i)[d];
      // An empty sample has no pixels, and its channels could be 0.
      run.outer = run.channels * run.inner > 0 ? in.volume(i) / (run.channels * run.inner) : 0;
    }
    run.salt = salt ? bits_of((*salt)(i), in.dtype()) : extreme_bits(1, in.dtype());
    run.pepper = pepper ? bits_of((*pepper)(i), in.dtype()) : extreme_bits(-1, in.dtype());
    return run;
  };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<Run> runs;
    for (int64_t i = 0; i < in.size(); ++i) runs.push_back(make(i));
    return launch_gpu(runs, in.item_bytes());
  }
#endif
  launch_cpu(op, in.size(), 1.0 * in.mean_volume(), {words}, [=](int64_t i) {
    const Run run = make(i);
    // Elements are moved, not computed: one loop for each size serves all types.
    switch (in.item_bytes()) {
      case 1: return run_cpu<uint8_t>(run);
      case 2: return run_cpu<uint16_t>(run);
      case 4: return run_cpu<uint32_t>(run);
      default: return run_cpu<uint64_t>(run);
    }
  });
}

}  // namespace
}  // namespace ndd::salt_and_pepper_kernels
NDD_KERNELS(noise_salt_and_pepper, ndd::salt_and_pepper_kernels::salt_and_pepper)
