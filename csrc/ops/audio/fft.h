// SPDX-License-Identifier: Apache-2.0
// Fourier transforms of many real signals of equal length, side by side: Stockham's algorithm with radices 4, 2, 3, 5, 7, 11 and 13. Each step handles element i
// of all signals (the lanes) together, so it needs no shuffles, and unlike Cooley and Tukey's algorithm no bit reversal. Lengths with larger prime
// factors go through Bluestein's convolution. A single long signal, which has no lanes, becomes a matrix whose columns and rows are lanes: for 64000
// elements that takes 0.12 ms of CPU time, MKL 0.26; step by step it took half as long again as MKL.
//
// Of 64 signals of 64000 elements, two threads: windows of 512 every 256 take 4.4 ms, of 400 every 160 5.4 ms, of 2048 every 512 9.2 ms. torch.stft (MKL)
// takes 21, 43 and 85 ms, DALI 18, 122 and 33 ms; and MKL would start threads of its own under those of the CPU stream. In milliseconds of CPU time
// the whole spectrogram takes 10.5, 11.5 and 19.5, pocketfft (SciPy's, in C++) 11.3, 15.1 and 20.8 for the transforms alone, 15.9, 20.0 and 29.5 with
// windows and powers; no package that a build can depend on brings its header.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ndd/error.h"
#include "ndd/hd.h"
#include "ndd/tensor.h"

#ifdef __CUDACC__
#define NDD_UNROLL _Pragma("unroll")
#else
#define NDD_UNROLL _Pragma("GCC unroll 16")
#endif

namespace ndd::audio {

// Complex numbers from which a single transform is split into columns and rows.
constexpr int64_t kMinSplit = 256;

// One step of Stockham's algorithm on numbers that lie `stride` apart: y[stride (radix p + k)] from x[stride (p + count j)].
struct Stage {
  int32_t radix;
  int64_t count, stride, twiddles;  // twiddles: where those of the stage begin, radix - 1 pairs for each p
};

// The transform of `n` complex numbers, of which the first `frequencies` are wanted.
struct ComplexPlan {
  ComplexPlan(int64_t n, int64_t frequencies) : ComplexPlan(n, frequencies, true) {}

  int64_t n, frequencies;
  std::vector<Stage> stages;
  std::vector<float> twiddles;
  // For a single long transform, whose first stages have nothing to handle side by side: n = columns * rows, as a matrix whose columns are first all
  // transformed and then, after a multiplication by exp(-2 pi i k b / n) for frequency k of column b, all rows (Bailey's four steps).
  std::unique_ptr<const ComplexPlan> columns, rows;
  std::vector<float> cross_re, cross_im;
  // Bluestein's algorithm: the transform of a convolution of at least n + frequencies - 1 numbers, exp(-pi i k^2 / n), and the transform of its conjugate
  // divided by the length.
  std::unique_ptr<const ComplexPlan> convolution;
  std::vector<float> chirp, filter;

  // The number of complex numbers that the buffers hold.
  int64_t extent() const { return convolution ? convolution->n : n; }

 private:
  ComplexPlan(int64_t n, int64_t frequencies, bool may_be_split);
  void split();
};

// The transform of `n` real numbers. If n is even they are treated as n / 2 complex ones, x[2 i] + x[2 i + 1] i, which halves the work; power_of_pair()
// separates the two halves of the spectrum.
struct RealPlan {
  explicit RealPlan(int64_t n) : n(n), halved(n % 2 == 0), complex(halved ? n / 2 : n, halved ? n / 2 : bins()) { add_split(); }

  int64_t bins() const { return n / 2 + 1; }

  int64_t n;
  bool halved;
  ComplexPlan complex;
  std::vector<float> split;  // cos, sin of 2 pi k / n for every bin

