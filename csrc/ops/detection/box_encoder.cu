// SPDX-License-Identifier: Apache-2.0
// box_encoder: every anchor is assigned the box that it overlaps most, if by more than `criteria`; in addition every box claims the anchor that it overlaps
// most, even if that anchor overlaps another box more. Ties go to the last one.
#include <cstring>
#include <limits>
#include <optional>

#include "ndd/elementwise/elements.cuh"
#include "ndd/host_numbers.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#include "ops/detection/box_encoder.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd::box_encoder_kernels {
namespace {

// A sample: its boxes and labels, and the encoded boxes and labels of the anchors.
struct EncoderSample {
  const float* boxes;
  const void* labels;
  float* encoded;
  void* classes;
  int64_t count;
  uint64_t* scratch;  // a number for each box; on the GPU only
};

// Left, top, right, bottom and area of all anchors, one behind the other.
// Side k of anchor a is number k * count + a, so loops over anchors read neighbors.
struct Anchors {
  const float* data;
  int64_t count;

  NDD_HD float side(int64_t k, int64_t a) const { return data[k * count + a]; }
  NDD_HD float overlap(int64_t a, const float* box, float area) const {
    return overlap_of(side(0, a), side(1, a), side(2, a), side(3, a), side(4, a), box, area);
  }
};

NDD_HD void write_anchor(const EncoderSample& sample, const Anchors& anchors, const BoxCoding& coding, DType labels, int64_t a, int64_t box) {
  const float anchor[4] = {anchors.side(0, a), anchors.side(1, a), anchors.side(2, a), anchors.side(3, a)};
  if (box < 0) {
    encode_nothing(coding, anchor, sample.encoded + 4 * a);
    store_element(0.0f, sample.classes, labels, a);
  } else {
    encode_box(coding, sample.boxes + 4 * box, anchor, sample.encoded + 4 * a);
    copy_element(sample.labels, box, sample.classes, a, labels);
  }
}

// 8732 anchors and 10 boxes take 30 us: the loops over the anchors vectorize.
void encode_on_cpu(const EncoderSample& sample, const Anchors& anchors, const BoxCoding& coding, DType labels) {
  const int64_t n = anchors.count;
  std::vector<float> row(n), best(n, -1.0f);
  std::vector<int32_t> chosen(n, -1), forced(n, -1);
  for (int64_t b = 0; b < sample.count; ++b) {
    const float* box = sample.boxes + 4 * b;
    float highest_overlap = -1.0f;
    with_simd([&]() NDD_ALWAYS_INLINE {
      const float* __restrict left = anchors.data, * __restrict top = left + n, * __restrict right = top + n, * __restrict bottom = right + n, * __restrict areas = bottom + n;
      float* __restrict overlaps = row.data(), * __restrict highest = best.data();
      int32_t* __restrict which = chosen.data();
      const float corners[4] = {box[0], box[1], box[2], box[3]}, area = box_area(box);
      const int32_t number = static_cast<int32_t>(b), count = static_cast<int32_t>(n);
      for (int32_t a = 0; a < count; ++a) {
        const float o = overlap_of(left[a], top[a], right[a], bottom[a], areas[a], corners, area);
        overlaps[a] = o;
        // Of equal overlaps the last box wins.
        const bool better = o >= highest[a];
        highest[a] = better ? o : highest[a];
        which[a] = better ? number : which[a];
      }
      // The highest overlap of the box, in lanes that vectorize.
      constexpr int kLanes = 16;
      float peak[kLanes];
      for (float& lane : peak) lane = -1.0f;
      int32_t a = 0;
      for (; a + kLanes <= count; a += kLanes)
        for (int k = 0; k < kLanes; ++k) peak[k] = overlaps[a + k] > peak[k] ? overlaps[a + k] : peak[k];
      for (; a < count; ++a) peak[0] = overlaps[a] > peak[0] ? overlaps[a] : peak[0];
      for (const float lane : peak) highest_overlap = lane > highest_overlap ? lane : highest_overlap;
    });
    // The last anchor with this overlap; none if all overlaps are NaN.
    for (int64_t a = n; highest_overlap >= 0.0f && a-- > 0;) {
      if (row[a] != highest_overlap) continue;
      forced[a] = static_cast<int32_t>(b);
      break;
    }
  }
  // Anchors that a box has claimed come first.
  for (int64_t a = 0; a < n; ++a)
    write_anchor(sample, anchors, coding, labels, a, forced[a] >= 0 ? forced[a] : best[a] > coding.criteria ? chosen[a] : -1);
}

#ifdef __CUDACC__
constexpr int kThreads = 512;
constexpr int kPerThread = 8;  // anchors that a thread holds in registers while it goes through the boxes

// A box and its best anchor as one number, so the largest is the highest overlap, and of equals the last anchor. Overlaps are not negative,
// but for the -0 of an anchor whose end lies before its start, which becomes 0.
__device__ uint64_t best_key(float overlap, int64_t anchor) {
  return static_cast<uint64_t>(__float_as_uint(overlap + 0.0f)) << 32 | static_cast<uint32_t>(anchor + 1);
}

// One launch, a block for each sample. A box costs a read of 16 bytes for each thread and a reduction for each warp: expected to be bound by the
// arithmetic of the overlaps, 20 instructions each; 64 samples with 8732 anchors and 10 boxes are 5.6 million of them.
__global__ void __launch_bounds__(kThreads)
    encode_gpu(const __grid_constant__ TableRows<EncoderSample> samples, Anchors anchors, BoxCoding coding, DType labels) {
  const EncoderSample sample = samples[blockIdx.x];
  for (int64_t b = threadIdx.x; b < sample.count; b += kThreads) sample.scratch[b] = 0;
  __syncthreads();
  for (int pass = 0; pass < 2; ++pass) {  // first the best anchor of every box, then the best box of every anchor
    for (int64_t first = 0; first < anchors.count; first += kThreads * kPerThread) {
      float best[kPerThread];
      int32_t chosen[kPerThread];
      bool forced[kPerThread];
      for (int k = 0; k < kPerThread; ++k) {
        best[k] = -1.0f;
        chosen[k] = -1;
        forced[k] = false;
      }
      for (int64_t b = 0; b < sample.count; ++b) {
        const float* box = sample.boxes + 4 * b;
        const float area = box_area(box);
        // The anchor that the box has claimed in the first pass.
        const int64_t wanted = pass == 0 ? -1 : static_cast<int64_t>(sample.scratch[b] & 0xFFFFFFFFu) - 1;
        // Of this thread's anchors; 0 where none overlaps, because keys count anchors from 1.
        uint64_t key = 0;
        for (int k = 0; k < kPerThread; ++k) {
          const int64_t a = first + k * kThreads + threadIdx.x;
          if (a >= anchors.count) break;
          if (pass == 1 && wanted == a) {
            forced[k] = true;
            chosen[k] = static_cast<int32_t>(b);
          }
          // No overlap changes the box of a claimed anchor; a later claim does, above.
          if (forced[k]) continue;
          const float o = anchors.overlap(a, box, area);
          if (pass == 0) {
            if (o >= 0.0f && best_key(o, a) > key) key = best_key(o, a);
          } else if (o >= best[k]) {
            best[k] = o;
            chosen[k] = static_cast<int32_t>(b);
          }
        }
        if (pass == 0) {
          // The maximum of the warp, then of the block by an atomic.
          for (int step = 16; step > 0; step /= 2) {
            const uint64_t other = __shfl_down_sync(0xFFFFFFFFu, key, step);
            key = other > key ? other : key;
          }
          if (threadIdx.x % 32 == 0 && key > 0)
            atomicMax(reinterpret_cast<unsigned long long*>(sample.scratch + b), static_cast<unsigned long long>(key));
        }
      }
      for (int k = 0; k < kPerThread && pass == 1; ++k) {
        const int64_t a = first + k * kThreads + threadIdx.x;
        if (a < anchors.count) write_anchor(sample, anchors, coding, labels, a, forced[k] || best[k] > coding.criteria ? chosen[k] : -1);
      }
    }
    __syncthreads();
  }
}
#endif

// `anchors` is (5, A), `numbers` has the four means and the four standard deviations.
void box_encoder(const Tensor& boxes, const MaybeTensor& boxes_shapes, const Tensor& labels, const MaybeTensor& labels_shapes, const Tensor& anchors,
                 const Tensor& numbers, double criteria, bool offset, double scale, const Tensor& encoded, const MaybeTensor& encoded_shapes,
                 const Tensor& classes, const MaybeTensor& classes_shapes) {
  const Samples in(boxes, boxes_shapes), in_labels(labels, labels_shapes), out(encoded, encoded_shapes), out_labels(classes, classes_shapes);
  if (in.dtype() != DType::float32 || out.dtype() != DType::float32 || anchors.dtype() != DType::float32 || out_labels.dtype() != in_labels.dtype())
    fail(Error::Type, "box_encoder: boxes and anchors must be float32, and labels have one type");
  if (anchors.dim() != 2 || anchors.size(0) != 5 || anchors.size(1) > INT32_MAX || !anchors.is_contiguous() || anchors.is_cuda() != boxes.is_cuda())
    fail(Error::Value, "box_encoder: anchors must have five rows, on the device of the boxes");
  const Anchors all{static_cast<const float*>(anchors.data_ptr()), anchors.size(1)};
  BoxCoding coding{static_cast<float>(criteria), static_cast<float>(scale), {}, {}, offset};
  std::memcpy(coding.means, host_numbers<const float>("box_encoder", "the table of means", numbers, 8), sizeof(coding.means) + sizeof(coding.stds));
  check_outputs("box_encoder", out, in.size(), [&](int64_t) { return 4 * all.count; });
  check_outputs("box_encoder", out_labels, in.size(), [&](int64_t) { return all.count; });
  if (in_labels.size() != in.size()) fail(Error::Value, "box_encoder: there must be labels for each of ", in.size(), " samples");
  for (int64_t i = 0; i < in.size(); ++i)
    if (in_labels.volume(i) != in.volume(i) / 4)
      fail("box_encoder: sample ", i, " has ", in.volume(i) / 4, " boxes, but ", in_labels.volume(i), " labels");
  const auto sample_of = [=](int64_t i) {
    return EncoderSample{
        static_cast<const float*>(in.data(i)), in_labels.data(i), static_cast<float*>(out.data(i)), out_labels.data(i), in.volume(i) / 4, nullptr};
  };
#ifdef __CUDACC__
  if (boxes.is_cuda()) {
    if (all.count == 0 || in.size() == 0) return;
    // A key of 8 bytes for each box; a buffer must not be empty.
    const CudaBuffer scratch(std::max<int64_t>(8, boxes.numel() / 4 * 8));
    std::vector<EncoderSample> samples;
    for (int64_t i = 0; i < in.size(); ++i) {
      samples.push_back(sample_of(i));
      samples.back().scratch = static_cast<uint64_t*>(scratch.data()) + in.offset(i) / 4;
    }
    const KernelTable<EncoderSample> table(samples);
    encode_gpu<<<static_cast<unsigned>(in.size()), kThreads, 0, current_cuda_stream()>>>(table.rows(), all, coding, in_labels.dtype());
    return check_launch("box_encoder");
  }
#endif
  const double each = static_cast<double>(all.count) * (5.0 + 0.3 * in.mean_volume() / 4.0);
  launch_cpu("box_encoder", in.size(), each, {anchors}, [=](int64_t i) { encode_on_cpu(sample_of(i), all, coding, in_labels.dtype()); });
}

}  // namespace
}  // namespace ndd::box_encoder_kernels
NDD_KERNELS(box_encoder, ndd::box_encoder_kernels::box_encoder)
