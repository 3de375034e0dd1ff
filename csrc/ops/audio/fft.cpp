// SPDX-License-Identifier: Apache-2.0
// Plans: the factors of the stages, twiddle factors and chirps. They depend on the length only and are shared by all threads; spectra.cpp
// executes them.
#include "ops/audio/fft.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "ndd/fork_mutex.h"
#include "ops/audio/spectra.h"

namespace ndd::audio {
namespace {

constexpr int64_t kMaxCachedNumbers = 1 << 22;  // of all plans together, about 50 bytes each: 200 MB

// Empty if n has a prime factor above 13. Radix 4 comes first, since two steps of radix 2 read and write everything once more.
std::vector<int32_t> radices_of(int64_t n) {
  std::vector<int32_t> radices;
  for (const int32_t radix : {4, 2, 3, 5, 7, 11, 13})
    for (; n % radix == 0 && n > 1; n /= radix) radices.push_back(radix);
  return n > 1 ? std::vector<int32_t>{} : radices;
}

// Returns the length of a circular convolution of at least this many numbers that is transformed fast: next to a power of two.
int64_t convolution_length(int64_t least) {
  int64_t best = std::numeric_limits<int64_t>::max();
  for (int64_t length : {1, 3, 5, 9, 15, 25, 27, 45, 75}) {
    while (length < least) length *= 2;
    best = std::min(best, length);
  }
  return best;
}

// exp(-pi i k^2 / n). k^2 is reduced modulo 2 n in integers: as a double it would lose the fraction of a turn for large k.
void add_chirp(int64_t k, int64_t n, std::vector<float>& chirp) {
  const double angle = M_PI * static_cast<double>(static_cast<unsigned __int128>(k) * k % (2 * n)) / static_cast<double>(n);
  chirp.push_back(static_cast<float>(std::cos(angle)));
  chirp.push_back(static_cast<float>(-std::sin(angle)));
}

}  // namespace

ComplexPlan::ComplexPlan(int64_t n, int64_t frequencies, bool may_be_split) : n(n), frequencies(frequencies) {
  const auto radices = radices_of(n);
  if (radices.empty() && n > 1) {
    // The distances k - j of wanted frequencies and numbers go from 1 - n to frequencies - 1. A real signal has as many frequencies as half of its
    // numbers: a quarter less than all.
    const int64_t length = convolution_length(n + frequencies - 1);
    convolution = std::make_unique<const ComplexPlan>(length, length);
    for (int64_t k = 0; k < n; ++k) add_chirp(k, n, chirp);
    std::vector<float> buffers(4 * length);
    float *re = buffers.data(), *im = re + length, *other_re = im + length, *other_im = other_re + length;
    for (int64_t k = 0; k < n; ++k) {
      // The conjugate chirp is even: negative indices are at the end.
      const int64_t behind = (length - k) % length;
      re[behind] = chirp[2 * k];
      im[behind] = -chirp[2 * k + 1];
      if (k >= frequencies) continue;
      re[k] = chirp[2 * k];
      im[k] = -chirp[2 * k + 1];
    }
    transform(*convolution, 1, re, im, other_re, other_im);
    for (int64_t k = 0; k < length; ++k) {
      filter.push_back(re[k] / static_cast<float>(length));
      filter.push_back(im[k] / static_cast<float>(length));
    }
    return;
  }
  // Stockham's form: each stage splits the transforms that are left by its radix, and their results are interleaved by as much.
  int64_t left = n, stride = 1;
  for (const int32_t radix : radices) {
    const int64_t count = left / radix;
    stages.push_back({radix, count, stride, static_cast<int64_t>(twiddles.size())});
    // Twiddle factors exp(-2 pi i p k / left) of the stage, for k from 1 on.
    for (int64_t p = 0; p < count; ++p) {
      for (int32_t k = 1; k < radix; ++k) {
        const double angle = -2.0 * M_PI * static_cast<double>(p * k) / static_cast<double>(left);
        twiddles.push_back(static_cast<float>(std::cos(angle)));
        twiddles.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    left = count;
    stride *= radix;
  }
  if (may_be_split && n >= kMinSplit) split();
}

// Four steps for transforms that exceed the caches: columns, cross factors exp(-2 pi i k b / n), a transposition, rows.
void ComplexPlan::split() {
  // The divisor next to the square root makes columns and rows about equally long.
  auto length = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (n % length != 0) --length;
  const int64_t width = n / length;
  columns.reset(new ComplexPlan(length, length, false));
  rows.reset(new ComplexPlan(width, width, false));
  for (int64_t k = 0; k < length; ++k) {
    for (int64_t b = 0; b < width; ++b) {
      const double angle = -2.0 * M_PI * static_cast<double>(k * b) / static_cast<double>(n);
      cross_re.push_back(static_cast<float>(std::cos(angle)));
      cross_im.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

// exp(2 pi i k / n), by which bins of even and odd elements are put together.
void RealPlan::add_split() {
  for (int64_t k = 0; k < bins(); ++k) {
    const double angle = 2.0 * M_PI * static_cast<double>(k) / static_cast<double>(n);
    split.push_back(static_cast<float>(std::cos(angle)));
    split.push_back(static_cast<float>(std::sin(angle)));
  }
}

std::shared_ptr<const RealPlan> real_plan(int64_t n) {
  static auto& mutex = *new ForkMutex;  // never destroyed: threads use it to the end of the process
  static std::map<int64_t, std::shared_ptr<const RealPlan>> plans;
  {
    const std::lock_guard<ForkMutex> lock(mutex);
    const auto found = plans.find(n);
    if (found != plans.end()) return found->second;
  }
  // Built outside of the lock; if two threads build the same plan, one is dropped.
  auto plan = std::make_shared<const RealPlan>(n);
  const std::lock_guard<ForkMutex> lock(mutex);
  static int64_t cached = 0;
  if (cached + n > kMaxCachedNumbers) {
    // All of them: rare, and calls that use a plan keep it.
    plans.clear();
    cached = 0;
  }
  if (n <= kMaxCachedNumbers && plans.emplace(n, plan).second) cached += n;
  return plan;
}

}  // namespace ndd::audio
