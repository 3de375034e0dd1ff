// SPDX-License-Identifier: Apache-2.0
// blend_batch on the CPU: floats that fit in the caches are written in place; everything else goes by rows of floats, which are then converted or streamed.
#include "ops/generic/blend_batch.h"

#include "ndd/elementwise/rows.h"
#include "ndd/elementwise/streaming.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

constexpr double kNanosecondsPerElement = 0.5;
constexpr int64_t kRow = 1024;  // elements: stays in the first-level cache until it is converted or streamed to memory

template <class T>
void blend(const T* a, float weight, const T* b, float rest, int64_t n, float* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const T* __restrict first = a;
    const T* __restrict second = b;
    float* __restrict to = out;
    const float w = weight, r = rest;
    const int64_t count = n;
    for (int64_t k = 0; k < count; ++k) to[k] = blend_pair(static_cast<float>(first[k]), w, static_cast<float>(second[k]), r);
  });
}

template <class T>
void blend_samples(const BlendArgs& args) {
  // Results that exceed the caches are written past them, row by row.
  const bool is_float = args.out.dtype() == DType::float32, streams = exceeds_caches(args.out.volume(0) * args.out.size() * args.out.item_bytes());
  launch_cpu("blend_batch", args.out.size(), kNanosecondsPerElement * args.out.mean_volume(), {}, [=](int64_t i) {
    const int64_t k = args.partner(i), count = args.out.volume(i), item = args.out.item_bytes();
    const auto *a = static_cast<const T*>(args.in.data(i)), *b = static_cast<const T*>(args.partners.data(k));
    const float weight = args.share(i, 0), rest = args.share(i, 1);
    char* const to = static_cast<char*>(args.out.data(i));
    if (is_float && !streams) return blend(a, weight, b, rest, count, reinterpret_cast<float*>(to));
    const StoreRow store = row_storer(args.out.dtype());
    alignas(64) float row[kRow];
    // For the widest type of an output.
    alignas(64) char converted[kRow * sizeof(double)];
    for (int64_t at = 0; at < count; at += kRow) {
      const int64_t n = std::min(kRow, count - at);
      blend(a + at, weight, b + at, rest, n, row);
      if (!streams) {
        store(row, n, to + at * item);
      } else if (is_float) {
        stream_copy(to + at * item, row, n * item);
      } else {
        store(row, n, converted);
        stream_copy(to + at * item, converted, n * item);
      }
    }
    // Streamed rows must be visible before the task reports its end.
    stream_fence();
  });
}

void blend_batch(const Tensor& images, const Tensor& others, const Tensor& order, const Tensor& shares, const Tensor& output) {
  const BlendArgs args(images, others, order, shares, output);
  switch (args.in.dtype()) {
    case DType::uint8: return blend_samples<uint8_t>(args);
    case DType::float32: return blend_samples<float>(args);
    default: fail(Error::Type, "blend_batch: images must be uint8 or float32");
  }
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(blend_batch, CPU, ndd::blend_batch)
