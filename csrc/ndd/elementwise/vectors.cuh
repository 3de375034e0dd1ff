// SPDX-License-Identifier: Apache-2.0
// Element-wise loops of device code with 16-byte accesses, the widest available. With 1 or 4 bytes per access, too few bytes are in flight to
// saturate the memory. tests/core/native/test_machine_code.py checks that the machine code contains LDG.E.128 and STG.E.128.
//
// Use it for loops over contiguous elements of a type that the compiler knows; addresses are aligned by single elements at both ends.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ndd/dtypes.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/hd.h"

namespace ndd {

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) AlignedVector {
  T element[kCount];

  static constexpr int kBytes = sizeof(T) * kCount;
  static_assert(kBytes == 1 || kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16);
  using Narrow = std::conditional_t<kBytes == 1, unsigned char, unsigned short>;
  using Word = std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, std::conditional_t<kBytes == 4, unsigned int, Narrow>>>;

  // A single access: the compiler would split a copy of the array into words. Uses the read-only path, because kernels never write their input.
  static __device__ __forceinline__ AlignedVector load(const AlignedVector* from) {
    const Word word = __ldg(reinterpret_cast<const Word*>(from));
    AlignedVector loaded;
    memcpy(&loaded, &word, sizeof(AlignedVector));
    return loaded;
  }

  // To global memory, also in a single access: an assignment would compile to a store for every element or two.
  static __device__ __forceinline__ void store(const AlignedVector& from, void* to) {
    Word word;
    memcpy(&word, &from, sizeof(AlignedVector));
    __stwb(static_cast<Word*>(to), word);
  }
};

// to[k] = from[k] for k < min(n, N), in one access if all N elements exist and are aligned. The other elements of `to` keep their values.
template <class T, int N>
__device__ __forceinline__ void load_some(const T* from, int64_t n, T (&to)[N]) {
  constexpr int kPart = N * sizeof(T) > 16 ? 16 / sizeof(T) : N;
  using Part = AlignedVector<T, kPart>;
  if (n >= N && reinterpret_cast<uintptr_t>(from) % sizeof(Part) == 0) {
#pragma unroll
    for (int p = 0; p < N; p += kPart) {
      const Part part = Part::load(reinterpret_cast<const Part*>(from + p));
#pragma unroll
      for (int k = 0; k < kPart; ++k) to[p + k] = part.element[k];
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (k < n) to[k] = from[k];
  }
}

template <class T, int N>
__device__ __forceinline__ void store_some(const T (&from)[N], int64_t n, T* to) {
  constexpr int kPart = N * sizeof(T) > 16 ? 16 / sizeof(T) : N;
  using Part = AlignedVector<T, kPart>;
  if (n >= N && reinterpret_cast<uintptr_t>(to) % sizeof(Part) == 0) {
#pragma unroll
    for (int p = 0; p < N; p += kPart) {
      Part part;
#pragma unroll
      for (int k = 0; k < kPart; ++k) part.element[k] = from[p + k];
      Part::store(part, to + p);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (k < n) to[k] = from[k];
  }
}

// The vectors of a tile for each thread: loads in flight. Four blocks of 256 threads with 32 bytes each are 32 KB per multiprocessor, twice what covers
// the latency of an H100's memory at full bandwidth (computed); more vectors would unroll a functor of bytes 64 times.
constexpr int kVectorThreads = 256, kVectorsInFlight = 2;

// Elements of a vector: 16 bytes of the wider type, so neighboring threads access neighboring bytes on both sides.
template <class In, class Out>
constexpr int kVectorElements = 16 / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));

// out[i] = f(in[i]) for the elements of tile `tile`, of kVectorThreads * kVectorsInFlight vectors, and of every `across`-th one after it. Any alignment:
// vectors start where `out` is aligned; if `in` is not aligned there, it is read element by element (a view at an odd offset).
template <class In, class Out, class F>
__device__ __forceinline__ void map_vectors(const In* in, Out* out, int64_t count, uint32_t tile, uint32_t across, F f) {
  constexpr int kCount = kVectorElements<In, Out>;
  constexpr int64_t kTile = int64_t{kVectorThreads} * kVectorsInFlight;
  using From = AlignedVector<In, kCount>;
  using To = AlignedVector<Out, kCount>;
  const auto misaligned = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) % sizeof(To)) / static_cast<uint32_t>(sizeof(Out));
  const int64_t before = misaligned == 0 ? 0 : kCount - misaligned, head = before < count ? before : count;
  const int64_t vectors = (count - head) / kCount;
  const auto* const from = reinterpret_cast<const From*>(in + head);
  auto* const to = reinterpret_cast<To*>(out + head);
  // Decided once: the output is aligned by the head, and the input is then aligned for all vectors or for none.
  const bool aligned = reinterpret_cast<uintptr_t>(from) % sizeof(From) == 0;
  for (int64_t first = tile * kTile; first < vectors; first += across * kTile) {
    const int here = static_cast<int>(min(vectors - first, kTile));
    From loaded[kVectorsInFlight] = {};
    if (aligned) {
#pragma unroll
      for (int v = 0; v < kVectorsInFlight; ++v) {
        const int at = v * kVectorThreads + static_cast<int>(threadIdx.x);
        if (at < here) loaded[v] = From::load(from + first + at);
      }
    } else {
#pragma unroll
      for (int v = 0; v < kVectorsInFlight; ++v) {
        const int at = v * kVectorThreads + static_cast<int>(threadIdx.x);
        if (at >= here) continue;
#pragma unroll
        for (int e = 0; e < kCount; ++e) loaded[v].element[e] = in[head + (first + at) * kCount + e];
      }
    }
#pragma unroll
    for (int v = 0; v < kVectorsInFlight; ++v) {
      const int at = v * kVectorThreads + static_cast<int>(threadIdx.x);
      if (at >= here) continue;
      To result;
#pragma unroll
      for (int e = 0; e < kCount; ++e) result.element[e] = f(loaded[v].element[e]);
      To::store(result, to + first + at);
    }
  }
  if (tile > 0) return;
  // Fewer elements than two vectors have are left, before and after.
  const int rest = static_cast<int>(count - vectors * kCount);
  if (static_cast<int>(threadIdx.x) < rest) {
    const int64_t e = threadIdx.x < head ? threadIdx.x : vectors * kCount + threadIdx.x;
    out[e] = f(in[e]);
  }
}

// Calls visit with the tags of both types if they are types that images have on a GPU, for which a specialized loop pays off; otherwise returns
// false.
template <class Visit>
NDD_HD bool for_common_pair(DType in, DType out, Visit visit) {
  const auto with = [&](auto in_tag) {
    if (out == DType::uint8) visit(in_tag, TypeTag<uint8_t>{});
    else if (out == DType::float32) visit(in_tag, TypeTag<float>{});
    else if (out == DType::float16) visit(in_tag, TypeTag<Half>{});
    else return false;
    return true;
  };
  if (in == DType::uint8) return with(TypeTag<uint8_t>{});
  if (in == DType::float32) return with(TypeTag<float>{});
  if (in == DType::float16) return with(TypeTag<Half>{});
  return false;
}

}  // namespace ndd
