// SPDX-License-Identifier: Apache-2.0
// Rows of tables in Arrow's memory for readers.Parquet, and for readers.Join, which compares their keys first. Native because with other programs on the
// cores each NumPy or torch call takes 5 to 10 us, and a batch would need 50 of them.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ndd/python_interface.h"
#include "readers/keys.h"

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

// What the rows of a column are in bytes, as Python reads it.
struct Size {
  int64_t total;
  int64_t common;  // the length of every row; -1 if they differ
};

// Finds the group of a sample and its row there, where group g has the samples from begins[g] to begins[g + 1]. `group` is a guess on entry: in order,
// a sample is nearly always in the group of the one before. Returns false if no group has it.
bool locate(int64_t sample, const int64_t* begins, int64_t groups, int64_t& row, int64_t& group) {
  if (sample < begins[0] || sample >= begins[groups]) return false;
  if (sample < begins[group] || sample >= begins[group + 1]) group = std::upper_bound(begins, begins + groups, sample) - begins - 1;
  row = sample - begins[group];
  return true;
}

// Rows of a batch: row k is rows[k] of group places[k], whose columns begin at fields[places[k] * columns].
struct Rows {
  const Field* fields;
  int64_t columns;
  const int64_t *rows, *places;
  int64_t n;

  const Field& field(int64_t k, int64_t column) const { return fields[places[k] * columns + column]; }

  // Whether a column has these keys, one after the other in `keys`.
  bool has_keys(int64_t column, const uint8_t* keys, const int64_t* key_lengths) const {
    for (int64_t k = 0; k < n; ++k) {
      const int64_t length = key_lengths[k];
      if (field(k, column).length(rows[k]) != length) return false;
      if (length && std::memcmp(field(k, column).begin(rows[k]), keys, static_cast<size_t>(length)) != 0) return false;
      keys += length;
    }
    return true;
  }

  // Sets lengths[c * n + k] to the bytes of column c.
  void measure(int64_t* lengths, Size* sizes) const {
    for (int64_t c = 0; c < columns; ++c, lengths += n) {
      sizes[c] = {0, n ? field(0, c).length(rows[0]) : -1};
      for (int64_t k = 0; k < n; ++k) {
        sizes[c].total += lengths[k] = field(k, c).length(rows[k]);
        if (lengths[k] != sizes[c].common) sizes[c].common = -1;
      }
    }
  }
};

}  // namespace
}  // namespace ndd

// Finds the row group of each of `n` samples, where group g has the samples from begins[g] to begins[g + 1]. Sets `distinct` (n) to the groups in use,
// and for each sample its row in the group and the place of the group in `distinct`. Returns the number of distinct groups, -1 if a sample is
// in none of them.
NDD_EXPORT(keep, int64_t, ndd_find_groups,
           (const int64_t* samples, int64_t n, const int64_t* begins, int64_t groups, int64_t* rows, int64_t* places, int64_t* distinct)) {
  int64_t group = 0, count = 0;
  for (int64_t k = 0; k < n; ++k) {
    if (!ndd::locate(samples[k], begins, groups, rows[k], group)) return -1;
    places[k] = group;
    if (count == 0 || distinct[count - 1] != group) distinct[count++] = group;
  }
  std::sort(distinct, distinct + count);
  count = std::unique(distinct, distinct + count) - distinct;
  int64_t place = 0;
  for (int64_t k = 0; k < n; ++k) {
    if (distinct[place] != places[k]) place = std::lower_bound(distinct, distinct + count, places[k]) - distinct;
    places[k] = place;
  }
  return count;
}

// Compares the column `key` of `n` rows with keys, one after the other in `keys`; key k has key_lengths[k] bytes. Row k is rows[k] of group places[k],
// whose fields begin at fields[places[k] * columns]. A negative `key` compares nothing. Sets lengths[c * n + k] to the bytes of column c, and sizes[c]
// to their sum and to what all have in common. Returns whether all keys are equal.
NDD_EXPORT(keep, bool, ndd_compare_rows,
           (const void* fields, int64_t columns, int64_t key, const int64_t* rows, const int64_t* places, int64_t n, const uint8_t* keys,
            const int64_t* key_lengths, int64_t* lengths, void* sizes)) {
  const ndd::Rows found{static_cast<const ndd::Field*>(fields), columns, rows, places, n};
  if (key >= 0 && !found.has_keys(key, keys, key_lengths)) return false;
  found.measure(lengths, static_cast<ndd::Size*>(sizes));
  return true;
}

// Finds `n` keys in a table of keys (csrc/readers/keys.h) and in the row groups of all samples, and compares and measures as ndd_compare_rows does, with
// the number of a group as its place. One call, because each one takes a batch several microseconds.
NDD_EXPORT(keep, bool, ndd_match_rows,
           (const uint8_t* keys, const int64_t* key_lengths, int64_t n, uint64_t salt, const uint64_t* sorted, const int64_t* table, int64_t size,
            const int64_t* begins, int64_t groups, const void* fields, int64_t columns, int64_t key, int64_t* samples, int64_t* rows, int64_t* places,
            int64_t* lengths, void* sizes)) {
  const ndd::KeyTable known{salt, sorted, table, size};
  const uint8_t* content = keys;
  int64_t group = 0;
  for (int64_t k = 0; k < n; content += key_lengths[k++]) {
    samples[k] = known.find(content, key_lengths[k]);
    if (!ndd::locate(samples[k], begins, groups, rows[k], group)) return false;
    places[k] = group;
  }
  const ndd::Rows found{static_cast<const ndd::Field*>(fields), columns, rows, places, n};
  if (!found.has_keys(key, keys, key_lengths)) return false;
  found.measure(lengths, static_cast<ndd::Size*>(sizes));
  return true;
}

// Copies the columns of rows that ndd_compare_rows or ndd_match_rows has measured: the values of column c to outs[2 * c], unless that is 0, and their
// lengths to outs[2 * c + 1], unless that is 0.
NDD_EXPORT(release, void, ndd_copy_rows,
           (const void* fields, int64_t columns, const int64_t* rows, const int64_t* places, int64_t n, const int64_t* lengths,
            const int64_t* outs)) {
  const ndd::Rows found{static_cast<const ndd::Field*>(fields), columns, rows, places, n};
  for (int64_t c = 0; c < columns; ++c, lengths += n) {
    auto* out = reinterpret_cast<char*>(static_cast<uintptr_t>(outs[2 * c]));
    if (!out) continue;
    if (outs[2 * c + 1]) std::copy_n(lengths, n, reinterpret_cast<int64_t*>(static_cast<uintptr_t>(outs[2 * c + 1])));
    for (int64_t k = 0, end; k < n; k = end) {
      int64_t size = 0;  // of rows that follow each other in one group: so do their values
      for (end = k; end < n && rows[end] - rows[k] == end - k && places[end] == places[k]; ++end) size += lengths[end];
      if (size) std::memcpy(out, found.field(k, c).begin(rows[k]), static_cast<size_t>(size));
      out += size;
    }
  }
}
