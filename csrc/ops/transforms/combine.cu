// SPDX-License-Identifier: Apache-2.0
// transforms.combine: one affine map after the other.
#include "ndd/kernel.h"
#include "ops/transforms/affine.h"

namespace ndd {
namespace {

void combine(const std::vector<Tensor>& inputs, const std::vector<Tensor>& shapes, bool reverse_order, const Tensor& output,
             const MaybeTensor& output_shapes) {
  const Samples out(output, output_shapes);
  std::vector<Samples> ins;
  for (size_t k = 0; k < inputs.size(); ++k) ins.emplace_back(inputs[k], shapes[k].dim() == 2 ? MaybeTensor(shapes[k]) : std::nullopt);
  compose_affine("transforms.combine", ins, out, reverse_order, [out](int64_t i, int64_t) { return Affine::identity(out.shape(i)[out.ndim() - 2]); });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(transforms_combine, ndd::combine)
