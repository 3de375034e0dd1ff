// SPDX-License-Identifier: Apache-2.0
// Signals are loaded into lanes, transformed together, and their powers stored in the order of the output. All buffers belong to a thread and
// are used again for the next group of lanes.
#include "ops/audio/spectra.h"

#include <algorithm>
#include <cmath>

#include "ndd/simd.h"
#include "ops/audio/scratch.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ndd::audio {
namespace {

// Stages swap between two pairs of buffers (Stockham's form, which needs no reordering). The pointers are exchanged so that the result is in re, im.
void run_stages(const ComplexPlan& plan, int64_t lanes, float*& re, float*& im, float*& other_re, float*& other_im) {
  float *a = re, *b = im, *c = other_re, *d = other_im;
  with_simd([&]() NDD_ALWAYS_INLINE {
    for (const Stage& stage : plan.stages) {
      const float* twiddles = plan.twiddles.data() + stage.twiddles;
      switch (stage.radix) {
        case 2: run_stage<2>(stage, twiddles, lanes, a, b, c, d); break;
        case 3: run_stage<3>(stage, twiddles, lanes, a, b, c, d); break;
        case 4: run_stage<4>(stage, twiddles, lanes, a, b, c, d); break;
        case 5: run_stage<5>(stage, twiddles, lanes, a, b, c, d); break;
        case 7: run_stage<7>(stage, twiddles, lanes, a, b, c, d); break;
        case 11: run_stage<11>(stage, twiddles, lanes, a, b, c, d); break;
        default: run_stage<13>(stage, twiddles, lanes, a, b, c, d); break;
      }
      std::swap(a, c);
      std::swap(b, d);
    }
  });
  re = a, im = b, other_re = c, other_im = d;
}

// Moves a block of `rows` by `lanes` numbers between matrices of different widths.
void copy_block(const float* from, int64_t from_step, int64_t rows, int64_t lanes, float* to, int64_t to_step) {
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * from_step, lanes, to + i * to_step);
}

// The columns and the rows of the matrix are transformed kMaxLanes at a time, in buffers that stay in the first-level cache. The result is in re and im.
void run_split(const ComplexPlan& plan, float* re, float* im, float* other_re, float* other_im) {
  static thread_local LineVector<float> scratch;
  const int64_t length = plan.columns->n, width = plan.rows->n, part = std::max(length, width) * kMaxLanes;
  float* const buffers = scratch_of(scratch, 4 * part);
  // First the columns, with the cross factors, to the other buffers, transposed.
  for (int64_t b = 0; b < width; b += kMaxLanes) {
    const int64_t lanes = std::min<int64_t>(kMaxLanes, width - b);
    float *x = buffers, *y = x + part, *other_x = y + part, *other_y = other_x + part;
    copy_block(re + b, width, length, lanes, x, lanes);
    copy_block(im + b, width, length, lanes, y, lanes);
    run_stages(*plan.columns, lanes, x, y, other_x, other_y);
    with_simd([&]() NDD_ALWAYS_INLINE {
      for (int64_t k = 0; k < length; ++k) {
        const float* __restrict c = plan.cross_re.data() + k * width + b;
        const float* __restrict s = plan.cross_im.data() + k * width + b;
        float* __restrict u = x + k * lanes;
        float* __restrict v = y + k * lanes;
        const int64_t n = lanes;
        for (int64_t l = 0; l < n; ++l) {
          // A complex product, in place.
          const float real = u[l] * c[l] - v[l] * s[l];
          v[l] = u[l] * s[l] + v[l] * c[l];
          u[l] = real;
        }
      }
    });
    float *real_rows[kMaxLanes], *imaginary_rows[kMaxLanes];
    for (int64_t l = 0; l < lanes; ++l) real_rows[l] = other_re + (b + l) * length, imaginary_rows[l] = other_im + (b + l) * length;
    lanes_to_rows(x, lanes, lanes, length, real_rows);
    lanes_to_rows(y, lanes, lanes, length, imaginary_rows);
  }
  // Then the rows, whose results are bins `length` apart.
  for (int64_t k = 0; k < length; k += kMaxLanes) {
    const int64_t lanes = std::min<int64_t>(kMaxLanes, length - k);
    float *x = buffers, *y = x + part, *other_x = y + part, *other_y = other_x + part;
    copy_block(other_re + k, length, width, lanes, x, lanes);
    copy_block(other_im + k, length, width, lanes, y, lanes);
    run_stages(*plan.rows, lanes, x, y, other_x, other_y);
    copy_block(x, lanes, width, lanes, re + k, length);
    copy_block(y, lanes, width, lanes, im + k, length);
  }
}

