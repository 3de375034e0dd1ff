// SPDX-License-Identifier: Apache-2.0
// Pixels in the squares of a rotated grid become 0: those where the fractional parts of u = (x cos a - y sin a - shift_x) / tile and
// v = (x sin a + y cos a - shift_y) / tile are both less than ratio.
#include <cmath>
#include <cstring>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd::grid_mask_kernels {
namespace {

// Pixels of `inner` bytes in rows, and planes of rows.
struct GridMask {
  const char* in;
  char* out;
  int64_t planes, height, width, inner;
  float cosine, sine, shift_x, shift_y, ratio;  // in tiles

  // The terms of u and v that depend on the row only.
  NDD_HD void at_row(int64_t y, float& u, float& v) const {
    u = -sine * static_cast<float>(y) - shift_x;
    v = cosine * static_cast<float>(y) - shift_y;
  }

  // | and not ||: without a branch, the loop over a row vectorizes.
  NDD_HD bool kept(float u, float v, int32_t x) const {
    u += cosine * static_cast<float>(x);
    v += sine * static_cast<float>(x);
    return (u - std::floor(u) >= ratio) | (v - std::floor(v) >= ratio);
  }
};

// The grid of sample i, with lengths divided by the size of a tile.
GridMask mask_of(const Samples& in, const Samples& out, int64_t i, int64_t row_axis, int64_t tile, float ratio, float angle, float shift_x,
                 float shift_y) {
  if (tile <= 0) fail("grid_mask: sample ", i, ": Tile argument must be positive, got ", tile);
  const int64_t* shape = in.shape(i);
  GridMask mask{static_cast<const char*>(in.data(i)),
                static_cast<char*>(out.data(i)),
                1,
                shape[row_axis],
                shape[row_axis + 1],
                in.item_bytes(),
                0,
                0,
                0,
                0,
                ratio};
  for (int64_t d = 0; d < row_axis; ++d) mask.planes *= shape[d];
  for (int64_t d = row_axis + 2; d < in.ndim(); ++d) mask.inner *= shape[d];
  const auto size = static_cast<float>(tile);
  mask.cosine = std::cos(angle) / size;
  mask.sine = std::sin(angle) / size;
  mask.shift_x = shift_x / size;
  mask.shift_y = shift_y / size;
  return mask;
}

// Copies runs of kept pixels and clears the others.
void mask_row(const GridMask& mask, const uint8_t* kept, const char* src, char* dst) {
  for (int64_t x = 0; x < mask.width;) {
    // The run ends at the next pixel with the other decision.
    const uint8_t keep = kept[x];
    const auto* stop = static_cast<const uint8_t*>(std::memchr(kept + x, keep ^ 1, mask.width - x));
    const int64_t end = stop ? stop - kept : mask.width;
    if (keep) std::memcpy(dst + x * mask.inner, src + x * mask.inner, (end - x) * mask.inner);
    else std::memset(dst + x * mask.inner, 0, (end - x) * mask.inner);
    x = end;
  }
}

void run_cpu(const GridMask& mask) {
  // A row is decided once and serves all planes.
  std::vector<uint8_t> kept(mask.width);
  for (int64_t y = 0; y < mask.height; ++y) {
    with_simd([&]() NDD_ALWAYS_INLINE {
      const GridMask m = mask;
      const auto width = static_cast<int32_t>(m.width);
      uint8_t* __restrict row = kept.data();
      float u, v;
      m.at_row(y, u, v);
      for (int32_t x = 0; x < width; ++x) row[x] = m.kept(u, v, x);
    });
    for (int64_t p = 0; p < mask.planes; ++p) {
      const int64_t from = (p * mask.height + y) * mask.width * mask.inner;
      mask_row(mask, kept.data(), mask.in + from, mask.out + from);
    }
  }
}

#ifdef __CUDACC__
constexpr int kWarps = 8, kVector = 16;

// GridMask::kept. `near`: u and v are below 2^22, so their floors are two additions; the instruction for a floor has a quarter of their rate.
template <bool near>
__device__ bool keeps(const GridMask& m, float u, float v, int32_t x) {
  if constexpr (!near) return m.kept(u, v, x);
  constexpr float kBias = 12582912.0f;  // 2^23 + 2^22: floats of this size count in ones
  u += m.cosine * static_cast<float>(x);
  v += m.sine * static_cast<float>(x);
  return (u - (__fadd_rd(u, kBias) - kBias) >= m.ratio) | (v - (__fadd_rd(v, kBias) - kBias) >= m.ratio);
}

// A bit for each of the 16 bytes from byte `first` of a row on: whether it is kept.
template <bool near>
__device__ uint32_t kept_byte_mask(const GridMask& m, float u, float v, int64_t first, int64_t row_bytes) {
  // A 32-bit division where the row allows it.
  const bool small = row_bytes < (int64_t{1} << 31);
  int64_t x = small ? static_cast<uint32_t>(first) / static_cast<uint32_t>(m.inner) : first / m.inner;
  uint32_t bits = 0;
  const int32_t inner = static_cast<int32_t>(m.inner < kVector ? m.inner : kVector);
  const uint32_t pixel = (1u << inner) - 1;
  // Where pixel x begins, from byte `first` on.
  int64_t at = x * m.inner - first;
  if (at < 0) {  // a pixel that began before
    const int64_t left = m.inner + at;
    bits = keeps<near>(m, u, v, static_cast<int32_t>(x)) ? (1u << (left < kVector ? left : kVector)) - 1 : 0;
    at = left;
    ++x;
  }
  for (int32_t b = static_cast<int32_t>(at < kVector ? at : kVector), column = static_cast<int32_t>(x); b < kVector; b += inner, ++column)
    // As many ones as the pixel has bytes; those beyond the 16 are not used.
    bits |= keeps<near>(m, u, v, column) ? pixel << b : 0u;
  return bits;
}

// The four lowest bits as bytes of ones or zeros.
__device__ uint32_t spread(uint32_t bits) { return ((bits & 15u) * 0x00204081u & 0x01010101u) * 255u; }

// A row of a plane for each warp, 16 bytes a thread: a pixel is decided once in each of them, 12 instructions, where a byte has 12 at the full bandwidth.
__global__ void __launch_bounds__(kWarps * 32) grid_mask_gpu(const GridMask* masks, int64_t count) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const GridMask m = masks[i];
    const int64_t rows = m.planes * m.height, row_bytes = m.width * m.inner;
    if (row_bytes == 0) continue;
    for (int64_t r = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; r < rows; r += int64_t{gridDim.x} * kWarps) {
      const int64_t y = rows < (int64_t{1} << 31) ? static_cast<uint32_t>(r) % static_cast<uint32_t>(m.height) : r % m.height;
      float u, v;
      m.at_row(y, u, v);
      const float width = static_cast<float>(m.width);
      // 4e6 is below 2^22.
      const bool near = fabsf(u) + fabsf(m.cosine) * width < 4e6f && fabsf(v) + fabsf(m.sine) * width < 4e6f;
      const char* const in = m.in + r * row_bytes;
      char* const out = m.out + r * row_bytes;
      const int32_t before = static_cast<int32_t>(reinterpret_cast<uintptr_t>(out) % kVector);  // vectors lie where `out` is aligned
      const bool alike = static_cast<int32_t>(reinterpret_cast<uintptr_t>(in) % kVector) == before;
      for (int64_t first = lane * kVector - before; first < row_bytes; first += 32 * kVector) {
        if (alike && first >= 0 && first + kVector <= row_bytes) {
          const uint32_t bits = near ? kept_byte_mask<true>(m, u, v, first, row_bytes) : kept_byte_mask<false>(m, u, v, first, row_bytes);
          uint4 bytes = __ldg(reinterpret_cast<const uint4*>(in + first));
          bytes.x &= spread(bits);
          bytes.y &= spread(bits >> 4);
          bytes.z &= spread(bits >> 8);
          bytes.w &= spread(bits >> 12);
          *reinterpret_cast<uint4*>(out + first) = bytes;
          continue;
        }
        // The ends of a row, and rows whose input is aligned differently, byte by byte.
        const int64_t begin = first > 0 ? first : 0, end = first + kVector < row_bytes ? first + kVector : row_bytes;
        const uint32_t bits = kept_byte_mask<false>(m, u, v, begin, row_bytes);
        for (int64_t b = begin; b < end; ++b) out[b] = bits >> (b - begin) & 1 ? in[b] : char{0};
      }
    }
  }
}
#endif

