// SPDX-License-Identifier: Apache-2.0
// Arithmetic on CUDA: every operand is brought into the type of computation, tile by tile, whatever its type is. Whether an operand is read in order, is
// one number or is repeated is decided on the host, once for every sample.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/batch_tiles.cuh"
#include "ndd/elementwise/broadcast.h"
#include "ndd/elementwise/tiles.cuh"
#include "ops/math/arithmetic.h"

namespace ndd::arithmetic_gpu {

constexpr int kMaxOperands = 3;

// other: three or more dimensions, some of them repeated, or 2^31 elements. The slow path: one element at a time, with divisions of 64 bits.
enum class Order : int32_t { same, one_number, planes, other };

// How a run reads one of its operands; decided on the host by operand_of().
struct Operand {
  const void* data;
  Planes planes;
  Order order;
  // Used for elements that lie in no vector, and for Order::other.
  int64_t broadcast;  // among those of the launch
};

// A sample, or several that continue each other, see join().
struct Run {
  Operand in[kMaxOperands];
  void* out;
  int64_t count;
  bool one_by_one;  // an operand is in Order::other
};

struct Types {
  DType in[kMaxOperands], out;
};

// How the operand is read. Single elements of what is repeated, at the ends of a run, are found by its broadcast, which goes to `broadcasts`.
inline Operand operand_of(const void* data, const Broadcast& shape, std::vector<Broadcast>& broadcasts) {
  if (shape.period() == shape.count) return {data, {}, Order::same, 0};
  if (shape.period() == 1) return {data, {}, Order::one_number, 0};
  // Equal broadcasts in succession are stored once.
  Operand result{data, {}, Order::other, static_cast<int64_t>(broadcasts.size()) - 1};
  if (broadcasts.empty() || !(broadcasts.back() == shape)) {
    broadcasts.push_back(shape);
    ++result.broadcast;
  }
  if (shape.ndim == 2 && shape.count < Divisor::kLimit) {
    result.order = Order::planes;
    result.planes = {Divisor(shape.extent[0]), static_cast<uint32_t>(shape.stride[0]), static_cast<uint32_t>(shape.stride[1])};
  }
  return result;
}

// Integers narrower than T keep its lowest bits.
template <class T>
struct Load {
  template <class In>
  NDD_HD T operator()(In value) const {
    if constexpr (is_half<In>) return static_cast<T>(static_cast<float>(value));
    else return static_cast<T>(value);
  }
};

struct Store {
  template <class Out, class T>
  NDD_HD Out operator()(TypeTag<Out>, T value) const {
    if constexpr (is_half<Out>) return static_cast<Out>(static_cast<float>(value));
    else return static_cast<Out>(value);
  }
};

template <class T, int rows, int width>
__device__ __forceinline__ void load_operand(const Operand& operand, DType dtype, const Broadcast* broadcasts, const tiles::Place<rows, width>& at,
                                             T number, T (&values)[rows][width]) {
  if (operand.order == Order::same) return tiles::load(operand.data, dtype, at, values, Load<T>{});
  if (operand.order == Order::one_number) {
#pragma unroll
    for (int g = 0; g < rows; ++g)
#pragma unroll
      for (int k = 0; k < width; ++k) values[g][k] = number;
    return;
  }
  // Tiles are only cut where there are fewer than 2^31 elements.
  using Index = std::conditional_t<width == 1, int64_t, uint32_t>;
#pragma unroll
  for (int g = 0; g < rows; ++g) {
    Index index[width] = {};
    if constexpr (width == 1) index[0] = broadcasts[operand.broadcast].locate(at.first);
    else if (at.has(g)) operand.planes.for_neighbors<width>(at.row(g), [&](int k, uint32_t found) { index[k] = found; });
    for_dtype(dtype, [&](auto tag) {
      const auto* const from = static_cast<const typename decltype(tag)::type*>(operand.data);
#pragma unroll
      for (int k = 0; k < width; ++k) values[g][k] = Load<T>{}(tiles::load_one(from + index[k]));
    });
  }
}

template <class T>
__device__ T load_number(const Operand& operand, DType dtype) {
  T value{};
  if (operand.order == Order::one_number)
    for_dtype(dtype, [&](auto tag) { value = Load<T>{}(*static_cast<const typename decltype(tag)::type*>(operand.data)); });
  return value;
}

// The first step of Op::clamp.
template <class T, int rows, int width>
__device__ __forceinline__ void clamp_from_below(T (&a)[rows][width], const T (&low)[rows][width]) {
#pragma unroll
  for (int g = 0; g < rows; ++g)
#pragma unroll
    for (int e = 0; e < width; ++e) a[g][e] = a[g][e] < low[g][e] ? low[g][e] : a[g][e];
}

// Rows of four elements of a thread. Four are 16 bytes of uint8 in flight, for the two types in which most is computed; 64-bit types have no registers
// for so many, and functions of the C library are bound by instructions.
template <class T, bool slow>
inline constexpr int kRows = slow                                                     ? 1
                             : std::is_same_v<T, float> || std::is_same_v<T, int32_t> ? 4
                                                                                      : 2;

// Tiles that a block computes for a run at a time: numbers are read once for all of them, at the latency of two loads one after the other.
constexpr int kTilesOfNumbers = 4;
constexpr int resident_of(bool slow, size_t bytes) { return slow || bytes == 8 ? 3 : 4; }

// a = op(a, b), element by element. A function of the C library has up to 300 instructions: the loop over the elements is not unrolled, and
// because registers cannot be indexed, the elements rotate through the first one. All others are unrolled.
template <Op op, bool slow, class T, int rows, int width>
__device__ __forceinline__ void apply(T (&a)[rows][width], T (&b)[rows][width]) {
  const auto result = [](T x, T y) { return static_cast<T>(function<op>(x, op == Op::clamp ? x : y, y)); };
  if constexpr (slow && width > 1) {
    static_assert(rows == 1);
#pragma unroll 1
    for (int n = 0; n < width; ++n) {
      const T value = result(a[0][0], b[0][0]), first = b[0][0];
#pragma unroll
      for (int e = 0; e + 1 < width; ++e) a[0][e] = a[0][e + 1], b[0][e] = b[0][e + 1];
      a[0][width - 1] = value;
      b[0][width - 1] = first;
    }
  } else {
#pragma unroll
    for (int g = 0; g < rows; ++g)
#pragma unroll
      for (int e = 0; e < width; ++e) a[g][e] = result(a[g][e], b[g][e]);
  }
}

// The functions of the C library have a separate kernel, because their registers would halve the occupancy of the others.
template <class T, bool slow>
__global__ void __launch_bounds__(tiles::kThreads, resident_of(slow, sizeof(T)))
    run_gpu(const __grid_constant__ TableRows<Run> runs, const Broadcast* broadcasts, BatchTiles batch, Types types, Op op, int operands) {
  for_each_tile(batch, [&](uint32_t k, uint32_t tile) {
    const Run& run = runs[k];
    void* const out = run.out;
    assume_global(out);
    // Operands that are one number are loaded once by each thread.
    const T first = load_number<T>(run.in[0], types.in[0]), second = operands > 1 ? load_number<T>(run.in[1], types.in[1]) : T{};
    const auto body = [&](auto at) {
      constexpr int rows = decltype(at)::kRows, width = decltype(at)::kElements;
      T a[rows][width], b[rows][width] = {};
#pragma unroll 1
      // The operand is loaded into b; the first one moves to a. The loop is not unrolled, so there is one copy of the code for all types.
      for (int n = 0; n < operands; ++n) {
        if (n > 1) clamp_from_below(a, b);  // registers for two operands are enough
        load_operand(run.in[n], types.in[n], broadcasts, at, n > 1 ? load_number<T>(run.in[n], types.in[n]) : n > 0 ? second : first, b);
        if (n > 0) continue;
#pragma unroll
        for (int g = 0; g < rows; ++g)
#pragma unroll
          for (int e = 0; e < width; ++e) a[g][e] = b[g][e];
      }
      for_op(op, [&](auto constant) {
        constexpr Op kOp = decltype(constant)::value;
        if constexpr (is_slow(kOp) == slow && has_function<T>(kOp)) apply<kOp, slow>(a, b);
      });
      tiles::store(a, out, types.out, at, Store{});
    };
    tiles::for_each<kRows<T, slow>>(out, item_bytes(types.out), run.count, tile, batch.across.value, body, run.one_by_one);
  });
}

// Runs whose operands and results continue each other are one: a dense batch, whose second operand is a number that all samples share.
inline std::vector<Run> join(const std::vector<Run>& runs, const Types& types, int operands) {
  return join_runs(runs, [&](Run& last, const Run& next) {
    const auto follows = [&](const void* before, const void* data, DType dtype) {
      return static_cast<const char*>(before) + last.count * item_bytes(dtype) == data;
    };
    bool all = follows(last.out, next.out, types.out) && !last.one_by_one && !next.one_by_one;
    for (int n = 0; n < operands && all; ++n) {
      const Operand &a = last.in[n], &b = next.in[n];
      all = a.order == b.order && (a.order == Order::same         ? follows(a.data, b.data, types.in[n])
                                   : a.order == Order::one_number ? a.data == b.data
                                                                  : false);
    }
    if (all) last.count += next.count;
    return all;
  });
}

inline void launch(Op op, DType computed, const Types& types, const std::vector<Run>& all_runs, const std::vector<Broadcast>& broadcasts) {
  const std::vector<Run> runs = join(all_runs, types, arity(op));
  int64_t max_count = 0;
  for (const Run& run : runs) max_count = std::max(max_count, run.count);
  if (max_count == 0) return;
  const KernelTable<Run> table(runs);
  // Nearly always empty: an upload, its memory and its event take the host 20 of 35 us.
  std::optional<CudaTable<Broadcast>> shapes;
  if (!broadcasts.empty()) shapes.emplace(broadcasts);
  const auto launch_in = [&](auto tag, auto is_slow_op) {
    using T = typename decltype(tag)::type;
    constexpr bool slow = decltype(is_slow_op)::value;
    const BatchTiles batch = batch_tiles(max_count, kTilesOfNumbers * tiles::elements<kRows<T, slow>>, static_cast<int64_t>(runs.size()));
    run_gpu<T, slow><<<resident_blocks(batch, resident_of(slow, sizeof(T))), tiles::kThreads, 0, current_cuda_stream()>>>(
        table.rows(), shapes ? shapes->data() : nullptr, batch, types, op, arity(op));
  };
  const auto launch_floating = [&](auto tag) { is_slow(op) ? launch_in(tag, std::true_type{}) : launch_in(tag, std::false_type{}); };
  switch (computed) {
    case DType::float32: launch_floating(TypeTag<float>{}); break;
    case DType::float64: launch_floating(TypeTag<double>{}); break;
    case DType::uint32: launch_in(TypeTag<uint32_t>{}, std::false_type{}); break;
    case DType::int64: launch_in(TypeTag<int64_t>{}, std::false_type{}); break;
    case DType::uint64: launch_in(TypeTag<uint64_t>{}, std::false_type{}); break;
    default:  // int32 and everything narrower
      launch_in(TypeTag<int32_t>{}, std::false_type{});
  }
  check_launch("arithmetic");
}

}  // namespace ndd::arithmetic_gpu
