// SPDX-License-Identifier: Apache-2.0
// Connected components by a union-find over the runs of equal pixels: the pixels of a run point to its first one, touching runs of neighboring rows are
// joined by atomic minima, so the root of a component is its first pixel, and the runs widen the box of their root. The host receives the boxes,
// for which it waits, and chooses among them as on the CPU.
#include "ops/segmentation/random_object_bbox.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/dtypes.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/kernel.h"

namespace ndd::object_bbox {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kMaxDims = 6;
constexpr uint32_t kAll = 0xFFFFFFFFu;

// A mask as rows. `parents` has a number for each pixel: another pixel of its component, itself, or, behind the root, -1 - the number of its object.
struct Mask {
  const void* data;
  int32_t* parents;
  int32_t sample, ndim, rows, width;
  int32_t extent[kMaxDims], stride[kMaxDims];  // of the outer axes; strides in rows

  __device__ int32_t position(int32_t row, int d) const { return row / stride[d] % extent[d]; }
};

// The host sorts components by sample and first pixel, which is the order in which the CPU finds them.
struct Component {
  int32_t sample, first;  // its first pixel, in the order of memory
  int64_t label;
};

// f(mask, row) for all rows, by a warp each.
template <class F>
__device__ void for_rows(const Mask* masks, int64_t count, F f) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const Mask mask = masks[k];
    for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; row < mask.rows; row += int64_t{gridDim.x} * kWarps)
      f(mask, static_cast<int32_t>(row));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) find_runs(const Mask* masks, int64_t count) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  for_rows(masks, count, [=](const Mask& mask, int32_t row) {
    const int32_t first = row * mask.width;
    const T* const values = static_cast<const T*>(mask.data) + first;
    int32_t carried = 0;  // the beginning of the run that reaches into these pixels
    for (int32_t x0 = 0; x0 < mask.width; x0 += 32) {
      const int32_t x = x0 + lane;
      const bool begins = x < mask.width && (x == 0 || values[x] != values[x - 1]);
      // A scan by maxima: each lane gets the last beginning at or before its own pixel.
      int32_t begin = begins ? x : carried;
      for (int d = 1; d < 32; d *= 2) {
        const int32_t other = __shfl_up_sync(kAll, begin, d);
        if (lane >= d) begin = max(begin, other);
      }
      if (x < mask.width) mask.parents[first + x] = first + begin;
      carried = __shfl_sync(kAll, begin, 31);
    }
  });
}

// Other threads change the parents meanwhile, always to smaller ones. Each step shortens the path.
__device__ int32_t find_root(int32_t* parents, int32_t k) {
  // A minimum with the largest number changes nothing: a read that sees what other threads have written.
  constexpr int32_t kKeep = INT32_MAX;
  int32_t parent = atomicMin(parents + k, kKeep);
  while (parent != k) {
    const int32_t above = atomicMin(parents + parent, kKeep);
    if (above != parent) atomicMin(parents + k, above);
    k = parent;
    parent = above;
  }
  return k;
}

// The larger root receives the smaller one as its parent, unless another thread has given it one meanwhile, which is then joined in its place.
__device__ void join(int32_t* parents, int32_t a, int32_t b) {
  while (true) {
    a = find_root(parents, a);
    b = find_root(parents, b);
    if (a == b) return;
    if (a > b) {
      const int32_t other = a;
      a = b;
      b = other;
    }
    const int32_t before = atomicMin(parents + b, a);
    if (before == b) return;
    b = before;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) join_runs(const Mask* masks, int64_t count) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  for_rows(masks, count, [=](const Mask& mask, int32_t row) {
    const T* const values = static_cast<const T*>(mask.data);
    for (int d = 0; d + 1 < mask.ndim; ++d) {
      // The first row along this axis has no neighbor before it. Along the last axis, the runs themselves connect the pixels.
      if (mask.position(row, d) == 0) continue;
      const int32_t here = row * mask.width, above = here - mask.stride[d] * mask.width;
      for (int32_t x = lane; x < mask.width; x += 32) {
        const T value = values[here + x];
        if (value != values[above + x]) continue;
        // Only the first of the pixels at which two runs touch.
        if (x > 0 && values[here + x - 1] == value && values[above + x - 1] == value) continue;
        join(mask.parents, here + x, above + x);
      }
    }
  });
}

