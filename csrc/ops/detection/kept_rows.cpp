// SPDX-License-Identifier: Apache-2.0
// Copies the rows that a mask selects to a new table, of any type.
#include <cstring>

#include "ndd/host_numbers.h"
#include "ndd/kernel.h"

namespace ndd {
namespace {

Tensor kept_rows(const Tensor& rows, const Tensor& kept) {
  if (rows.is_cuda() || !rows.is_contiguous() || rows.dim() < 1) fail("ndd::kept_rows: the rows must be contiguous, in host memory");
  const int64_t count = rows.size(0);
  const auto* chosen = host_numbers<const bool>("ndd::kept_rows", "the mask", kept, count);
  int64_t left = 0;
  for (int64_t k = 0; k < count; ++k) left += chosen[k];
  std::vector<int64_t> shape(rows.sizes(), rows.sizes() + rows.dim());
  shape[0] = left;
  const Tensor selected = unfilled_tensor(shape, rows.dtype());
  const size_t bytes = count > 0 ? static_cast<size_t>(rows.numel() / count * item_bytes(rows.dtype())) : 0;
  const auto* from = static_cast<const char*>(rows.data_ptr());
  auto* to = static_cast<char*>(selected.data_ptr());
  for (int64_t k = 0; k < count; ++k, from += bytes) {
    if (!chosen[k] || bytes == 0) continue;
    std::memcpy(to, from, bytes);
    to += bytes;
  }
  return selected;
}

}  // namespace
}  // namespace ndd
NDD_FUNCTION(kept_rows, "(Tensor rows, Tensor kept) -> Tensor", ndd::kept_rows)
