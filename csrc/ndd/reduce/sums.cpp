// SPDX-License-Identifier: Apache-2.0
// The loops of fold.h for sums and means.
#include "ndd/reduce/fold.h"

namespace ndd::reduce {
namespace {

template <class T>
using ExactSum = Add<T, true>;
// The same loops, except for 64-bit integers: other sums do not overflow, and have the same bits signed or unsigned.
template <class T>
using MeanSum = Add<T, !std::is_same_v<T, int64_t>>;

}  // namespace

void fold_sums(bool exact, const Reduction& shape, const Input& in, const TakeTotals& take) {
  if (exact) fold_input<ExactSum>(shape, in, {}, take);
  else fold_input<MeanSum>(shape, in, {}, take);
}

}  // namespace ndd::reduce
