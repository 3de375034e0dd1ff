// SPDX-License-Identifier: Apache-2.0
// A batch as a kernel sees it: N contiguous samples in one buffer, either all of one shape (dense) or each of its own shape, packed one after the
// other. In a packed batch, samples start wherever the previous one ends: data(i) is aligned to the element type only, so vector loads must allow for
// that.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ndd/dtypes.h"
#include "ndd/error.h"
#include "ndd/tensor.h"

namespace ndd {

// Cheap to copy, and keeps its tensors alive: closures hold it by value. Indices of samples are checked, once for each access: a kernel that torch.ops
// calls with fewer outputs than inputs, or with fewer inputs, fails instead of reading and writing beside them.
class Samples {
 public:
  // `values` is (N, ...), or flat together with `shapes`, an int64 CPU tensor (N, ndim); both contiguous. Throws if the shapes do not fit into the buffer.
  Samples(const Tensor& values, const MaybeTensor& shapes);
  // A dense batch whose samples may all lie in the same memory (stride 0), for kernels that read the first one for all of them.
  static Samples possibly_repeated(const Tensor& values, const MaybeTensor& shapes);
  Samples(const Samples& other);
  Samples(Samples&& other) noexcept;
  Samples& operator=(const Samples& other);
  Samples& operator=(Samples&& other) noexcept;
  ~Samples();

  int64_t size() const { return size_; }
  int64_t ndim() const { return ndim_; }
  DType dtype() const { return dtype_; }
  int64_t item_bytes() const { return item_bytes_; }
  bool dense() const { return dense_volume_ >= 0; }
  // Of dense batches without samples too.
  const int64_t* shape(int64_t i) const { return table_->shapes.data() + (dense() ? 0 : checked(i) * ndim_); }
  int64_t volume(int64_t i) const { return dense() ? dense_volume_ : table_->offsets[checked(i) + 1] - table_->offsets[i]; }
  // The mean number of elements per sample, for cost estimates.
  double mean_volume() const {
    if (dense()) return static_cast<double>(dense_volume_);
    return size_ > 0 ? static_cast<double>(table_->offsets[size_]) / static_cast<double>(size_) : 0.0;
  }
  // The position of sample i, in elements from the start of the buffer.
  int64_t offset(int64_t i) const { return dense() ? checked(i) * dense_volume_ : table_->offsets[checked(i)]; }
  void* data(int64_t i) const { return data_ + offset(i) * item_bytes_; }
  // Where the batch begins, also one without samples: to compare, not to read from.
  const void* address() const { return data_; }
  const Tensor& values() const { return values_; }

 private:
  struct Table {
    std::vector<int64_t> shapes, offsets;
  };

  Samples(const Tensor& values, const MaybeTensor& shapes, bool may_repeat);

  int64_t checked(int64_t i) const {
    if (static_cast<uint64_t>(i) >= static_cast<uint64_t>(size_)) fail_at(i);
    return i;
  }
  [[noreturn]] void fail_at(int64_t i) const;

  Tensor values_;
  char* data_;
  DType dtype_;
  int64_t item_bytes_, size_ = 0, ndim_ = 0, dense_volume_ = -1;
  std::shared_ptr<const Table> table_;
};

// Whether all samples of a dense batch are the same contiguous memory.
bool repeats_a_sample(const Tensor& values);

// The number of elements of samples with these shapes, a row of `ndim` extents each; -1 if there are too many for 64 bits, or if an extent is negative.
int64_t count_elements(const int64_t* shapes, int64_t samples, int64_t ndim);

// Throws unless `out` has `samples` samples of volume_of(i) elements. Python allocates outputs that fit, but torch.ops can call a kernel with others.
template <class VolumeOf>
void check_outputs(const char* op, const Samples& out, int64_t samples, VolumeOf volume_of) {
  if (out.size() != samples) fail(Error::Value, op, ": the output must have ", samples, " samples, got ", out.size());
  for (int64_t i = 0; i < samples; ++i)
    if (const int64_t volume = volume_of(i); out.volume(i) != volume)
      fail(Error::Value, op, ": sample ", i, " of the output must have ", volume, " elements, got ", out.volume(i));
}

// For outputs with the shapes of the input.
inline void check_outputs(const char* op, const Samples& out, const Samples& in) {
  check_outputs(op, out, in.size(), [&](int64_t i) { return in.volume(i); });
}

// For outputs with the shapes and the type of the input.
inline void check_same(const char* op, const Samples& out, const Samples& in) {
  if (out.dtype() != in.dtype()) fail(Error::Type, op, ": the output must have the type of the input");
  check_outputs(op, out, in);
}

// The inputs of an operator that takes a list of them. The dispatcher has no lists of optional tensors: `shapes` holds a one-dimensional tensor where an
// input is dense.
std::vector<Samples> samples_of(const std::vector<Tensor>& inputs, const std::vector<Tensor>& shapes);

}  // namespace ndd
