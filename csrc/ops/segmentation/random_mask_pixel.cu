// SPDX-License-Identifier: Apache-2.0
// segmentation.random_mask_pixel: the coordinates of a pixel drawn from all, or from those of the foreground.
#include <algorithm>
#include <vector>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/random/random.h"
#include "ndd/simd.h"
#include "ops/random/random_window.h"

namespace ndd::random_mask_pixel_kernels {
namespace {

// The foreground rule: elements above a threshold, or equal to a value.
struct Foreground {
  // any: all pixels count; by_value: the element must equal `value`, not exceed `threshold`.
  bool any, by_value;
  float threshold;
  int64_t value;

  template <class T>
  NDD_HD bool holds(T element) const {
    // Integers beyond 2^53 are not told apart.
    if (by_value) return static_cast<double>(element) == static_cast<double>(value);
    if constexpr (sizeof(T) >= 4 && !std::is_same_v<T, float>) return static_cast<double>(element) > static_cast<double>(threshold);
    else return static_cast<float>(element) > threshold;
  }
};

constexpr int64_t kBlock = 4096;  // pixels that are counted together

// A VGA mask of uint8 takes 20 us, one of int32 80.
template <class T>
int32_t count_block(const T* data, int64_t n, const Foreground& foreground) {
  int32_t count = 0;
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T* __restrict from = data;
    const Foreground rule = foreground;
    const int32_t length = static_cast<int32_t>(n);
    int32_t sum = 0;
    for (int32_t i = 0; i < length; ++i) sum += rule.holds(from[i]);
    count = sum;
  });
  return count;
}

// Draws the index of a pixel: counts the foreground in blocks, draws a rank, and searches only its block. Without foreground it is any pixel.
template <class T>
int64_t draw(const T* data, int64_t volume, const Foreground& foreground, Philox& stream) {
  using random_window_detail::below;
  if (!foreground.any) {
    std::vector<int32_t> counts;
    int64_t total = 0;
    for (int64_t first = 0; first < volume; first += kBlock)
      total += counts.emplace_back(count_block(data + first, std::min(kBlock, volume - first), foreground));
    if (total > 0) {
      // The pixel of this rank: skip whole blocks by their counts, then walk through the block that holds it.
      int64_t left = below(stream.uniform_double(), total), first = 0;
      for (size_t k = 0; left >= counts[k]; ++k, first += kBlock) left -= counts[k];
      for (int64_t i = first;; ++i)
        if (foreground.holds(data[i]) && left-- == 0) return i;
    }
  }
  return below(stream.uniform_double(), volume);
}

NDD_HD void write_coordinates(int64_t pixel, const int64_t* shape, int64_t ndim, int64_t* out) {
  for (int64_t d = ndim - 1; d >= 0; --d) {
    out[d] = pixel % shape[d];
    pixel /= shape[d];
  }
}

#ifdef __CUDACC__
constexpr int kThreads = 1024;

struct PixelRun {
  const void* data;
  int64_t volume, shape;  // shape: where its extents begin
  Foreground foreground;
  Philox stream;
};