// A single long transform is split into a matrix; several go through the stages side by side, one in each lane.
void run(const ComplexPlan& plan, int64_t lanes, float*& re, float*& im, float*& other_re, float*& other_im) {
  if (lanes == 1 && plan.columns) run_split(plan, re, im, other_re, other_im);
  else run_stages(plan, lanes, re, im, other_re, other_im);
}

// Multiplies number i of all lanes by factor i; `sign` -1 takes the conjugate of the product.
void multiply(const float* factors, int64_t count, int64_t lanes, float sign, float* reals, float* imaginaries) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict factor = factors;
    float* __restrict re = reals;
    float* __restrict im = imaginaries;
    const int64_t n = count, width = lanes;
    const float conjugate = sign;
    const auto product = [&](int64_t at, float c, float s) NDD_ALWAYS_INLINE {
      const float x = re[at], y = im[at];
      re[at] = x * c - y * s;
      im[at] = conjugate * (x * s + y * c);
    };
    if (width == 1) {
      for (int64_t i = 0; i < n; ++i) product(i, factor[2 * i], factor[2 * i + 1]);
      return;
    }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t l = 0; l < width; ++l) product(i * width + l, factor[2 * i], factor[2 * i + 1]);
  });
}

// Loads elements `begin` to `end` of all lanes, in any layout. Lanes beyond the last signal repeat it, or are zero; their results are not stored.
void load_any(const RealPlan& plan, int64_t lanes, const Signals& signals, int64_t begin, int64_t end, const float* window, float* re, float* im) {
  for (int64_t i = begin; i < end; ++i) {
    // A real signal of even length is transformed as half as many complex numbers: even elements are real parts, odd ones imaginary parts.
    float* to = plan.halved ? (i % 2 ? im : re) + i / 2 * lanes : re + i * lanes;
    const float factor = window ? window[i] : 1.0f;
    if (signals.in_step != 1) {  // side by side
      const float* from = signals.in[0] + i * signals.in_step;
      for (int64_t l = 0; l < signals.count; ++l) to[l] = factor * from[l];
      std::fill(to + signals.count, to + lanes, 0.0f);
      continue;
    }
    for (int64_t l = 0; l < lanes; ++l) to[l] = factor * signals.in[std::min(l, signals.count - 1)][i];
  }
}

#if defined(__x86_64__)
// Four elements of four lanes at a time; returns how many elements were loaded.
int64_t load_rows(const RealPlan& plan, int64_t lanes, const Signals& signals, int64_t length, const float* window, float* re, float* im) {
  const __m128 ones = _mm_set1_ps(1.0f);
  for (int64_t l = 0; l < lanes; l += 4) {
    const float* row[4];
    for (int64_t k = 0; k < 4; ++k) row[k] = signals.in[std::min(l + k, signals.count - 1)];
    for (int64_t i = 0; i + 4 <= length; i += 4) {
      const __m128 factor = window ? _mm_loadu_ps(window + i) : ones;
      __m128 a = _mm_mul_ps(_mm_loadu_ps(row[0] + i), factor), b = _mm_mul_ps(_mm_loadu_ps(row[1] + i), factor);
      __m128 c = _mm_mul_ps(_mm_loadu_ps(row[2] + i), factor), d = _mm_mul_ps(_mm_loadu_ps(row[3] + i), factor);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      if (plan.halved) {
        const int64_t at = i / 2 * lanes + l;
        _mm_storeu_ps(re + at, a);
        _mm_storeu_ps(im + at, b);
        _mm_storeu_ps(re + at + lanes, c);
        _mm_storeu_ps(im + at + lanes, d);
      } else {
        const int64_t at = i * lanes + l;
        _mm_storeu_ps(re + at, a);
        _mm_storeu_ps(re + at + lanes, b);
        _mm_storeu_ps(re + at + 2 * lanes, c);
        _mm_storeu_ps(re + at + 3 * lanes, d);
      }
    }
  }
  return length / 4 * 4;
}
#endif

