// SPDX-License-Identifier: Apache-2.0
// Element-wise loops of device code for types known at run time, with one or more operands. The kernel calls for_each() with a body that loads its
// operands with load(), computes, and writes with store(), at the place it is given.
//
// A block takes tiles, a thread `rows` rows of 4 consecutive elements of them: neighboring threads access 4 bytes each for uint8 and 16 for float32, so
// a warp's access takes one wavefront of the L1 cache per 128 bytes. The type is switched on once for all of a thread's elements of a tile, so
// its loads are all in flight together: four rows in each of 1024 threads are 16 KB per multiprocessor for uint8 and 64 KB for float32 (computed).
//
// Guarantees: every element is visited exactly once, and stores are aligned; operands may have any alignment.
//
// Use it where types are known only at run time, or operands differ in type. For a pair of types that the compiler knows, vectors.cuh has the
// loop.
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

// The number of blocks along x, for runs of at most `most` elements.
template <int rows>
inline unsigned blocks(int64_t most) {
  const int64_t wanted = (most + elements<rows> - 1) / elements<rows>;
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted < (1 << 16) ? wanted : 1 << 16);
}

// A thread's elements: row g starts at first + g * kThreads * width, if that is below `end`.
template <int rows, int width>
struct Place {
  static constexpr int kRows = rows, kElements = width;
  int64_t first, end;

  __device__ int64_t row(int g) const { return first + int64_t{g} * kThreads * width; }
  __device__ bool has(int g) const { return row(g) < end; }
};

// Calls body(Place<rows, 4>) for this thread's part of tile `tile` and of every `across`-th one after it, of `count` elements, placed such that vectors
// of `out` (`bytes` per element) are aligned; then body(Place<1, 1>) for single elements before and after the vectors, or for all elements if
// `one_by_one`.
template <int rows, class Body>
__device__ __forceinline__ void for_each(const void* out, int64_t bytes, int64_t count, uint32_t tile, uint32_t across, Body body,
                                         bool one_by_one = false) {
  const auto size = static_cast<uint32_t>(bytes), vector = kWidth * size < 16 ? kWidth * size : 16;
  const auto misaligned = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out)) & (vector - 1);
  // Sizes are powers of two; a division would take 20 instructions.
  const int64_t before = misaligned == 0 ? 0 : (vector - misaligned) >> (size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3);
  const int64_t head = before < count && !one_by_one ? before : count;
  const int64_t body_count = (count - head) / kWidth * kWidth, end = head + body_count;
  const int64_t step = across * elements<rows>;
#pragma unroll 1
  for (int64_t first = head + tile * elements<rows> + threadIdx.x * kWidth; first < end; first += step) body(Place<rows, kWidth>{first, end});
#pragma unroll 1
  for (int64_t n = int64_t{tile} * kThreads + threadIdx.x; n < count - body_count; n += int64_t{across} * kThreads) {
    const int64_t e = n < head ? n : n + body_count;
    body(Place<1, 1>{e, e + 1});
  }
}

// The same for a grid whose blocks along x share a run.
template <int rows, class Body>
__device__ __forceinline__ void for_each(const void* out, int64_t bytes, int64_t count, Body body, bool one_by_one = false) {
  for_each<rows>(out, bytes, count, blockIdx.x, gridDim.x, body, one_by_one);
}

template <class T>
__device__ __forceinline__ T load_one(const T* from) {
  return AlignedVector<T, 1>::load(reinterpret_cast<const AlignedVector<T, 1>*>(from)).element[0];
}

// values[g][k] = convert(element k of row g of data). Unaligned vectors are read element by element, which multiplies the wavefronts: 4 for uint8,
// within a budget of 12.
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

// out = convert(TypeTag<Out>, values[g][k]), stored as vectors, which for_each() has aligned.
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

// The position of an operand that repeats within rows or along them, such as one value per channel: element e uses value (e % extent) * inner + (e /
// extent) * outer. Channels last: extent = channels, inner = 1, outer = 0. Channels first: extent = the size of a plane, inner = 0, outer = 1.
struct Planes {
  Divisor extent;
  uint32_t inner = 0, outer = 0;

  // Calls visit(k, number) for `width` consecutive elements from e on: one division, then an addition and a selection for each.
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