// `row_axis` counts rows, the axis behind it the pixels of a row.
void grid_mask(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& angle, const Tensor& ratio, const Tensor& shift_x,
               const Tensor& shift_y, const Tensor& tile, int64_t row_axis, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_same("grid_mask", out, in);
  if (row_axis < 0 || row_axis + 2 > in.ndim()) fail(Error::Value, "grid_mask: the images have no rows and columns");
  const Args<float> angles(angle), ratios(ratio), xs(shift_x), ys(shift_y);
  const Args<int64_t> tiles(tile);
  const auto sample = [=](int64_t i) { return mask_of(in, out, i, row_axis, tiles(i), ratios(i), angles(i), xs(i), ys(i)); };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<GridMask> masks;
    int64_t max_rows = 0;  // rows
    for (int64_t i = 0; i < in.size(); ++i) {
      masks.push_back(sample(i));
      if (in.volume(i) > 0) max_rows = std::max(max_rows, masks.back().planes * masks.back().height);
    }
    if (max_rows == 0) return;
    const CudaTable<GridMask> table(masks);
    const dim3 grid = batch_grid(max_rows, kWarps, in.size());
    grid_mask_gpu<<<grid, kWarps * 32, 0, current_cuda_stream()>>>(table.data(), in.size());
    return check_launch("grid_mask");
  }
#endif
  launch_cpu("grid_mask", in.size(), 0.1 * static_cast<double>(in.item_bytes()) * in.mean_volume(), {}, [=](int64_t i) {
    const GridMask mask = sample(i);
    if (in.volume(i) > 0) run_cpu(mask);
  });
}

}  // namespace
}  // namespace ndd::grid_mask_kernels
NDD_KERNELS(grid_mask, ndd::grid_mask_kernels::grid_mask)
