// SPDX-License-Identifier: Apache-2.0
// The loops of fold.h for squares and squared distances.
#include "ndd/reduce/fold.h"

namespace ndd::reduce {

void fold_squares(const Reduction& shape, const Input& in, const TakeTotals& take) { fold_input<AddSquare, false>(shape, in, {}, take); }

void fold_distances(const Reduction& shape, const Input& in, Centers centers, const TakeTotals& take) {
  fold_input<AddSquaredDistance, false>(shape, in, centers, take);
}

}  // namespace ndd::reduce