// A block for each sample, which reads the mask once to count and on average half of it again: bound by the latency of one block's reads.
__global__ void __launch_bounds__(kThreads) draw_gpu(const __grid_constant__ TableRows<PixelRun> runs,
                                                     const __grid_constant__ TableRows<int64_t> shapes, int64_t ndim, DType dtype, int64_t* out) {
  const PixelRun run = runs[blockIdx.x];
  Philox stream = run.stream;
  __shared__ int64_t found;
  __shared__ int32_t warps[kThreads / 32];
  int64_t total = 0, wanted = 0;
  // Pass 0 counts the foreground, and thread by thread the same rank is drawn; pass 1 stops at the row of pixels that holds this rank.
  for (int pass = run.foreground.any ? 2 : 0; pass < 2; ++pass) {
    int64_t before = 0;
    for (int64_t first = 0; first < run.volume && (pass == 0 || before <= wanted); first += kThreads) {
      const int64_t i = first + threadIdx.x;
      bool holds = false;
      if (i < run.volume)
        for_dtype(dtype, [&](auto tag) { holds = run.foreground.holds(static_cast<const typename decltype(tag)::type*>(run.data)[i]); });
      // A barrier for all threads: the loop's condition is the same for all of them.
      const int32_t here = __syncthreads_count(holds);
      if (pass == 1 && wanted < before + here) {  // the same for all threads
        const uint32_t ballot = __ballot_sync(0xFFFFFFFFu, holds);
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = __popc(ballot);
        __syncthreads();
        // The pixels of the foreground before this one: in the rows before, in this warp, and in the warps before it.
        int64_t rank = before + __popc(ballot & ((1u << threadIdx.x % 32) - 1));
        for (uint32_t w = 0; w < threadIdx.x / 32; ++w) rank += warps[w];
        if (holds && rank == wanted) found = i;
        __syncthreads();
        before += here;
        break;
      }
      before += here;
    }
    if (pass == 0) {
      total = before;
      if (total == 0) break;
      wanted = random_window_detail::below(stream.uniform_double(), total);
    }
  }
  // `found` was written before the barrier.
  if (threadIdx.x != 0) return;
  const int64_t pixel = total > 0 ? found : random_window_detail::below(stream.uniform_double(), run.volume);
  write_coordinates(pixel, shapes.data() + run.shape, ndim, out + blockIdx.x * ndim);
}
#endif

void random_mask_pixel(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& foreground, const MaybeTensor& threshold,
                       const MaybeTensor& value, const Tensor& words, const Tensor& output, const MaybeTensor&) {
  const std::string op = "segmentation.random_mask_pixel";
  const Samples in(input, input_shapes);
  const int64_t* drawn = drawn_words(op, words);
  const Args<int64_t> wanted(foreground);
  const auto thresholds = threshold ? std::optional<Args<float>>(*threshold) : std::nullopt;
  const auto values = value ? std::optional<Args<int64_t>>(*value) : std::nullopt;
  const auto rule = [=](int64_t i) {
    return Foreground{wanted(i) == 0, values.has_value(), thresholds ? (*thresholds)(i) : 0.0f, values ? (*values)(i) : 0};
  };
  if (output.dtype() != DType::int64 || !output.is_contiguous() || output.is_cuda() != input.is_cuda() || output.numel() != in.size() * in.ndim())
    fail(Error::Value, op, ": the output must be int64, with ", in.ndim(), " coordinates for each of ", in.size(), " samples");
  // An empty mask has no pixel to draw.
  for (int64_t i = 0; i < in.size(); ++i)
    if (in.volume(i) == 0) fail(op, ": sample ", i, " has no pixel");
#ifdef __CUDACC__
  if (input.is_cuda()) {
    if (in.size() == 0 || output.numel() == 0) return;
    std::vector<PixelRun> runs;
    std::vector<int64_t> shapes;
    for (int64_t i = 0; i < in.size(); ++i) {
      runs.push_back({in.data(i), in.volume(i), static_cast<int64_t>(shapes.size()), rule(i), Philox(drawn, i)});
      shapes.insert(shapes.end(), in.shape(i), in.shape(i) + in.ndim());
    }
    const KernelTable<PixelRun> table(runs);
    const KernelTable<int64_t> extents(shapes);
    draw_gpu<<<static_cast<unsigned>(in.size()), kThreads, 0, current_cuda_stream()>>>(table.rows(), extents.rows(), in.ndim(), in.dtype(),
                                                                                       static_cast<int64_t*>(output.data_ptr()));
    return check_launch(op.c_str());
  }
#endif
  launch_cpu(op, in.size(), 0.1 * in.mean_volume(), {words}, [=, out = Tensor(output)](int64_t i) {
    Philox stream(drawn, i);
    int64_t pixel = 0;
    for_dtype(in.dtype(),
              [&](auto tag) { pixel = draw(static_cast<const typename decltype(tag)::type*>(in.data(i)), in.volume(i), rule(i), stream); });
    write_coordinates(pixel, in.shape(i), in.ndim(), static_cast<int64_t*>(out.data_ptr()) + i * in.ndim());
  });
}

}  // namespace
}  // namespace ndd::random_mask_pixel_kernels
NDD_KERNELS(segmentation_random_mask_pixel, ndd::random_mask_pixel_kernels::random_mask_pixel)
