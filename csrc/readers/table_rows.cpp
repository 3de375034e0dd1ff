// SPDX-License-Identifier: Apache-2.0
// Rows of tables in Arrow's memory for readers.Parquet, and for readers.Join, which compares their keys first. Native because with other programs on the
// cores each NumPy or torch call takes 5 to 10 us, and a batch would need 50 of them.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ndd/python_interface.h"

namespace ndd {
namespace {

// A column of a row group, as torch_ndd/readers/parquet/_groups.py describes it.
struct Field {
  int64_t offsets, width;  // the address and size of Arrow's offsets; 0 and the size of a number
  int64_t data;

  bool is_text() const { return offsets != 0; }

  int64_t offset(int64_t row) const {
    const auto address = static_cast<uintptr_t>(offsets);
    return width == 4 ? reinterpret_cast<const int32_t*>(address)[row] : reinterpret_cast<const int64_t*>(address)[row];
  }

  const char* begin(int64_t row) const {
    return reinterpret_cast<const char*>(static_cast<uintptr_t>(data)) + (is_text() ? offset(row) : row * width);
  }

  int64_t length(int64_t row) const { return is_text() ? offset(row + 1) - offset(row) : width; }
};

}  // namespace
}  // namespace ndd

// Finds the row group of each of `n` samples, where group g has the samples from begins[g] to begins[g + 1]. Sets `distinct` (n) to the groups in use,
// and for each sample its row in the group and the place of the group in `distinct`. Returns the number of distinct groups, -1 if a sample is
// in none of them.
NDD_EXPORT(keep, int64_t, ndd_find_groups,
           (const int64_t* samples, int64_t n, const int64_t* begins, int64_t groups, int64_t* rows, int64_t* places, int64_t* distinct)) {
  for (int64_t k = 0; k < n; ++k) {
    if (samples[k] < begins[0] || samples[k] >= begins[groups]) return -1;
    const int64_t group = std::upper_bound(begins, begins + groups, samples[k]) - begins - 1;
    rows[k] = samples[k] - begins[group];
    places[k] = distinct[k] = group;
  }
  std::sort(distinct, distinct + n);
  const int64_t count = std::unique(distinct, distinct + n) - distinct;
  for (int64_t k = 0; k < n; ++k) places[k] = std::lower_bound(distinct, distinct + count, places[k]) - distinct;
  return count;
}

// Compares the column `key` of `n` rows with keys, one after the other in `keys`; key k has key_lengths[k] bytes. Row k is rows[k] of group places[k],
// whose fields begin at fields[places[k] * columns]. A negative `key` compares nothing. Sets lengths[c * n + k] to the bytes of column c, and totals[c] to their sum.
// Returns whether all keys are equal.
NDD_EXPORT(keep, bool, ndd_compare_rows,
           (const void* fields, int64_t columns, int64_t key, const int64_t* rows, const int64_t* places, int64_t n, const uint8_t* keys,
            const int64_t* key_lengths, int64_t* lengths, int64_t* totals)) {
  const auto* table = static_cast<const ndd::Field*>(fields);
  for (int64_t k = 0; key >= 0 && k < n; ++k) {
    const ndd::Field& field = table[places[k] * columns + key];
    const int64_t length = key_lengths[k];
    if (field.length(rows[k]) != length) return false;
    if (length && std::memcmp(field.begin(rows[k]), keys, static_cast<size_t>(length)) != 0) return false;
    keys += length;
  }
  for (int64_t c = 0; c < columns; ++c) {
    totals[c] = 0;
    for (int64_t k = 0; k < n; ++k) totals[c] += lengths[c * n + k] = table[places[k] * columns + c].length(rows[k]);
  }
  return true;
}

// Copies the columns of rows that ndd_compare_rows has measured, each to its address in `outs`, unless that is 0.
NDD_EXPORT(release, void, ndd_copy_rows,
           (const void* fields, int64_t columns, const int64_t* rows, const int64_t* places, int64_t n, const int64_t* lengths,
            const int64_t* outs)) {
  const auto* table = static_cast<const ndd::Field*>(fields);
  for (int64_t c = 0; c < columns; ++c, lengths += n) {
    auto* out = reinterpret_cast<char*>(static_cast<uintptr_t>(outs[c]));
    if (!out) continue;
    for (int64_t k = 0; k < n; ++k) {
      if (lengths[k]) std::memcpy(out, table[places[k] * columns + c].begin(rows[k]), static_cast<size_t>(lengths[k]));
      out += lengths[k];
    }
  }
}