// Loads a single signal; returns how many elements were loaded.
int64_t load_single(const RealPlan& plan, const float* from, int64_t length, const float* window, float* re_to, float* im_to) {
  // Pairs only; load_any() loads an odd last element.
  const int64_t whole = plan.halved ? length / 2 * 2 : length;
  with_simd([&]() NDD_ALWAYS_INLINE {
    const float* __restrict in = from, * __restrict factor = window;
    float* __restrict re = re_to, * __restrict im = im_to;
    const int64_t pairs = whole / 2, all = whole;
    if (plan.halved && window) {
      for (int64_t i = 0; i < pairs; ++i) re[i] = factor[2 * i] * in[2 * i], im[i] = factor[2 * i + 1] * in[2 * i + 1];
    } else if (plan.halved) {
      for (int64_t i = 0; i < pairs; ++i) re[i] = in[2 * i], im[i] = in[2 * i + 1];
    } else if (window) {
      for (int64_t i = 0; i < all; ++i) re[i] = factor[i] * in[i];
    } else {
      std::copy(in, in + all, re);
    }
  });
  return whole;
}

void load(const RealPlan& plan, int64_t lanes, const Signals& signals, int64_t length, const float* window, float* re, float* im) {
  int64_t begin = 0;
  if (signals.in_step == 1 && lanes == 1) begin = load_single(plan, signals.in[0], length, window, re, im);
#if defined(__x86_64__)
  if (signals.in_step == 1 && lanes % 4 == 0) begin = load_rows(plan, lanes, signals, length, window, re, im);
#endif
  load_any(plan, lanes, signals, begin, length, window, re, im);
  // Zero padding, up to the length of the transform or of its convolution.
  const int64_t extent = plan.complex.extent();
  if (plan.halved) {
    std::fill(re + (length + 1) / 2 * lanes, re + extent * lanes, 0.0f);
    std::fill(im + length / 2 * lanes, im + extent * lanes, 0.0f);
  } else {
    std::fill(re + length * lanes, re + extent * lanes, 0.0f);
    std::fill(im, im + extent * lanes, 0.0f);
  }
}

// powers[k * lanes + l] = |X[k]|^power of lane l. For an even length the transform holds two interleaved real halves, which are separated here.
void find_powers(const RealPlan& plan, int64_t lanes, const float* re_of, const float* im_of, int64_t power, float* powers) {
  const int64_t half = plan.n / 2, bins = plan.bins();
  with_simd([&]() NDD_ALWAYS_INLINE {
    const bool halved = plan.halved;
    if (halved && lanes == 1) {  // along the bins
      const float* __restrict re = re_of, * __restrict im = im_of, * __restrict split = plan.split.data();
      float* __restrict out = powers;
      const int64_t h = half;
      // The bins 0 and n / 2 both pair number 0 with itself.
      out[0] = power_of_pair(re[0], im[0], re[0], im[0], split[0], split[1]);
      for (int64_t k = 1; k < h; ++k) out[k] = power_of_pair(re[k], im[k], re[h - k], im[h - k], split[2 * k], split[2 * k + 1]);
      out[h] = power_of_pair(re[0], im[0], re[0], im[0], split[2 * h], split[2 * h + 1]);
      if (power == 1)
        for (int64_t k = 0; k <= h; ++k) out[k] = std::sqrt(out[k]);
      return;
    }
    for (int64_t k = 0; k < bins; ++k) {
      // The spectrum is periodic: number n / 2 is number 0.
      const int64_t at = (halved && k == half ? 0 : k) * lanes, mirrored = (k == 0 ? 0 : half - k) * lanes;
      const float* __restrict re = re_of + at;
      const float* __restrict im = im_of + at;
      const float* __restrict other_re = re_of + mirrored;
      const float* __restrict other_im = im_of + mirrored;
      float* __restrict out = powers + k * lanes;
      const float c = plan.split[2 * k], s = plan.split[2 * k + 1];
      const int64_t n = lanes;
      if (halved) {
        for (int64_t l = 0; l < n; ++l) out[l] = power_of_pair(re[l], im[l], other_re[l], other_im[l], c, s);
      } else {
        for (int64_t l = 0; l < n; ++l) out[l] = re[l] * re[l] + im[l] * im[l];
      }
      if (power == 1)
        for (int64_t l = 0; l < n; ++l) out[l] = std::sqrt(out[l]);
    }
  });
}