__global__ void __launch_bounds__(kThreads) count_roots(const Mask* masks, int64_t count, unsigned long long* total) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  for_rows(masks, count, [=](const Mask& mask, int32_t row) {
    int32_t roots = 0;
    const int32_t first = row * mask.width;
    for (int32_t x = lane; x < mask.width; x += 32) roots += mask.parents[first + x] == first + x;
    for (int d = 1; d < 32; d *= 2) roots += __shfl_xor_sync(kAll, roots, d);
    // One addition for a row: atomic ones to the same number wait for each other.
    if (lane == 0 && roots > 0) atomicAdd(total, static_cast<unsigned long long>(roots));
  });
}

// Numbers the roots, in any order.
__global__ void __launch_bounds__(kThreads) list_roots(const Mask* masks, int64_t count, DType dtype, int32_t* next, Component* components) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  for_rows(masks, count, [=](const Mask& mask, int32_t row) {
    for (int32_t x = lane; x < mask.width; x += 32) {
      const int32_t pixel = row * mask.width + x;
      if (mask.parents[pixel] != pixel) continue;
      const int32_t number = atomicAdd(next, 1);
      int64_t label = 0;
      for_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        // check_masks() admits integers only, but for_dtype compiles this for all types.
        if constexpr (!is_floating<T>) label = static_cast<int64_t>(static_cast<const T*>(mask.data)[pixel]);
      });
      components[number] = {mask.sample, pixel, label};
      // From here on the root leads to its object, so boxes need no other table.
      mask.parents[pixel] = -1 - number;
    }
  });
}

// A box has the first position along each axis and the one behind the last.
template <class T>
__global__ void __launch_bounds__(kThreads) widen_boxes(const Mask* masks, int64_t count, int32_t* boxes) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  for_rows(masks, count, [=](const Mask& mask, int32_t row) {
    const int32_t first = row * mask.width, last = mask.width - 1;
    const T* const values = static_cast<const T*>(mask.data) + first;
    for (int32_t x = lane; x < mask.width; x += 32) {
      const bool begins = x == 0 || values[x] != values[x - 1], ends = x == last || values[x] != values[x + 1];
      // Only the two ends of a run can widen a box.
      if (!begins && !ends) continue;
      int32_t parent = mask.parents[first + x];
      // Nothing changes the parents any more, so ordinary reads are enough.
      while (parent >= 0) parent = mask.parents[parent];
      int32_t* const box = boxes + int64_t{-1 - parent} * 2 * mask.ndim;
      if (begins) atomicMin(box + mask.ndim - 1, x);
      if (ends) atomicMax(box + 2 * mask.ndim - 1, x + 1);
      // Both ends of a run have the same position along the outer axes: one of them is enough.
      for (int d = 0; begins && d + 1 < mask.ndim; ++d) {
        const int32_t at = mask.position(row, d);
        atomicMin(box + d, at);
        atomicMax(box + mask.ndim + d, at + 1);
      }
    }
  });
}

// What the minima and maxima start from.
__global__ void __launch_bounds__(kThreads) clear_boxes(int32_t* boxes, int64_t numbers, int32_t ndim) {
  for (int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x; k < numbers; k += int64_t{gridDim.x} * kThreads)
    boxes[k] = k % (2 * ndim) < ndim ? INT32_MAX : 0;
}

// Labels are only compared for equality, so the size of an element is enough.
template <class Visit>
void for_element_size(int64_t bytes, Visit visit) {
  if (bytes == 1) visit(uint8_t{});
  else if (bytes == 2) visit(uint16_t{});
  else if (bytes == 4) visit(uint32_t{});
  else visit(uint64_t{});
}

