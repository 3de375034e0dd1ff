// SPDX-License-Identifier: Apache-2.0
// The objects of a label mask: connected pixels of one label, found through runs of equal pixels (union-find over the runs of neighboring rows).
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "ndd/dtypes.h"

namespace ndd {

// Pixels are neighbors if they share a side. Objects are in the order of their first pixels, which fixes the meaning of a random number.
struct MaskObjects {
  int64_t ndim = 0;
  std::vector<int64_t> labels;       // of each object
  std::vector<int64_t> begin, end;   // of its box, ndim numbers for each object

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  int64_t extent(int64_t object, int64_t d) const { return end[object * ndim + d] - begin[object * ndim + d]; }
  int64_t volume(int64_t object) const {
    int64_t product = 1;
    for (int64_t d = 0; d < ndim; ++d) product *= extent(object, d);
    return product;
  }
};

namespace objects_detail {

struct Run {
  int64_t label, begin, end;
  // A run of the same object with a smaller index, or itself.
  int64_t parent;
};

// The end of the run of equal elements that begins at `i`. Blocks of 16 compare without branches, so they vectorize: backgrounds are long.
template <class T>
int64_t run_end(const T* row, int64_t i, int64_t n) {
  const T value = row[i];
  constexpr int64_t kBlock = 16;
  for (; i + kBlock <= n; i += kBlock) {
    int differs = 0;
    for (int64_t k = 0; k < kBlock; ++k) differs |= row[i + k] != value;
    if (differs) break;
  }
  while (i < n && row[i] == value) ++i;
  return i;
}

// Path halving keeps the trees flat without recursion.
inline int64_t root_of(std::vector<Run>& runs, int64_t k) {
  // Each step also links a run to its parent's parent.
  while (runs[k].parent != k) k = runs[k].parent = runs[runs[k].parent].parent;
  return k;
}

// Joins the runs of two rows that touch; `a` and `b` are the first runs, up to `a_end` and `b_end`.
// The row whose run ends first advances, so each pair of touching runs is seen once.
inline void join_rows(std::vector<Run>& runs, int64_t a, int64_t a_end, int64_t b, int64_t b_end) {
  while (a < a_end && b < b_end) {
    if (runs[a].label == runs[b].label && runs[a].begin < runs[b].end && runs[b].begin < runs[a].end) {
      const int64_t root_a = root_of(runs, a), root_b = root_of(runs, b);
      if (root_a < root_b) runs[root_b].parent = root_a;
      else runs[root_a].parent = root_b;
    }
    if (runs[a].end < runs[b].end) ++a;
    else ++b;
  }
}

}  // namespace objects_detail

// `label_of` turns an element into a label, or kNoObject.
constexpr int64_t kNoObject = INT64_MIN;

// Two passes over the runs: the first joins touching runs of neighboring rows along every outer axis, the second collects a box for each root. The root of a
// component is its first run, because join_rows() always links to the smaller index.
template <class T, class Label>
MaskObjects find_objects(const T* data, const int64_t* shape, int64_t ndim, Label label_of) {
  using namespace objects_detail;
  MaskObjects objects;
  objects.ndim = ndim;
  const int64_t width = shape[ndim - 1];
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < ndim; ++d) rows *= shape[d];
  if (rows * width == 0) return objects;
  std::vector<Run> runs;
  // `first`: where each row's runs begin. `at`: the row's place in the outer axes. `stride`: rows from one place of an outer axis to the next.
  std::vector<int64_t> first(rows + 1, 0), at(ndim, 0), stride(ndim, 1);
  for (int64_t d = ndim - 3; d >= 0; --d) stride[d] = stride[d + 1] * shape[d + 1];
  T known{};
  int64_t known_label = label_of(known);
  for (int64_t r = 0; r < rows; ++r) {
    first[r] = static_cast<int64_t>(runs.size());
    const T* row = data + r * width;
    for (int64_t i = 0; i < width;) {
      const int64_t end = run_end(row, i, width);
      // Labels are looked up when the pixel's number changes: most runs alternate between a few.
      if (row[i] != known) {
        known = row[i];
        known_label = label_of(known);
      }
      if (known_label != kNoObject) {
        const int64_t k = static_cast<int64_t>(runs.size());
        // Different numbers may have one label.
        if (k > first[r] && runs.back().label == known_label && runs.back().end == i) runs.back().end = end;
        else runs.push_back({known_label, i, end, k});
      }
      i = end;
    }
    first[r + 1] = static_cast<int64_t>(runs.size());
    for (int64_t d = 0; d + 1 < ndim; ++d)
      // The row before along axis d, if there is one.
      if (at[d] > 0) join_rows(runs, first[r - stride[d]], first[r - stride[d] + 1], first[r], first[r + 1]);
    // The next place in the outer axes, as an odometer.
    for (int64_t d = ndim - 2; d >= 0 && ++at[d] == shape[d]; --d) at[d] = 0;
  }
  std::vector<int64_t> object(runs.size());
  std::fill(at.begin(), at.end(), 0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = first[r]; k < first[r + 1]; ++k) {
      const int64_t root = root_of(runs, k);
      // The first run of an object opens it, so the others find its box.
      if (root == k) {
        object[k] = objects.size();
        objects.labels.push_back(runs[k].label);
        for (int64_t d = 0; d < ndim; ++d) {
          objects.begin.push_back(d + 1 < ndim ? at[d] : runs[k].begin);
          objects.end.push_back(d + 1 < ndim ? at[d] + 1 : runs[k].end);
        }
        continue;
      }
      int64_t *low = objects.begin.data() + object[root] * ndim, *high = objects.end.data() + object[root] * ndim;
      for (int64_t d = 0; d < ndim; ++d) {
        const int64_t begin = d + 1 < ndim ? at[d] : runs[k].begin, end = d + 1 < ndim ? at[d] + 1 : runs[k].end;
        if (begin < low[d]) low[d] = begin;
        if (end > high[d]) high[d] = end;
      }
    }
    for (int64_t d = ndim - 2; d >= 0 && ++at[d] == shape[d]; --d) at[d] = 0;
  }
  return objects;
}

}  // namespace ndd