// Results side by side are copied bin by bin; rows of bins are transposed.
void store(int64_t bins, int64_t lanes, const Signals& signals, const float* powers) {
  if (signals.out_step != 1) {
    for (int64_t k = 0; k < bins; ++k) std::copy(powers + k * lanes, powers + k * lanes + signals.count, signals.out[0] + k * signals.out_step);
    return;
  }
  lanes_to_rows(powers, lanes, signals.count, bins, signals.out);
}

}  // namespace

void transform(const ComplexPlan& plan, int64_t lanes, float*& re, float*& im, float*& other_re, float*& other_im) {
  if (!plan.convolution) return run(plan, lanes, re, im, other_re, other_im);
  // X[k] = chirp[k] * sum over j of (x[j] chirp[j]) conj(chirp[k - j]); the inverse transform is the conjugate of that of the conjugate.
  multiply(plan.chirp.data(), plan.n, lanes, 1.0f, re, im);
  run(*plan.convolution, lanes, re, im, other_re, other_im);
  // Bluestein's algorithm for lengths with large prime factors: `filter` is the transform of the conjugate chirp, including the factor 1 / length.
  multiply(plan.filter.data(), plan.extent(), lanes, -1.0f, re, im);
  run(*plan.convolution, lanes, re, im, other_re, other_im);
  // Fewer frequencies mean a real signal, and only magnitudes are used. The conjugate has the same ones, and those of the chirp are 1.
  if (plan.frequencies < plan.n) return;
  for (int64_t i = 0; i < plan.n * lanes; ++i) im[i] = -im[i];
  multiply(plan.chirp.data(), plan.n, lanes, 1.0f, re, im);
}

int64_t lanes_of(const RealPlan& plan, int64_t signals) {
  // One by one, split transforms take as long as in eight lanes, and half as long as in four. The lanes of very long signals leave the caches.
  constexpr int64_t kMaxSideBySide = 16384;  // numbers of a signal
  const int64_t extent = plan.complex.extent();
  if (signals <= 1 || (extent >= kMinSplit && signals < 6) || extent > kMaxSideBySide) return 1;
  // Multiples of four, because load_rows() transposes four lanes at a time.
  return signals <= 4 ? 4 : signals <= 8 || extent > 512 ? 8 : 16;
}

void spectra(const RealPlan& plan, int64_t lanes, const Signals& signals, int64_t length, const float* window, int64_t power,
             LineVector<float>& scratch) {
  // Real and imaginary parts, the buffers they alternate with, and the powers.
  const int64_t part = plan.complex.extent() * lanes;
  float *re = scratch_of(scratch, 4 * part + plan.bins() * lanes), *im = re + part, *other_re = im + part, *other_im = other_re + part,
        *powers = other_im + part;
  load(plan, lanes, signals, length, window, re, im);
  transform(plan.complex, lanes, re, im, other_re, other_im);
  // Powers that already have the layout of the output are written there; all others are transposed.
  const bool direct = signals.count == lanes && signals.out_step == lanes;  // side by side, or a single one
  find_powers(plan, lanes, re, im, power, direct ? signals.out[0] : powers);
  if (!direct) store(plan.bins(), lanes, signals, powers);
}

}  // namespace ndd::audio
