// SPDX-License-Identifier: Apache-2.0
// The tiles of all runs of a launch, for a grid that stays: as many blocks as the GPU holds at a time, each of which takes every n-th tile of
// the batch. A grid with blocks for all tiles pays 1.1 to 2.2 us each time that a block ends and the next one reads its run again (from measurements
// on an H100: 27 and 109 waves).
//
// Every run has as many tiles as the largest one; those beyond its end are passed over in some 20 instructions, so a ragged batch needs no table of
// where its runs begin. If there are 2^31 tiles, runs have fewer of them, and a tile goes on where the last one ends: loops within a run have the
// stride `across`.
//
// Use it for short work on large batches, and where blocks have something to set up: tables in shared memory, weights, a large run.
// launch_runs.cuh is simpler, and enough where an element takes long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/elementwise/divisor.h"

namespace ndd {

struct BatchTiles {
  Divisor across;  // tiles of a run
  uint32_t total;
};

// For `runs` runs of at most `most` elements.
inline BatchTiles batch_tiles(int64_t most, int64_t tile_elements, int64_t runs) {
  const int64_t limit = std::max<int64_t>((Divisor::kLimit - 1) / runs, 1);
  const int64_t across = std::clamp<int64_t>((most + tile_elements - 1) / tile_elements, 1, limit);
  return {Divisor(across), static_cast<uint32_t>(across * runs)};
}

// Merges adjacent runs: `extend(last, next)` makes `last` cover `next`, or returns false. A dense batch whose samples share
// their arguments becomes a single run, which begins and ends once and whose table always fits among the parameters.
template <class Run, class Extend>
std::vector<Run> join_runs(const std::vector<Run>& runs, Extend extend) {
  std::vector<Run> joined;
  for (const Run& run : runs)
    if (joined.empty() || !extend(joined.back(), run)) joined.push_back(run);
  return joined;
}

// `resident` blocks for each multiprocessor, which the kernel's __launch_bounds__ promises.
inline unsigned resident_blocks(const BatchTiles& tiles, int resident) {
  return static_cast<unsigned>(std::min<int64_t>(tiles.total, resident * multiprocessors()));
}

#ifdef __CUDACC__
// Calls visit(run, tile) for this block's share of the tiles, with the same numbers in all its threads.
template <class Visit>
__device__ __forceinline__ void for_each_tile(const BatchTiles& tiles, Visit visit) {
#pragma unroll 1
  for (uint32_t n = blockIdx.x; n < tiles.total; n += gridDim.x) {
    const uint32_t run = tiles.across.quotient(n);
    visit(run, n - run * tiles.across.value);
  }
}
#endif

}  // namespace ndd
