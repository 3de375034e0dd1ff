// SPDX-License-Identifier: Apache-2.0
// random.uniform: from a range, or one of a list of values. All ranges are half open, also where rounding would reach the end.
#include <cmath>
#include <optional>
#include <vector>

#include "ndd/host_numbers.h"
#include "ndd/kernel.h"
#include "ndd/random/random.h"

namespace ndd::uniform_kernels {
namespace {

// From start to just below end: the rounded sum may reach end, and is then lowered to `last`.
struct UniformFloat {
  using Value = float;
  float start, extent, last;
  NDD_HD float operator()(uint32_t word) const {
    const float v = start + static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f * extent;
    return v < last ? v : last;
  }
};

struct UniformDouble {
  using Value = double;
  double start, extent, last;
  NDD_HD double operator()(uint32_t high, uint32_t low) const {
    const double v = start + (static_cast<double>(high) + static_cast<double>(low >> 11) * 0x1p-21) * 0x1p-32 * extent;
    return v < last ? v : last;
  }
};

// One of the numbers of a row, which begins with their count.
struct Choice {
  using Value = float;
  const float* values;
  uint32_t count;
  NDD_HD float operator()(uint32_t word) const { return values[static_cast<uint32_t>(uint64_t{word} * count >> 32)]; }
};

template <class F>
F of_range(const Args<float>& range, int64_t i) {
  using T = typename F::Value;
  const T start = range(i, 0), end = range(i, 1);
  if (!(end > start)) fail("random.uniform: range: Invalid range [", start, ", ", end, ") for sample ", i);
  // `end` itself is excluded, whatever the sum is rounded to.
  return F{start, end - start, std::nextafter(end, start)};
}

void uniform(const MaybeTensor&, const MaybeTensor&, const Tensor& limits, const MaybeTensor& choices, const Tensor& words, const Tensor& output,
             const MaybeTensor& output_shapes) {
  const Samples out(output, output_shapes);
  if (choices) {
    const int64_t count = choices->size(0), columns = count == 1 ? 0 : choices->size(1);  // a single row is that of all samples
    if (choices->dim() != 2 || (count != 1 && count != out.size())) fail(Error::Value, "random.uniform: values must have a row for each sample");
    const auto* rows = host_numbers<const float>("random.uniform", "the table of values", *choices, 0);
    const float* numbers = rows;  // where the functor reads them
#ifdef __CUDACC__
    std::optional<CudaTable<float>> table;
    if (out.values().is_cuda()) numbers = table.emplace(std::vector<float>(rows, rows + choices->numel())).data();
#endif
    return fill_random("uniform", words, out, [=, most = static_cast<float>(choices->size(1) - 1), kept = Tensor(*choices)](int64_t i) {
      const float listed = most > 0.0f ? rows[i * columns] : 0.0f;
      if (!(listed >= 1.0f && listed <= most)) fail("random.uniform: values must not be empty, sample ", i);
      return Choice{numbers + i * columns + 1, static_cast<uint32_t>(listed)};
    });
  }
  const Args<float> range(limits);
  if (range.cols() != 2) fail("random.uniform: range takes two numbers, start and end");
  if (random_in_double(out.dtype())) fill_random("uniform", words, out, [=](int64_t i) { return of_range<UniformDouble>(range, i); });
  else fill_random("uniform", words, out, [=](int64_t i) { return of_range<UniformFloat>(range, i); });
}

}  // namespace
}  // namespace ndd::uniform_kernels
NDD_KERNELS(random_uniform, ndd::uniform_kernels::uniform)
