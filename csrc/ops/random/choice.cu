// SPDX-License-Identifier: Apache-2.0
// random.choice: draws row numbers and copies the rows in the same loop. Probabilities become integer intervals of the 32-bit words on the host, so
// that both devices choose the same rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "ndd/args.h"
#include "ndd/kernel.h"
#include "ndd/random/random.h"
#ifdef __CUDACC__
#include "ndd/launch_runs.cuh"
#endif

namespace ndd::choice_kernels {
namespace {

// Which of `count` rows a word chooses: all equally likely, or by the upper ends of their intervals of 32-bit numbers.
struct Picker {
  int64_t count;
  const uint64_t* ends;  // null when equally likely

  NDD_HD int64_t operator()(uint32_t word) const {
    if (ends == nullptr) return static_cast<int64_t>(uint64_t{word} * static_cast<uint64_t>(count) >> 32);
    int64_t first = 0;
    for (int64_t n = count; n > 1;) {  // binary search for the first end above the word, without unpredictable branches
      const int64_t half = n / 2;
      first += ends[first + half - 1] <= word ? half : 0;
      n -= half;
    }
    return first;
  }
};

// A sample: choose `choices` rows of `row_bytes`; of a number n, choose among 0 to n - 1.
struct Run {
  Philox stream;
  Picker pick;
  int64_t choices, row_bytes;
  const void* rows;  // null for a number
  void* out;
};

template <class... Why>
[[noreturn]] void refuse(int64_t i, const Why&... why) {
  fail("random.choice: ", why..., " for sample ", i);
}

// `probabilities` has a row for all samples or one for each; shorter ones end in NaN.
std::vector<uint64_t> interval_ends(const Args<float>& probabilities, int64_t count, int64_t i) {
  std::vector<float> p(probabilities.cols());
  for (int64_t k = 0; k < probabilities.cols(); ++k) p[k] = probabilities(i, k);
  // A row has room for the longest list of the batch.
  while (!p.empty() && std::isnan(p.back())) p.pop_back();
  if (static_cast<int64_t>(p.size()) != count) refuse(i, "p must have a probability for each of the ", count, " elements, got ", p.size());
  double sum = 0.0;
  for (int64_t k = 0; k < count; ++k) {
    if (!(p[k] >= 0.0f && p[k] <= 1.0f)) refuse(i, "p must be from 0 to 1, got ", p[k]);
    sum += p[k];
  }
  if (!(std::fabs(sum - 1.0) < 1e-4)) refuse(i, "the sum of p must be 1, got ", sum);
  std::vector<uint64_t> ends(count);
  double below = 0.0;
  int64_t last = 0;
  for (int64_t k = 0; k < count; ++k) {
    below += p[k];
    // The sum is only about 1: it is made 1.
    ends[k] = static_cast<uint64_t>(std::llround(std::min(below / sum, 1.0) * 0x1p32));
    if (p[k] > 0.0f) last = k;
  }
  // Rounding must not leave a gap at the top: the last row that can be chosen takes all words that are left.
  std::fill(ends.begin() + last, ends.end(), uint64_t{1} << 32);
  return ends;
}

// Rows of the size of a number, moved as one.
template <class Bits>
void copy_rows(const Picker& pick, const uint32_t* words, const void* rows, int64_t n, void* out) {
  // Aligned to their elements only: a row may have several.
  for (int64_t e = 0; e < n; ++e)
    std::memcpy(static_cast<char*>(out) + e * sizeof(Bits), static_cast<const char*>(rows) + pick(words[e]) * sizeof(Bits), sizeof(Bits));
}

void run_cpu(const Run& run, DType dtype) {
  constexpr int64_t kRow = 1024;
  alignas(64) uint32_t words[kRow];
  char* to = static_cast<char*>(run.out);
  for (int64_t begin = 0; begin < run.choices; begin += kRow, to += kRow * run.row_bytes) {
    const int64_t n = std::min(kRow, run.choices - begin);
    run.stream.fill(static_cast<uint32_t>(begin / 4), random_detail::blocks_for(n, 4), words);
    if (run.rows == nullptr) {
      for_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t e = 0; e < n; ++e) reinterpret_cast<T*>(to)[e] = static_cast<T>(run.pick(words[e]));
      });
      continue;
    }
    switch (run.row_bytes) {
      case 1: copy_rows<uint8_t>(run.pick, words, run.rows, n, to); break;
      case 2: copy_rows<uint16_t>(run.pick, words, run.rows, n, to); break;
      case 4: copy_rows<uint32_t>(run.pick, words, run.rows, n, to); break;
      case 8: copy_rows<uint64_t>(run.pick, words, run.rows, n, to); break;
      default:
        for (int64_t e = 0; e < n; ++e)
          std::memcpy(to + e * run.row_bytes, static_cast<const char*>(run.rows) + run.pick(words[e]) * run.row_bytes, run.row_bytes);
    }
  }
}

