// SPDX-License-Identifier: Apache-2.0
// segmentation.select_masks: the polygons of some masks, and their vertices one behind the other.
#include "ops/segmentation/select_masks.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ndd/kernel.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd {
namespace {

#ifdef __CUDACC__
// Where a polygon and its vertices come from and go to.
struct PolygonCopy {
  const char* from;
  char* to;
  int64_t bytes;
  int32_t* row;
  int32_t mask, begin, end;
};

__global__ void copy_polygons(const PolygonCopy* copies, int64_t count) {
  for (int64_t k = blockIdx.x; k < count; k += gridDim.x) {
    const PolygonCopy copy = copies[k];
    for (int64_t b = threadIdx.x; b < copy.bytes; b += blockDim.x) copy.to[b] = copy.from[b];
    if (threadIdx.x == 0) {
      copy.row[0] = copy.mask;
      copy.row[1] = copy.begin;
      copy.row[2] = copy.end;
    }
  }
}
#endif

void select_masks(const Tensor&, const MaybeTensor&, const Tensor& polygons, const MaybeTensor& polygons_shapes, const Tensor& vertices,
                  const MaybeTensor& vertices_shapes, const Tensor& table, const Tensor& out_polygons, const MaybeTensor& out_polygons_shapes,
                  const Tensor& out_vertices, const MaybeTensor& out_vertices_shapes) {
  const Samples given(polygons, polygons_shapes), from(vertices, vertices_shapes), rows(out_polygons, out_polygons_shapes),
      to(out_vertices, out_vertices_shapes);
  const auto* selected = static_cast<const SelectedPolygon*>(table.data_ptr());
  const auto vertex_bytes = [=](int64_t i) { return from.shape(i)[1] * from.item_bytes(); };
#ifdef __CUDACC__
  if (vertices.is_cuda()) {
    std::vector<PolygonCopy> copies;
    for (int64_t i = 0; i < rows.size(); ++i) {
      const SelectedPolygon* one = selected + given.offset(i) / 3;
      for (int64_t p = 0; p < rows.shape(i)[0]; ++p, ++one)
        copies.push_back({static_cast<const char*>(from.data(i)) + one->source * vertex_bytes(i),
                          static_cast<char*>(to.data(i)) + one->begin * vertex_bytes(i), (one->end - one->begin) * vertex_bytes(i),
                          static_cast<int32_t*>(rows.data(i)) + 3 * p, static_cast<int32_t>(one->mask), static_cast<int32_t>(one->begin),
                          static_cast<int32_t>(one->end)});
    }
    if (copies.empty()) return;
    const CudaTable<PolygonCopy> device(copies);
    copy_polygons<<<static_cast<unsigned>(std::min<size_t>(copies.size(), 65535)), 64, 0, current_cuda_stream()>>>(
        device.data(), static_cast<int64_t>(copies.size()));
    return check_launch("segmentation.select_masks");
  }
#endif
  launch_cpu("segmentation.select_masks", rows.size(), 50.0 + 0.2 * to.mean_volume(), {table}, [=](int64_t i) {
    const SelectedPolygon* one = selected + given.offset(i) / 3;
    auto* row = static_cast<int32_t*>(rows.data(i));
    for (int64_t p = 0; p < rows.shape(i)[0]; ++p, ++one, row += 3) {
      row[0] = static_cast<int32_t>(one->mask);
      row[1] = static_cast<int32_t>(one->begin);
      row[2] = static_cast<int32_t>(one->end);
      std::memcpy(static_cast<char*>(to.data(i)) + one->begin * vertex_bytes(i),
                  static_cast<const char*>(from.data(i)) + one->source * vertex_bytes(i), (one->end - one->begin) * vertex_bytes(i));
    }
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNELS(segmentation_select_masks, ndd::select_masks)