template <class T>
std::vector<T> download(const void* from, int64_t count, const char* op) {
  std::vector<T> values(count);
  check_cuda(cudaMemcpyAsync(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost, current_cuda_stream()), op);
  check_cuda(cudaStreamSynchronize(current_cuda_stream()), op);
  return values;
}

// The objects of the masks of `samples`, in the order of their first pixels, without those that label_of(sample, label) rejects.
// Six launches: runs, joined runs, the number of roots, cleared boxes, numbered roots, widened boxes. The host waits twice, for the number and
// for the boxes.
template <class LabelOf>
std::vector<MaskObjects> find_objects_gpu(const char* op, const Samples& in, const std::vector<int64_t>& samples, LabelOf label_of) {
  std::vector<MaskObjects> objects(in.size());
  const auto ndim = static_cast<int32_t>(in.ndim());
  for (MaskObjects& of_sample : objects) of_sample.ndim = ndim;
  int64_t pixels = 0, most_rows = 0;
  for (const int64_t i : samples) pixels += in.volume(i);
  // One allocation for the parents of all masks.
  const CudaBuffer parents(pixels * static_cast<int64_t>(sizeof(int32_t)));
  std::vector<Mask> masks;
  pixels = 0;
  for (const int64_t i : samples) {
    const int64_t volume = in.volume(i), width = in.shape(i)[ndim - 1];
    if (volume == 0) continue;
    if (volume > INT32_MAX) fail(op, ": sample ", i, " has ", volume, " elements; on a GPU a mask must have fewer than 2^31");
    Mask mask{in.data(i),
              static_cast<int32_t*>(parents.data()) + pixels,
              static_cast<int32_t>(i),
              ndim,
              static_cast<int32_t>(volume / width),
              static_cast<int32_t>(width),
              {},
              {}};
    int32_t stride = 1;
    for (int d = ndim - 2; d >= 0; stride *= mask.extent[d--]) {
      mask.extent[d] = static_cast<int32_t>(in.shape(i)[d]);
      mask.stride[d] = stride;
    }
    masks.push_back(mask);
    pixels += volume;
    most_rows = std::max<int64_t>(most_rows, mask.rows);
  }
  if (masks.empty()) return objects;
  const CudaTable<Mask> table(masks);
  const auto count = static_cast<int64_t>(masks.size());
  const dim3 grid = batch_grid(most_rows, kWarps, count);
  const cudaStream_t stream = current_cuda_stream();
  // The number of roots, and the next number that one gets.
  const CudaBuffer counters(2 * sizeof(int64_t));
  auto* const total = static_cast<unsigned long long*>(counters.data());
  check_cuda(cudaMemsetAsync(total, 0, 2 * sizeof(int64_t), stream), op);
  for_element_size(in.item_bytes(), [&](auto element) {
    using T = decltype(element);
    find_runs<T><<<grid, kThreads, 0, stream>>>(table.data(), count);
    join_runs<T><<<grid, kThreads, 0, stream>>>(table.data(), count);
  });
  count_roots<<<grid, kThreads, 0, stream>>>(table.data(), count, total);
  check_launch(op);
  // The number of components decides how much memory the rest takes, so the host waits here for the first time.
  const int64_t found = download<int64_t>(total, 1, op)[0], numbers = found * 2 * ndim;
  if (found > INT32_MAX) fail(op, ": on a GPU the masks of a batch must have fewer than 2^31 objects, got ", found);
  const CudaBuffer components(found * static_cast<int64_t>(sizeof(Component))), boxes(numbers * static_cast<int64_t>(sizeof(int32_t)));
  auto* const box = static_cast<int32_t*>(boxes.data());
  clear_boxes<<<batch_grid(numbers, kThreads, 1), kThreads, 0, stream>>>(box, numbers, ndim);
  list_roots<<<grid, kThreads, 0, stream>>>(table.data(), count, in.dtype(), reinterpret_cast<int32_t*>(total + 1),
                                            static_cast<Component*>(components.data()));
  for_element_size(in.item_bytes(), [&](auto element) { widen_boxes<decltype(element)><<<grid, kThreads, 0, stream>>>(table.data(), count, box); });
  check_launch(op);
  const std::vector<Component> listed = download<Component>(components.data(), found, op);
  const std::vector<int32_t> host_boxes = download<int32_t>(boxes.data(), numbers, op);
  std::vector<int64_t> order(found);
  for (int64_t k = 0; k < found; ++k) order[k] = k;
  // Numbers were given by atomics, in any order; the CPU's order is that of first pixels.
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return std::pair(listed[a].sample, listed[a].first) < std::pair(listed[b].sample, listed[b].first); });
  for (const int64_t k : order) {
    const int64_t label = label_of(listed[k].sample, listed[k].label);
    if (label == kNoObject) continue;
    MaskObjects& of_sample = objects[listed[k].sample];
    const auto begin = host_boxes.begin() + k * 2 * ndim;
    of_sample.labels.push_back(label);
    of_sample.begin.insert(of_sample.begin.end(), begin, begin + ndim);
    of_sample.end.insert(of_sample.end.end(), begin + ndim, begin + 2 * ndim);
  }
  return objects;
}

