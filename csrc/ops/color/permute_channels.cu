// SPDX-License-Identifier: Apache-2.0
// permute_channels: reorders the channels of each sample along any axis. Interleaved pixels of three channels go through the matrix driver, everything
// else moves runs of equal size.
#include <cstring>
#include <vector>

#include "ndd/color/matrix.h"
#include "ndd/kernel.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd::permute_channels_kernels {
namespace {

// Runs of equal bytes: out[o][k] = in[o][of[k]] for each of `outer` groups of `channels` runs of `bytes` bytes.
struct Groups {
  const char* in;
  char* out;
  int64_t outer, channels, bytes;
  int64_t first;  // of its permutation
};

// The channel that each channel of a sample is made from.
struct Permutation {
  Args<int64_t> order;

  void check(int64_t i, int64_t channels) const {
    if (order.cols() != channels)
      fail(Error::Value, "permute_channels: sample ", i, " has ", channels, " channels, but permutation has ", order.cols(), " numbers");
    for (int64_t c = 0; c < channels; ++c)
      if (order(i, c) < 0 || order(i, c) >= channels)
        fail(Error::Value, "permute_channels: sample ", i, ": permutation must have numbers from 0 to ", channels - 1, ", got ", order(i, c));
  }
};

Groups groups_of(const Samples& in, const Samples& out, int64_t i, int64_t axis) {
  Groups groups{static_cast<const char*>(in.data(i)), static_cast<char*>(out.data(i)), 1, in.shape(i)[axis], in.item_bytes(), 0};
  for (int64_t d = 0; d < in.ndim(); ++d) {
    if (d < axis) groups.outer *= in.shape(i)[d];
    if (d > axis) groups.bytes *= in.shape(i)[d];
  }
  return groups;
}

// kBytes = 0 stands for a size known only at run time. With a constant size, memcpy is a load and a store instead of a call.
template <int64_t kBytes>
void copy_runs(const Groups& g, const int64_t* from) {
  for (int64_t o = 0; o < g.outer; ++o)
    for (int64_t c = 0; c < g.channels; ++c) {
      const int64_t bytes = kBytes ? kBytes : g.bytes;
      std::memcpy(g.out + (o * g.channels + c) * bytes, g.in + (o * g.channels + from[c]) * bytes, bytes);
    }
}

#ifdef __CUDACC__
constexpr int kThreads = 256;

// A thread has an element. Only its size matters, so four kinds of loads serve all types.
__global__ void __launch_bounds__(kThreads) copy_runs_gpu(const Groups* groups, int64_t count, int64_t item, const int64_t* from) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Groups g = groups[k];
    const int64_t run = g.bytes / item, elements = g.outer * g.channels * run;
    for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < elements; e += int64_t{gridDim.x} * kThreads) {
      const int64_t group = e / (g.channels * run), channel = e / run % g.channels,
                    at = (group * g.channels + from[g.first + channel]) * run + e % run;
      if (item == 1) g.out[e] = g.in[at];
      else if (item == 2) reinterpret_cast<uint16_t*>(g.out)[e] = reinterpret_cast<const uint16_t*>(g.in)[at];
      else if (item == 4) reinterpret_cast<uint32_t*>(g.out)[e] = reinterpret_cast<const uint32_t*>(g.in)[at];
      else reinterpret_cast<uint64_t*>(g.out)[e] = reinterpret_cast<const uint64_t*>(g.in)[at];
    }
  }
}

void permute_gpu(const Samples& in, const Samples& out, int64_t axis, const Permutation& permutation) {
  std::vector<Groups> groups;
  std::vector<int64_t> from;
  int64_t max_volume = 0;
  // Samples may have different numbers of channels, so each has its permutation in one common list.
  for (int64_t i = 0; i < in.size(); ++i) {
    groups.push_back(groups_of(in, out, i, axis));
    groups.back().first = static_cast<int64_t>(from.size());
    permutation.check(i, groups.back().channels);
    for (int64_t c = 0; c < groups.back().channels; ++c) from.push_back(permutation.order(i, c));
    max_volume = std::max(max_volume, in.volume(i));
  }
  if (max_volume == 0) return;
  const CudaTable<Groups> table(groups);
  const CudaTable<int64_t> order(from);
  const auto count = static_cast<int64_t>(groups.size());
  const dim3 grid = batch_grid(max_volume, 4 * kThreads, count);
  copy_runs_gpu<<<grid, kThreads, 0, current_cuda_stream()>>>(table.data(), count, in.item_bytes(), order.data());
  check_launch("permute_channels");
}
#endif

void permute_channels(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& permutation, int64_t axis, bool pixels_of_three,
                      const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  if (axis < 0 || axis >= in.ndim()) fail(Error::Value, "permute_channels: axis must be from 0 to ", in.ndim() - 1, ", got ", axis);
  const Permutation order{Args<int64_t>(permutation)};
  if (pixels_of_three) {  // a permutation matrix copies exactly, and the matrix driver has vector loops for pixels of three
    return color_matrix("permute_channels", in, out, 3, 3, {}, [=](int64_t i, int64_t) {
      order.check(i, 3);
      ColorMatrix matrix{};
      for (int64_t c = 0; c < 3; ++c) matrix.m[c][order.order(i, c)] = 1.0f;
      return matrix;
    });
  }
  check_same("permute_channels", out, in);
#ifdef __CUDACC__
  if (input.is_cuda()) return permute_gpu(in, out, axis, order);
#endif
  constexpr double kNanosecondsPerElement = 0.2;
  launch_cpu("permute_channels", in.size(), kNanosecondsPerElement * in.mean_volume(), {}, [=](int64_t i) {
    const Groups groups = groups_of(in, out, i, axis);
    order.check(i, groups.channels);
    std::vector<int64_t> from;
    for (int64_t c = 0; c < groups.channels; ++c) from.push_back(order.order(i, c));
    switch (groups.bytes) {
      case 1: return copy_runs<1>(groups, from.data());
      case 2: return copy_runs<2>(groups, from.data());
      case 4: return copy_runs<4>(groups, from.data());
      default: return copy_runs<0>(groups, from.data());
    }
  });
}

}  // namespace
}  // namespace ndd::permute_channels_kernels
NDD_KERNELS(permute_channels, ndd::permute_channels_kernels::permute_channels)
