// SPDX-License-Identifier: Apache-2.0
// A batch as a kernel sees it: N contiguous samples in one buffer, of one shape (dense) or each of its own (packed one after the other).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ndd/dtypes.h"
#include "ndd/error.h"
#include "ndd/tensor.h"

namespace ndd {

// Cheap to copy, and keeps its tensors alive: closures hold it by value.
class Samples {
 public:
  // `values` is (N, ...), or flat with `shapes`, an int64 CPU tensor (N, ndim).
  Samples(const Tensor& values, const MaybeTensor& shapes) : values_(values), dtype_(values.dtype()), item_bytes_(ndd::item_bytes(dtype_)) {
    data_ = static_cast<char*>(values.data_ptr());
    auto table = std::make_shared<Table>();
    if (shapes) {
      size_ = shapes->size(0);
      ndim_ = shapes->size(1);
      const auto* rows = static_cast<const int64_t*>(shapes->data_ptr());
      table->shapes.assign(rows, rows + size_ * ndim_);
      table->offsets.resize(size_ + 1);
      for (int64_t i = 0; i < size_; ++i) table->offsets[i + 1] = table->offsets[i] + product(rows + i * ndim_);
      if (table->offsets[size_] > values.numel()) fail("the buffer is smaller than the shapes of its samples");
    } else {
      const int64_t* sizes = values.sizes();
      size_ = sizes[0];
      ndim_ = values.dim() - 1;
      table->shapes.assign(sizes + 1, sizes + 1 + ndim_);
      dense_volume_ = product(table->shapes.data());
    }
    table_ = std::move(table);
  }

  int64_t size() const { return size_; }
  int64_t ndim() const { return ndim_; }
  DType dtype() const { return dtype_; }
  int64_t item_bytes() const { return item_bytes_; }
  bool dense() const { return dense_volume_ >= 0; }
  const int64_t* shape(int64_t i) const { return table_->shapes.data() + (dense() ? 0 : i * ndim_); }
  int64_t volume(int64_t i) const { return dense() ? dense_volume_ : table_->offsets[i + 1] - table_->offsets[i]; }
  // Elements of a sample on average: what its cost is estimated from.
  double mean_volume() const {
    if (dense()) return static_cast<double>(dense_volume_);
    return size_ > 0 ? static_cast<double>(table_->offsets[size_]) / static_cast<double>(size_) : 0.0;
  }
  // In elements from the start of the buffer.
  int64_t offset(int64_t i) const { return dense() ? i * dense_volume_ : table_->offsets[i]; }
  void* data(int64_t i) const { return data_ + offset(i) * item_bytes_; }
  const Tensor& values() const { return values_; }

 private:
  struct Table {
    std::vector<int64_t> shapes, offsets;
  };

  int64_t product(const int64_t* shape) const {
    int64_t n = 1;
    for (int64_t d = 0; d < ndim_; ++d) n *= shape[d];
    return n;
  }

  Tensor values_;
  char* data_;
  DType dtype_;
  int64_t item_bytes_, size_ = 0, ndim_ = 0, dense_volume_ = -1;
  std::shared_ptr<const Table> table_;
};

}  // namespace ndd
