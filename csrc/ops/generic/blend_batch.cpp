// SPDX-License-Identifier: Apache-2.0
// A blend of each sample with another one of the batch, for mixup, in one pass. Arithmetic would need a reordered copy of the batch first.
#include "ndd/args.h"
#include "ndd/elementwise/streaming.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

constexpr double kNanosecondsPerElement = 0.5;
constexpr int64_t kRow = 1024;  // elements: stays in the first-level cache until it is streamed to memory

// Two products and a sum, each rounded: the same as the operators * and +.
template <class T>
void blend(const T* a, float weight, const T* b, float rest, int64_t n, float* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T* __restrict first = a;
    const T* __restrict second = b;
    float* __restrict to = out;
    const float w = weight, r = rest;
    const int64_t count = n;
    for (int64_t k = 0; k < count; ++k) to[k] = static_cast<float>(first[k]) * w + static_cast<float>(second[k]) * r;
  });
}

template <class T>
void blend_samples(const Samples& in, const Samples& partners, const Args<int64_t>& place, const Args<float>& share, const Samples& out,
                   bool streams) {
  launch_cpu("blend_batch", out.size(), kNanosecondsPerElement * out.mean_volume(), {}, [=](int64_t i) {
    const int64_t k = place(i), count = out.volume(i);
    if (k < 0 || k >= partners.size() || in.volume(i) != count || partners.volume(k) != count)
      fail("blend_batch: sample ", i, " has no partner of its shape");
    const auto *a = static_cast<const T*>(in.data(i)), *b = static_cast<const T*>(partners.data(k));
    auto* const to = static_cast<float*>(out.data(i));
    // Results that exceed the caches are written past them, row by row.
    if (!streams) return blend(a, share(i, 0), b, share(i, 1), count, to);
    alignas(64) float row[kRow];
    for (int64_t at = 0; at < count; at += kRow) {
      const int64_t n = std::min(kRow, count - at);
      blend(a + at, share(i, 0), b + at, share(i, 1), n, row);
      stream_copy(to + at, row, n * static_cast<int64_t>(sizeof(float)));
    }
    stream_fence();
  });
}

// Sample i of the output, float32, is images[i] * shares[i][0] + others[order[i]] * shares[i][1], uint8 or float32; all are dense.
void blend_batch(const Tensor& images, const Tensor& others, const Tensor& order, const Tensor& shares, const Tensor& output) {
  const Samples in(images, std::nullopt), partners(others, std::nullopt), out(output, std::nullopt);
  if (in.dtype() != partners.dtype() || out.dtype() != DType::float32) fail(Error::Type, "blend_batch: images of one type, to float32");
  const Args<int64_t> place(order);
  const Args<float> share(shares);
  const bool streams = exceeds_caches(output.numel() * out.item_bytes());
  switch (in.dtype()) {
    case DType::uint8: return blend_samples<uint8_t>(in, partners, place, share, out, streams);
    case DType::float32: return blend_samples<float>(in, partners, place, share, out, streams);
    default: fail(Error::Type, "blend_batch: images must be uint8 or float32");
  }
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(blend_batch, CPU, ndd::blend_batch)
