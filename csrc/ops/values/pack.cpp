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
    // memcpy may not be given null pointers, which empty tensors have.
    if (const int64_t bytes = out.volume(i) * out.item_bytes()) std::memcpy(out.data(i), samples[i].data_ptr(), bytes);
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(pack, CPU, ndd::pack)
