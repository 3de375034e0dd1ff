// SPDX-License-Identifier: Apache-2.0
// The launch that most operators need on the GPU: runs of elements, one or several for each sample, each with a row of the grid.
//
// A run has what its elements need: addresses, a count, and the arguments of its sample, frame or channel. The kernel gets the table of runs and
// their number, loops over runs by blockIdx.y and over the elements of each by blockIdx.x. Use it where a thread has an element or a few. For
// element-wise functions pointwise.h has the loops too, and batch_tiles.cuh keeps the blocks where reading a run takes long.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "ndd/cuda.h"

namespace ndd {

// Calls launch(grid, rows, count), which starts kernels on the current stream; not if no run has elements. `size_of` is a function or a member of a
// run: its number of elements, of which a block takes `per_block`. All rows of the grid are as long as the largest run needs; blocks beyond the end of
// a smaller one leave their loop at its start.
template <class Run, class SizeOf, class Launch>
void launch_runs(const char* op, const std::vector<Run>& runs, SizeOf size_of, int64_t per_block, Launch launch) {
  int64_t most = 0;
  for (const Run& run : runs) most = std::max<int64_t>(most, std::invoke(size_of, run));
  if (most == 0) return;
  const KernelTable<Run> table(runs);
  const auto count = static_cast<int64_t>(runs.size());
  launch(batch_grid(most, per_block, count), table.rows(), count);
  check_launch(op);
}

}  // namespace ndd