void random_object_bbox_cuda(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& background, const MaybeTensor& class_weights,
                             const MaybeTensor& classes, const Tensor& foreground_prob, const MaybeTensor& threshold, int64_t k_largest,
                             bool ignore_class, int64_t format, const Tensor& words, const Tensor& first, const MaybeTensor&, const Tensor& second,
                             const MaybeTensor&, const Tensor& labels, const MaybeTensor&) {
  const char* const op = "segmentation.random_object_bbox";
  const Samples in(input, input_shapes);
  const int64_t ndim = in.ndim();
  if (ndim > kMaxDims) fail(op, ": on a GPU a mask must have up to ", kMaxDims, " dimensions, got ", ndim);
  check_masks(op, in);
  check_boxes(op, in, static_cast<Format>(format), first, second, labels);
  if (!input.is_cuda() || !first.is_cuda() || !labels.is_cuda() || (second.numel() > 0 && !second.is_cuda()))
    fail(Error::Type, op, ": the outputs must be on the device of the input");
  const int64_t* drawn = drawn_words(op, words);
  const Rules rules(background, class_weights, classes, foreground_prob, threshold, k_largest, ignore_class);
  std::vector<ObjectRule> of_sample;
  std::vector<Philox> streams;
  std::vector<int64_t> foreground;
  for (int64_t i = 0; i < in.size(); ++i) {
    of_sample.push_back(rules.of(i, ndim));
    streams.emplace_back(drawn, i);
    if (streams[i].uniform_double() < of_sample[i].foreground_prob) foreground.push_back(i);
  }
  const std::vector<MaskObjects> objects =
      find_objects_gpu(op, in, foreground, [&](int64_t i, int64_t label) { return of_sample[i].label_of(label); });
  // One element more, so there is an address where an output has no elements.
  std::vector<int32_t> host_first(first.numel() + 1), host_second(second.numel() + 1), host_labels(labels.numel() + 1);
  const Boxes boxes{ndim, static_cast<Format>(format), host_first.data(), host_second.data(), host_labels.data()};
  for (int64_t i = 0; i < in.size(); ++i) boxes.set(i, whole_sample(in.shape(i), ndim, of_sample[i]));
  // All others, and those without an object, keep the whole sample.
  for (const int64_t i : foreground) boxes.set(i, choose_object(objects[i], in.shape(i), ndim, of_sample[i], streams[i]));
  upload(first.data_ptr(), host_first.data(), first.numel() * sizeof(int32_t), op);
  upload(second.data_ptr(), host_second.data(), second.numel() * sizeof(int32_t), op);
  upload(labels.data_ptr(), host_labels.data(), labels.numel() * sizeof(int32_t), op);
}

}  // namespace
}  // namespace ndd::object_bbox
NDD_KERNEL(segmentation_random_object_bbox, CUDA, ndd::object_bbox::random_object_bbox_cuda)
