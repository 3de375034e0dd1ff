// SPDX-License-Identifier: Apache-2.0
// The checks that keep kernels inside their buffers: a table of shapes comes from Python and is compared with the number of elements that exist.
// The shapes are copied, so they cannot change while work is pending.
#include "ndd/samples.h"

#include <algorithm>

#include "ndd/python_interface.h"

namespace ndd {
namespace {

int64_t product(const int64_t* shape, int64_t ndim) {
  // Kernels multiply some of the extents, and bytes of elements: no such product may overflow, also of a sample without elements.
  int64_t n = 1, most = sizeof(double);
  for (int64_t d = 0; d < ndim; ++d) {
    if (shape[d] < 0 || __builtin_mul_overflow(most, std::max<int64_t>(shape[d], 1), &most))
      fail(Error::Value, "a table of shapes has a negative extent, or too many elements");
    n *= shape[d];
  }
  return n;
}

}  // namespace

bool repeats_a_sample(const Tensor& values) {
  if (values.dim() < 1 || values.stride(0) != 0) return false;
  int64_t volume = 1;
  for (int64_t d = values.dim() - 1; d > 0; volume *= values.size(d--))
    if (values.size(d) != 1 && values.stride(d) != volume) return false;
  return true;
}

Samples::Samples(const Tensor& values, const MaybeTensor& shapes) : Samples(values, shapes, false) {}

Samples Samples::possibly_repeated(const Tensor& values, const MaybeTensor& shapes) { return {values, shapes, true}; }

Samples::Samples(const Tensor& values, const MaybeTensor& shapes, bool may_repeat)
    : values_(values), dtype_(values.dtype()), item_bytes_(ndd::item_bytes(dtype_)) {
  data_ = static_cast<char*>(values.data_ptr());
  if (!values.is_contiguous() && !(may_repeat && !shapes && repeats_a_sample(values))) fail(Error::Value, "a batch must be contiguous");
  auto table = std::make_shared<Table>();
  if (shapes) {
    if (shapes->dim() != 2 || shapes->dtype() != DType::int64 || shapes->is_cuda() || !shapes->is_contiguous())
      fail(Error::Value, "a table of shapes must be contiguous, int64 and on the CPU, with a row for each sample");
    size_ = shapes->size(0);
    ndim_ = shapes->size(1);
    const auto* rows = static_cast<const int64_t*>(shapes->data_ptr());
    table->shapes.assign(rows, rows + size_ * ndim_);
    table->offsets.resize(size_ + 1);
    // The last check before kernels read and write through pointers that follow from the shapes. Checked per sample, so sums cannot overflow.
    const int64_t most = values.numel();
    for (int64_t i = 0; i < size_; ++i) {
      const int64_t volume = product(rows + i * ndim_, ndim_);
      if (volume > most - table->offsets[i]) fail("the buffer is smaller than the shapes of its samples");
      table->offsets[i + 1] = table->offsets[i] + volume;
    }
  } else {
    if (values.dim() < 1) fail(Error::Value, "a batch must have an axis of samples");
    const int64_t* sizes = values.sizes();
    size_ = sizes[0];
    ndim_ = values.dim() - 1;
    table->shapes.assign(sizes + 1, sizes + 1 + ndim_);
    dense_volume_ = product(table->shapes.data(), ndim_);
  }
  table_ = std::move(table);
}

Samples::Samples(const Samples& other) = default;
Samples::Samples(Samples&& other) noexcept = default;
Samples& Samples::operator=(const Samples& other) = default;
Samples& Samples::operator=(Samples&& other) noexcept = default;
Samples::~Samples() = default;

void Samples::fail_at(int64_t i) const {
  fail(Error::Value, "a batch of ", size_, " samples has no sample ", i, ": the batches of a kernel differ in size");
}

std::vector<Samples> samples_of(const std::vector<Tensor>& inputs, const std::vector<Tensor>& shapes) {
  if (shapes.size() != inputs.size())
    fail(Error::Value, "there must be a table of shapes for each of ", inputs.size(), " inputs, got ", shapes.size());
  std::vector<Samples> batches;
  for (size_t k = 0; k < inputs.size(); ++k) batches.emplace_back(inputs[k], shapes[k].dim() == 2 ? MaybeTensor(shapes[k]) : std::nullopt);
  return batches;
}

int64_t count_elements(const int64_t* shapes, int64_t samples, int64_t ndim) {
  int64_t total = 0;
  for (int64_t i = 0; i < samples; ++i, shapes += ndim) {
    int64_t volume = 1;
    for (int64_t d = 0; d < ndim; ++d)
      if (shapes[d] < 0 || __builtin_mul_overflow(volume, shapes[d], &volume)) return -1;
    if (__builtin_add_overflow(total, volume, &total)) return -1;
  }
  return total;
}

}  // namespace ndd

// The total number of elements of samples with these shapes, for Python. `equal` if all shapes are the same; `too_many` if a double cannot represent
// the total, or if an extent is negative.
NDD_PLAIN_ENUM("samples.Packed", Packed, int64_t, equal = -1, too_many = -2);
NDD_EXPORT(keep, int64_t, ndd_packed_elements, (const int64_t* shapes, int64_t samples, int64_t ndim)) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (samples > 0 && std::equal(shapes + ndim, shapes + samples * ndim, shapes)) return equal;
  const int64_t total = ndd::count_elements(shapes, samples, ndim);
  return total < 0 || total >= kExact ? too_many : total;
}
