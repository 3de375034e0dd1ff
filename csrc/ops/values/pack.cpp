// SPDX-License-Identifier: Apache-2.0
// Copies separate tensors into one buffer as its samples. CPU only: on a GPU torch.cat does this in one launch.
#include <cstring>
#include <vector>

#include "ndd/kernel.h"

namespace ndd {
namespace {

constexpr double kNanosecondsPerByte = 0.1;

void pack(const std::vector<Tensor>& samples, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples out(output, output_shapes);
  const double cost = kNanosecondsPerByte * out.mean_volume() * static_cast<double>(out.item_bytes());
  launch_cpu("pack", out.size(), cost, {}, [=](int64_t i) {
    // memcpy may not be given null pointers, which empty tensors have. Without bytes there need not be a tensor either.
    const int64_t bytes = out.volume(i) * out.item_bytes();
    if (bytes == 0) return;
    const auto k = static_cast<size_t>(i);
    if (k >= samples.size() || samples[k].dtype() != out.dtype() || samples[k].numel() != out.volume(i) || !samples[k].is_contiguous())
      fail(Error::Value, "pack: sample ", i, " does not have the shape and the type of the output, or is not contiguous");
    std::memcpy(out.data(i), samples[k].data_ptr(), bytes);
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(pack, CPU, ndd::pack)
