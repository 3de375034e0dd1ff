// SPDX-License-Identifier: Apache-2.0
// Element-wise loops of device code with 16-byte accesses, the widest available. With 1 or 4 bytes per access, too few bytes are in flight to
// saturate the memory. uint8 brightness reaches 0.72 of the copy bandwidth of an H100, float32 0.95; tests/test_machine_code.py checks that the
// machine code contains LDG.E.128 and STG.E.128.
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

// out[i] = f(in[i]) for all i, shared by all threads of the blocks along x. A thread processes as many elements at a time as fill 16 bytes of the
// wider type, so neighboring threads access neighboring bytes on both sides. Any alignment: vectors start where `out` is aligned; if `in` is not
// aligned there, it is read element by element (a ragged sample that follows one with an odd number of bytes).
template <class In, class Out, class F>
__device__ void for_each_vector(const In* in, Out* out, int64_t count, F f) {
  constexpr int kCount = 16 / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));
  using From = AlignedVector<In, kCount>;
  using To = AlignedVector<Out, kCount>;
  const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % sizeof(To)) / static_cast<int64_t>(sizeof(Out));
  const int64_t before = misaligned == 0 ? 0 : kCount - misaligned, head = before < count ? before : count;
  const int64_t vectors = (count - head) / kCount, single = count - vectors * kCount;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, stride = int64_t{gridDim.x} * blockDim.x;
  const auto* const from = reinterpret_cast<const From*>(in + head);
  auto* const to = reinterpret_cast<To*>(out + head);
  const bool aligned = reinterpret_cast<uintptr_t>(from) % sizeof(From) == 0;
  const auto transform = [&](const From& a, To* b) {
    To result;
#pragma unroll
    for (int e = 0; e < kCount; ++e) result.element[e] = f(a.element[e]);
    To::store(result, b);
  };
  if (aligned) {
    // Two loads in flight at a time.
    for (int64_t v = first; v < vectors; v += 2 * stride) {
      const bool two = v + stride < vectors;
      const From a = From::load(from + v), b = From::load(from + (two ? v + stride : v));
      transform(a, to + v);
      if (two) transform(b, to + v + stride);
    }
  } else {
    for (int64_t v = first; v < vectors; v += stride) {
      From a;
#pragma unroll
      for (int e = 0; e < kCount; ++e) a.element[e] = in[head + v * kCount + e];
      transform(a, to + v);
    }
  }
  for (int64_t i = first; i < single; i += stride) {
    const int64_t e = i < head ? i : vectors * kCount + i;
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
