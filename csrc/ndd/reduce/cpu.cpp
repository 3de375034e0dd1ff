// SPDX-License-Identifier: Apache-2.0
// Chooses the loop and the conversion of the elements for a reduction, and stores its results in the output's type.
#include "ndd/reduce/cpu.h"

#include <algorithm>
#include <cmath>

#include "ndd/elementwise/convert.h"
#include "ndd/elementwise/rows.h"
#include "ndd/reduce/fold.h"
#include "ndd/simd.h"

namespace ndd::reduce {
namespace {

bool is_square(Fold fold) { return fold == Fold::squares || fold == Fold::distances; }

// The element type of the loop that folds `in` without loss, or in the type in which its squares are taken.
// The fewer types, the faster the build; see fold.h.
DType lane_dtype(Fold fold, DType in) {
  // A sum of such squares does not fit in 64 bits.
  if (is_square(fold) && !is_floating_dtype(in) && item_bytes(in) >= 4) return DType::float64;
  switch (in) {
    case DType::uint8:
    case DType::boolean:  // values 0 and 1
      return DType::uint8;
    case DType::int8:
    case DType::int16: return DType::int16;
    case DType::uint16: return DType::uint16;
    case DType::int32: return DType::int32;
    case DType::uint32:
    case DType::int64: return DType::int64;
    case DType::uint64:  // a sum has the same bits modulo 2^64; for extremes, 2^63 is subtracted first to keep the order
      return fold == Fold::mean ? DType::float64 : DType::int64;
    case DType::float16:
    case DType::bfloat16:
    case DType::float32: return DType::float32;
    default: return DType::float64;
  }
}

template <DType in, DType out>
void convert_elements(const void* from, int64_t n, void* to) {
  convert_run(from, in, n, to, out);
}

// Flips the top bit, which maps uint64 to int64 in order, and back.
void shift_unsigned(const void* from, int64_t n, void* to) {
  const auto* values = static_cast<const uint64_t*>(from);
  for (int64_t k = 0; k < n; ++k) static_cast<uint64_t*>(to)[k] = values[k] ^ (uint64_t{1} << 63);
}

StageElements stage_of(Fold fold, DType in) {
  if (lane_dtype(fold, in) == DType::float64) {
    switch (in) {
      case DType::int32: return convert_elements<DType::int32, DType::float64>;
      case DType::uint32: return convert_elements<DType::uint32, DType::float64>;
      case DType::int64: return convert_elements<DType::int64, DType::float64>;
      case DType::uint64: return convert_elements<DType::uint64, DType::float64>;
      default: break;
    }
  }
  switch (in) {
    case DType::int8: return convert_elements<DType::int8, DType::int16>;
    case DType::uint32: return convert_elements<DType::uint32, DType::int64>;
    case DType::uint64: return fold == Fold::sum ? nullptr : shift_unsigned;
    case DType::float16: return convert_elements<DType::float16, DType::float32>;
    case DType::bfloat16: return convert_elements<DType::bfloat16, DType::float32>;
    default: return nullptr;
  }
}

bool is_extreme(Fold fold) { return fold == Fold::smallest || fold == Fold::largest; }

// Converts totals, int64 or double, to results: as float, or as doubles for a saturating store. Integers are truncated, as in DALI.
template <class Total, class Out>
void finish_row(const Finisher& finisher, const void* totals, int64_t n, bool cut, Out* out) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    const Total* __restrict from = static_cast<const Total*>(totals);
    Out* __restrict to = out;
    const Finisher finish = finisher;
    const int64_t count = n;
    for (int64_t k = 0; k < count; ++k) to[k] = static_cast<Out>(finish.value(static_cast<double>(from[k])));
    // A loop of its own, so the one above stays short. NaN, which no integer is, becomes 0.
    if (!cut) return;
    for (int64_t k = 0; k < count; ++k) to[k] = to[k] == to[k] ? std::trunc(to[k]) : Out{};
  });
}

template <class Out>
void finish_totals(const Finisher& finisher, const void* totals, DType type, int64_t n, bool cut, Out* out) {
  if (type == DType::int64) finish_row<int64_t>(finisher, totals, n, cut, out);
  else finish_row<double>(finisher, totals, n, cut, out);
}

constexpr int64_t kFinished = kLanes;  // the most totals that are handed over together

}  // namespace

DType total_dtype(Fold fold, DType in) {
  const DType lane = lane_dtype(fold, in);
  if (is_extreme(fold)) return in == DType::uint64 ? in : lane;
  if (is_floating_dtype(lane) || fold == Fold::distances) return DType::float64;
  if (fold == Fold::sum) return DType::uint64;
  return fold == Fold::mean && lane == DType::int64 ? DType::float64 : DType::int64;
}

void fold_sample(Fold fold, const Reduction& shape, const void* in, DType dtype, Centers centers, const TakeTotals& take) {
  const Input input{in, lane_dtype(fold, dtype), item_bytes(dtype), stage_of(fold, dtype)};
  switch (fold) {
    case Fold::sum:
    case Fold::mean: return fold_sums(fold == Fold::sum, shape, input, take);
    case Fold::squares: return fold_squares(shape, input, take);
    case Fold::distances: return fold_distances(shape, input, centers, take);
    case Fold::smallest:
    case Fold::largest:
      if (dtype != DType::uint64) return fold_extremes(fold == Fold::largest, shape, input, take);
      return fold_extremes(fold == Fold::largest, shape, input, [&](int64_t first, int64_t n, const void* totals) {
        uint64_t shifted[kFinished];
        shift_unsigned(totals, n, shifted);
        take(first, n, shifted);
      });
  }
}

void reduce_sample(Fold fold, const Reduction& shape, const Finisher& finisher, const void* in, DType in_dtype, Centers centers, void* out,
                   DType out_dtype) {
  const DType type = total_dtype(fold, in_dtype);
  // Nothing to compute: whole sums and elements of the input are only converted.
  const bool exact = type == DType::uint64 || is_extreme(fold);
  // Integer sums are signed if the elements are.
  const DType from = fold == Fold::sum && exact && is_signed_dtype(in_dtype) ? DType::int64 : type;
  const StoreRowOf<double> store = row_storer<double>(out_dtype);
  fold_sample(fold, shape, in, in_dtype, centers, [&](int64_t first, int64_t n, const void* totals) {
    char* const to = static_cast<char*>(out) + first * item_bytes(out_dtype);
    if (exact) return convert_run(totals, from, n, to, out_dtype);
    if (out_dtype == DType::float32) return finish_totals(finisher, totals, type, n, false, reinterpret_cast<float*>(to));
    alignas(64) double values[kFinished];
    finish_totals(finisher, totals, type, n, !is_floating_dtype(out_dtype) && out_dtype != DType::boolean, values);
    store(values, n, to);
  });
}

}  // namespace ndd::reduce
