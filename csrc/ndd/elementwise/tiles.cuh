// SPDX-License-Identifier: Apache-2.0
// Element-wise loops of device code for types known at run time, and more than one operand. A block of threads takes tiles of 4096 elements, and a
// thread kRows rows of 4 neighbors of a tile: 4 bytes an access for uint8, 16 for float32, by neighboring threads, so that an access of a warp is
// one wavefront of the first-level cache for every 128 bytes. The switch over the types is made once for all of a thread's elements of a tile, and
// all its loads are on their way at once: 16 elements of each of 1280 threads are 20 KB a processor for uint8, 80 KB for float32 (computed).
#pragma once

#include <cstdint>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/elementwise/divisor.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/elementwise/vectors.cuh"
#include "ndd/hd.h"

namespace ndd {
namespace tiles {

constexpr int kThreads = 256, kWidth = 4;

template <int rows>
constexpr int64_t elements = int64_t{kThreads} * kWidth * rows;

// Blocks along x for runs of at most `most` elements.
template <int rows>
inline unsigned blocks(int64_t most) {
  const int64_t wanted = (most + elements<rows> - 1) / elements<rows>;
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted < (1 << 16) ? wanted : 1 << 16);
}

// Where a thread's elements are: row g at first + g * kThreads * width, if that is before `end`.
template <int rows, int width>
struct Place {
  static constexpr int kRows = rows, kElements = width;
  int64_t first, end;

  __device__ int64_t row(int g) const { return first + int64_t{g} * kThreads * width; }
  __device__ bool has(int g) const { return row(g) < end; }
};

// Calls body(Place<rows, 4>) for what this thread shall do of `count` elements, with vectors that begin where `out`, of so many bytes an element, is
// aligned; then body(Place<1, 1>) for one of the few elements in front and behind, or for all elements if they are done `one_by_one`.
template <int rows, class Body>
__device__ __forceinline__ void for_each(const void* out, int64_t bytes, int64_t count, Body body, bool one_by_one = false) {
  const int64_t vector = kWidth * bytes < 16 ? kWidth * bytes : 16;
  const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out)) & (vector - 1);
  const int64_t before = misaligned == 0 ? 0 : (vector - misaligned) / bytes, head = before < count && !one_by_one ? before : count;
  const int64_t body_count = (count - head) / kWidth * kWidth, end = head + body_count;
  const int64_t step = gridDim.x * elements<rows>;
  for (int64_t first = head + blockIdx.x * elements<rows> + threadIdx.x * kWidth; first < end; first += step) body(Place<rows, kWidth>{first, end});
#pragma unroll 1
  for (int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x; n < count - body_count; n += int64_t{gridDim.x} * kThreads) {
    const int64_t e = n < head ? n : n + body_count;
    body(Place<1, 1>{e, e + 1});
  }
}

template <class T>
__device__ __forceinline__ T load_one(const T* from) {
  return AlignedVector<T, 1>::load(reinterpret_cast<const AlignedVector<T, 1>*>(from)).element[0];
}

// values[g][k] = convert(element k of row g of data). Any alignment: vectors that are not aligned are read element by element, which are as many
// wavefronts again for each byte of an element's neighbors: 4 for uint8 where 12 are to be had.
template <class In, class T, int rows, int width, class Convert>
__device__ __forceinline__ void load_of(const void* data, const Place<rows, width>& at, T (&values)[rows][width], Convert convert) {
  constexpr int kPart = width * sizeof(In) > 16 ? 16 / sizeof(In) : width;
  using Part = AlignedVector<In, kPart>;
  constexpr int kParts = width / kPart;
  const In* const from = static_cast<const In*>(data) + at.first;
  constexpr int64_t kStep = int64_t{kThreads} * width;
  Part raw[rows * kParts] = {};
  if (reinterpret_cast<uintptr_t>(from) % sizeof(Part) == 0) {
#pragma unroll
    for (int n = 0; n < rows * kParts; ++n) {
      if (!at.has(n / kParts)) continue;
      const Part part = Part::load(reinterpret_cast<const Part*>(from + n / kParts * kStep + n % kParts * kPart));
      raw[n] = part;
    }
  } else {
#pragma unroll
    for (int g = 0; g < rows; ++g) {
      if (!at.has(g)) continue;
#pragma unroll
      for (int k = 0; k < width; ++k) raw[g * kParts + k / kPart].element[k % kPart] = load_one(from + g * kStep + k);
    }
  }
#pragma unroll
  for (int g = 0; g < rows; ++g)
#pragma unroll
    for (int k = 0; k < width; ++k) values[g][k] = convert(raw[g * kParts + k / kPart].element[k % kPart]);
}

template <class T, int rows, int width, class Convert>
__device__ __forceinline__ void load(const void* data, DType dtype, const Place<rows, width>& at, T (&values)[rows][width], Convert convert) {
  for_dtype(dtype, [&](auto tag) { load_of<typename decltype(tag)::type>(data, at, values, convert); });
}

// out = convert(TypeTag<Out>, values[g][k]), in vectors: for_each() has seen to it that they are aligned.
template <class Out, class T, int rows, int width, class Convert>
__device__ __forceinline__ void store_of(const T (&values)[rows][width], void* data, const Place<rows, width>& at, Convert convert) {
  constexpr int kPart = width * sizeof(Out) > 16 ? 16 / sizeof(Out) : width;
  using Part = AlignedVector<Out, kPart>;
  Out* const to = static_cast<Out*>(data) + at.first;
  constexpr int64_t kStep = int64_t{kThreads} * width;
#pragma unroll
  for (int g = 0; g < rows; ++g) {
    if (!at.has(g)) continue;
#pragma unroll
    for (int p = 0; p < width; p += kPart) {
      Part part;
#pragma unroll
      for (int k = 0; k < kPart; ++k) part.element[k] = convert(TypeTag<Out>{}, values[g][p + k]);
      Part::store(part, to + g * kStep + p);
    }
  }
}

template <class T, int rows, int width, class Convert>
__device__ __forceinline__ void store(const T (&values)[rows][width], void* data, DType dtype, const Place<rows, width>& at, Convert convert) {
  for_dtype(dtype, [&](auto tag) { store_of<typename decltype(tag)::type>(values, data, at, convert); });
}

struct AsFloat {
  template <class In>
  NDD_HD float operator()(In value) const {
    return static_cast<float>(value);
  }
};

struct Saturated {
  template <class Out, class T>
  NDD_HD Out operator()(TypeTag<Out>, T value) const {
    return saturate<Out>(value);
  }
};

}  // namespace tiles

// Where the elements of a run have their value of an operand that is repeated within rows or along them: element e has number
// (e % extent) * inner + (e / extent) * outer. Channels last: extent = channels, 1 and 0. Channels first: extent = a plane, 0 and 1.
struct Planes {
  Divisor extent;
  uint32_t inner = 0, outer = 0;

  // Calls visit(k, number) for `width` neighbors from e on: one division, then an addition and a selection for each.
  template <int width, class Visit>
  NDD_HD void for_neighbors(int64_t e, Visit visit) const {
    const auto first = static_cast<uint32_t>(e);
    const uint32_t q = extent.quotient(first);
    uint32_t r = first - q * extent.value, number = r * inner + q * outer;
    const uint32_t wrap = outer - (extent.value - 1) * inner;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      visit(k, number);
      const bool last = ++r == extent.value;
      number += last ? wrap : inner;
      r = last ? 0 : r;
    }
  }
};

}  // namespace ndd
