// SPDX-License-Identifier: Apache-2.0
// The loops of fold.h for minima and maxima.
#include "ndd/reduce/fold.h"

namespace ndd::reduce {
namespace {

template <class T>
using Smallest = Extreme<T, false>;
template <class T>
using Largest = Extreme<T, true>;

}  // namespace

void fold_extremes(bool maximum, const Reduction& shape, const Input& in, const TakeTotals& take) {
  if (maximum) fold_input<Largest>(shape, in, {}, take);
  else fold_input<Smallest>(shape, in, {}, take);
}

}  // namespace ndd::reduce
