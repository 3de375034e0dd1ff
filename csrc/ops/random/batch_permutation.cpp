// SPDX-License-Identifier: Apache-2.0
// batch_permutation, on the host for both devices: the numbers are few, and the operators that take them read them there.
#include <numeric>
#include <utility>

#include "ndd/kernel.h"
#include "ndd/random/random.h"
#include "ndd/stream/host_output.h"

namespace ndd {
namespace {

// A number below `count`, all equally likely: Lemire, "Fast random integer generation in an interval", 2019.
uint32_t below(Philox& stream, uint32_t count) {
  // The upper half of a word times `count` is a number below `count`. Some numbers have one more word than others; words at the lower end of each
  // number's interval are drawn again, as many as 2^32 exceeds a multiple of `count`. The remainder is only computed if one may be due.
  uint64_t product = uint64_t{stream.next()} * count;
  if (static_cast<uint32_t>(product) < count) {
    // 2^32 mod count, in 32 bits.
    const uint32_t excess = (0u - count) % count;
    while (static_cast<uint32_t>(product) < excess) product = uint64_t{stream.next()} * count;
  }
  return static_cast<uint32_t>(product >> 32);
}

// Fisher and Yates: all permutations are equally likely.
void shuffle(Philox& stream, int32_t count, int32_t* numbers) {
  std::iota(numbers, numbers + count, 0);
  for (int32_t k = count - 1; k > 0; --k) std::swap(numbers[k], numbers[below(stream, static_cast<uint32_t>(k) + 1)]);
}

bool has_fixed_point(int32_t count, const int32_t* numbers) {
  for (int32_t k = 0; k < count; ++k)
    if (numbers[k] == k) return true;
  return false;
}

void draw(Philox stream, bool repetitions, bool no_fixed_points, int32_t count, int32_t* numbers) {
  const bool avoid = no_fixed_points && count > 1;
  if (!repetitions) {
    // About one permutation in e has no fixed point, for any count, so 2.7 attempts are expected.
    do shuffle(stream, count, numbers);
    while (avoid && has_fixed_point(count, numbers));
    return;
  }
  for (int32_t k = 0; k < count; ++k) {
    // To avoid k itself: draw from one number less, and skip k.
    numbers[k] = static_cast<int32_t>(below(stream, static_cast<uint32_t>(count - (avoid ? 1 : 0))));
    if (avoid && numbers[k] >= k) ++numbers[k];
  }
}

void batch_permutation(bool allow_repetitions, bool no_fixed_points, const Tensor& words, const Tensor& output, const MaybeTensor&) {
  const std::string op = "batch_permutation";
  const int64_t* drawn = drawn_words(op, words);
  if (output.dtype() != DType::int32 || !output.is_contiguous() || output.numel() > INT32_MAX)
    fail(Error::Value, op, ": the output must be int32, with a number for each of at most 2^31 - 1 samples");
  const auto count = static_cast<int32_t>(output.numel());
  // The batch is one piece of work: every number depends on those before it.
  compute_on_host<int32_t>(op, count > 0 ? 1 : 0, 10.0 * count, {words}, output,
                           [=](int64_t, int32_t* numbers) { draw(Philox(drawn, 0), allow_repetitions, no_fixed_points, count, numbers); });
}

}  // namespace
}  // namespace ndd
NDD_HOST_KERNELS(batch_permutation, ndd::batch_permutation)