 private:
  void add_split();
};

// Cached: the trigonometric tables take longer than a short transform. Thread-safe.
std::shared_ptr<const RealPlan> real_plan(int64_t n);

// Throws if the output cannot have the bins of a long transform, whose plan would take time and memory. Batches without samples have none.
inline void check_transform(const char* op, int64_t length, const Tensor& output) {
  constexpr int64_t kLong = 1 << 22;
  if (length > kLong && length / 2 >= output.numel()) fail(Error::Value, op, ": the output is too small for transforms of ", length, " elements");
}

// cos and sin of 2 pi k / radix, 0 <= k <= radix / 2.
template <class T>
NDD_HD constexpr T root_cos(int radix, int k) {
  constexpr double kThird[] = {-0.5}, kFifth[] = {0.30901699437494745, -0.80901699437494745};
  constexpr double kSeventh[] = {0.62348980185873353, -0.22252093395631440, -0.90096886790241913};
  constexpr double kEleventh[] = {0.8412535328311812, 0.41541501300188644, -0.142314838273285, -0.654860733945285, -0.9594929736144974};
  constexpr double kThirteenth[] = {0.8854560256532099,   0.5680647467311559,  0.120536680255323,
                                    -0.35460488704253545, -0.7485107481711012, -0.970941817426052};
  const double* const roots = radix == 3 ? kThird : radix == 5 ? kFifth : radix == 7 ? kSeventh : radix == 11 ? kEleventh : kThirteenth;
  return static_cast<T>(k == 0 ? 1.0 : roots[k - 1]);
}
template <class T>
NDD_HD constexpr T root_sin(int radix, int k) {
  constexpr double kThird[] = {0.86602540378443865}, kFifth[] = {0.95105651629515357, 0.58778525229247313};
  constexpr double kSeventh[] = {0.78183148246802981, 0.97492791218182361, 0.43388373911755812};
  constexpr double kEleventh[] = {0.5406408174555976, 0.9096319953545183, 0.9898214418809328, 0.7557495743542583, 0.28173255684142967};
  constexpr double kThirteenth[] = {0.4647231720437685, 0.8229838658936564, 0.992708874098054,
                                    0.9350162426854148, 0.6631226582407952, 0.23931566428755768};
  const double* const roots = radix == 3 ? kThird : radix == 5 ? kFifth : radix == 7 ? kSeventh : radix == 11 ? kEleventh : kThirteenth;
  return static_cast<T>(k == 0 ? 0.0 : roots[k - 1]);
}

// The transform of an odd number of complex numbers, by their symmetry: x[j] and x[R - j] are multiplied by conjugate roots, so their sum and
// difference need half of the multiplications.
template <int R, class T>
NDD_HD void odd_dft(T (&re)[R], T (&im)[R]) {
  constexpr int H = R / 2;
  T sum_re[H], sum_im[H], dif_re[H], dif_im[H];
  const T first_re = re[0], first_im = im[0];
  NDD_UNROLL
  for (int j = 0; j < H; ++j) {
    sum_re[j] = re[j + 1] + re[R - 1 - j];
    sum_im[j] = im[j + 1] + im[R - 1 - j];
    dif_re[j] = re[j + 1] - re[R - 1 - j];
    dif_im[j] = im[j + 1] - im[R - 1 - j];
    re[0] += sum_re[j];
    im[0] += sum_im[j];
  }
  NDD_UNROLL
  for (int k = 1; k <= H; ++k) {
    T even_re = first_re, even_im = first_im, odd_re = 0, odd_im = 0;
    NDD_UNROLL
    for (int j = 0; j < H; ++j) {
      const int at = (j + 1) * k % R, near = at > H ? R - at : at;
      const T c = root_cos<T>(R, near), s = at > H ? -root_sin<T>(R, near) : root_sin<T>(R, near);
      even_re += c * sum_re[j];
      even_im += c * sum_im[j];
      odd_re += s * dif_re[j];
      odd_im += s * dif_im[j];
    }
    re[k] = even_re + odd_im;
    im[k] = even_im - odd_re;
    re[R - k] = even_re - odd_im;
    im[R - k] = even_im + odd_re;
  }
}

template <int R, class T>
NDD_HD void dft(T (&re)[R], T (&im)[R]) {
  // Written out: the roots of 2 and 4 need no multiplications.
  if constexpr (R == 2) {
    const T r = re[0] - re[1], i = im[0] - im[1];
    re[0] += re[1];
    im[0] += im[1];
    re[1] = r;
    im[1] = i;
  } else if constexpr (R == 4) {
    const T ar = re[0] + re[2], ai = im[0] + im[2], br = re[0] - re[2], bi = im[0] - im[2];
    const T cr = re[1] + re[3], ci = im[1] + im[3], dr = re[1] - re[3], di = im[1] - im[3];
    re[0] = ar + cr;
    im[0] = ai + ci;
    re[1] = br + di;
    im[1] = bi - dr;
    re[2] = ar - cr;
    im[2] = ai - ci;
    re[3] = br - di;
    im[3] = bi + dr;
  } else {
    odd_dft<R>(re, im);
  }
}

// One butterfly: the R numbers of one p and one lane, transformed and multiplied by their twiddle factors.
template <int R, class T>
NDD_HD void butterfly(const T* in_re, const T* in_im, int64_t in_step, const T* twiddles, T* out_re, T* out_im, int64_t out_step) {
  T re[R], im[R];
  NDD_UNROLL
  for (int j = 0; j < R; ++j) {
    re[j] = in_re[j * in_step];
    im[j] = in_im[j * in_step];
  }
  dft<R>(re, im);
  out_re[0] = re[0];
  out_im[0] = im[0];
  NDD_UNROLL
  for (int k = 1; k < R; ++k) {
    // Number 0 has the factor 1, which is not stored.
    const T c = twiddles[2 * k - 2], s = twiddles[2 * k - 1];
    out_re[k * out_step] = re[k] * c - im[k] * s;
    out_im[k * out_step] = re[k] * s + im[k] * c;
  }
}

// X[k] of a real signal, x + y i, from the numbers k and n / 2 - k of the transform of its pairs.
template <class T>
NDD_HD void split_pair(T re, T im, T other_re, T other_im, T c, T s, T& x, T& y) {
  // The transforms of the even and the odd elements are the symmetric parts of Z[k] and conj(Z[n / 2 - k]); the odd ones are shifted by one element.
  constexpr T kHalf = 0.5;
  const T even_re = kHalf * (re + other_re), even_im = kHalf * (im - other_im), odd_re = kHalf * (im + other_im), odd_im = kHalf * (other_re - re);
  x = even_re + c * odd_re + s * odd_im;
  y = even_im + c * odd_im - s * odd_re;
}

// |X[k]|^2.
NDD_HD float power_of_pair(float re, float im, float other_re, float other_im, float c, float s) {
  float x, y;
  split_pair(re, im, other_re, other_im, c, s, x, y);
  return x * x + y * y;
}

}  // namespace ndd::audio