#ifdef __CUDACC__
// Numbers of the input: the host must know how many elements there are to choose from.
std::vector<char> host_values(const Samples& in) {
  std::vector<char> values(in.values().numel() * in.item_bytes());
  check_cuda(cudaMemcpyAsync(values.data(), in.values().data_ptr(), values.size(), cudaMemcpyDeviceToHost, current_cuda_stream()), "random.choice");
  check_cuda(cudaStreamSynchronize(current_cuda_stream()), "random.choice");
  return values;
}

constexpr int kThreads = 256;

// A byte of the result for each thread and step, which computes the block of its choice: rows are few and small, or large, where the copy counts.
__global__ void run_gpu(const __grid_constant__ TableRows<Run> runs, int64_t count, DType dtype) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Run run = runs[k];
    if (run.row_bytes == 0) continue;  // rows without elements
    // What a thread writes in a step: a row of the size of a number, or a byte of a larger one.
    const int64_t unit = run.rows == nullptr || run.row_bytes <= 8 ? run.row_bytes : 1, total = run.choices * run.row_bytes / unit;
    for (int64_t u = int64_t{blockIdx.x} * kThreads + threadIdx.x; u < total; u += int64_t{gridDim.x} * kThreads) {
      const int64_t e = u * unit / run.row_bytes, within = u * unit % run.row_bytes;
      uint32_t words[4];
      run.stream.compute(static_cast<uint32_t>(e / 4), words);
      const int64_t chosen = run.pick(words[e % 4]);
      if (run.rows == nullptr) {
        for_dtype(dtype, [&](auto tag) {
          using T = typename decltype(tag)::type;
          if constexpr (std::is_integral_v<T>) static_cast<T*>(run.out)[e] = static_cast<T>(chosen);
        });
        continue;
      }
      const char* from = static_cast<const char*>(run.rows) + chosen * run.row_bytes + within;
      for (int64_t b = 0; b < unit; ++b) static_cast<char*>(run.out)[u * unit + b] = from[b];
    }
  }
}
#endif

void choice(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor&, const MaybeTensor&, const MaybeTensor& probabilities,
            const Tensor& words, const Tensor& output, const MaybeTensor& output_shapes) {
  const std::string op = "random.choice";
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (out.size() != in.size()) fail(Error::Value, op, ": the output must have ", in.size(), " samples, got ", out.size());
  if (out.dtype() != in.dtype()) fail(Error::Type, op, ": the output must have the type of the input");
  const bool of_number = in.ndim() == 0;
  const int64_t* drawn = drawn_words(op, words);
  const bool weighted = probabilities.has_value();
  const Args<float> p(weighted ? *probabilities : words);
  // `numbers` are those of an input of numbers, `ends` outlives the run.
  const auto make = [=](int64_t i, const void* numbers, std::vector<uint64_t>& ends) {
    const int64_t count = of_number ? number_at<int64_t>(numbers, in.dtype(), i) : in.shape(i)[0];
    const int64_t row_bytes = of_number ? in.item_bytes() : count > 0 ? in.volume(i) / count * in.item_bytes() : 0;
    const int64_t choices = row_bytes > 0 ? out.volume(i) * out.item_bytes() / row_bytes : 0;
    if (count <= 0) refuse(i, "the number of elements to choose from must be positive, got ", count);
    // A word cannot choose among more.
    if (count >= int64_t{1} << 32) refuse(i, "more than 2^32 elements");
    if (weighted) ends = interval_ends(p, count, i);
    return Run{Philox(drawn, i), Picker{count, weighted ? ends.data() : nullptr}, choices, row_bytes, of_number ? nullptr : in.data(i), out.data(i)};
  };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    const std::vector<char> numbers = of_number ? host_values(in) : std::vector<char>();
    std::vector<Run> runs;
    std::vector<uint64_t> all_ends;
    std::vector<int64_t> first;
    for (int64_t i = 0; i < in.size(); ++i) {
      std::vector<uint64_t> ends;
      runs.push_back(make(i, numbers.data(), ends));
      first.push_back(static_cast<int64_t>(all_ends.size()));
      all_ends.insert(all_ends.end(), ends.begin(), ends.end());
    }
    // The ends of all samples in one table; each picker is pointed at its own.
    const CudaTable<uint64_t> ends(all_ends);
    if (weighted)
      for (size_t i = 0; i < runs.size(); ++i) runs[i].pick.ends = ends.data() + first[i];
    const auto units = [](const Run& run) { return run.row_bytes <= 8 ? run.choices : run.choices * run.row_bytes; };
    return launch_runs(op.c_str(), runs, units, kThreads, [&](dim3 grid, const auto& rows, int64_t count) {
      run_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(rows, count, in.dtype());
    });
  }
#endif
  launch_cpu(op, in.size(), 3.0 * out.mean_volume(), {words}, [=](int64_t i) {
    std::vector<uint64_t> ends;
    run_cpu(make(i, in.values().data_ptr(), ends), in.dtype());
  });
}

}  // namespace
}  // namespace ndd::choice_kernels
NDD_KERNELS(random_choice, ndd::choice_kernels::choice)
