// SPDX-License-Identifier: Apache-2.0
// yuv_to_rgb on the CPU, for frames that a decoder delivers in host memory: one task for a frame, because the caller has one at a time.
#include "ops/color/yuv_to_rgb.h"

#include "ndd/kernel.h"

namespace ndd::yuv {
namespace {

constexpr double kNanosecondsPerPixel = 2;

void yuv_to_rgb_cpu(const Tensor& luma, const Tensor& blue, const Tensor& red, int64_t bits, int64_t matrix, bool full_range, const Tensor& output) {
  const Frame frame = frame_of(luma, blue, red, bits, matrix, full_range, output);
  const DType dtype = luma.dtype();
  // The closure keeps the tensors alive.
  launch_cpu("yuv_to_rgb", 1, kNanosecondsPerPixel * frame.height * frame.width, {},
             [=, planes = std::vector<Tensor>{luma, blue, red, output}](int64_t) {
               with_types(dtype, frame.rule, [&](auto zero, auto rule) {
                 for (int32_t row = 0; row < frame.height; ++row) convert_pixels<decltype(zero), decltype(rule)::value>(frame, row, 0, frame.width);
               });
             });
}

}  // namespace
}  // namespace ndd::yuv
NDD_KERNEL(yuv_to_rgb, CPU, ndd::yuv::yuv_to_rgb_cpu)
