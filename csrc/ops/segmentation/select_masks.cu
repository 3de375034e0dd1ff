// SPDX-License-Identifier: Apache-2.0
// segmentation.select_masks: the polygons of some masks, and their vertices one behind the other.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ndd/host_numbers.h"
#include "ndd/kernel.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd::select_masks_kernels {
namespace {

// A selected polygon: its mask in the output, its range of vertices there, and the first of them in the input.
struct SelectedPolygon {
  int64_t mask, begin, end, source;
};

#ifndef __NVCC__  // of the CPU half alone
std::string at(int64_t i) { return "segmentation.select_masks: sample " + std::to_string(i); }

// Selects the polygons, on the host for either device and during the call, because the selection determines the shapes of the outputs. `table` is int64
// (polygons, 4); a sample's rows begin where its polygons do. `vertices` are their shapes, int64 (N, 2), or null if all samples have `many` of `width`
// numbers. Fills the shapes of the outputs, int64 (N, 2): of the selected polygons and of their vertices.
void plan(const Tensor& mask_ids, const MaybeTensor& mask_ids_shapes, const Tensor& polygons, const MaybeTensor& polygons_shapes,
          const MaybeTensor& vertices, int64_t many, int64_t width, bool reindex_masks, const Tensor& table, const Tensor& polygons_out,
          const Tensor& vertices_out) {
  const Samples ids(mask_ids, mask_ids_shapes), rows(polygons, polygons_shapes);
  const char* const op = "segmentation.select_masks";
  if (ids.dtype() != DType::int32 || rows.dtype() != DType::int32) fail(Error::Type, op, ": the numbers of masks and polygons must be int32");
  if (rows.size() != ids.size()) fail(Error::Value, op, ": there must be polygons for each of ", ids.size(), " samples, got ", rows.size());
  const auto* shapes = vertices ? host_numbers<const int64_t>(op, "the table of vertices", *vertices, 2 * ids.size()) : nullptr;
  auto* const selections = reinterpret_cast<SelectedPolygon*>(host_numbers<int64_t>(op, "the selection", table, polygons.numel() / 3 * 4));
  auto* const polygon_shapes = host_numbers<int64_t>(op, "the table of polygons", polygons_out, 2 * ids.size());
  auto* const vertex_shapes = host_numbers<int64_t>(op, "the table of results", vertices_out, 2 * ids.size());
  launch_cpu("segmentation.select_masks", ids.size(), 60.0 + 1.2 * rows.mean_volume(), {}, [&](int64_t i) {
    const auto* wanted = static_cast<const int32_t*>(ids.data(i));
    const auto* row = static_cast<const int32_t*>(rows.data(i));
    const int64_t count = rows.volume(i) / 3, available = shapes != nullptr ? shapes[2 * i] : many;
    // A polygon of the input has 3 numbers: mask, first vertex and end.
    auto* selected = selections + rows.offset(i) / 3;
    std::vector<std::pair<int32_t, int64_t>> places;  // the masks in ascending order, with their places in mask_ids
    places.reserve(ids.volume(i));
    for (int64_t k = 0; k < ids.volume(i); ++k) places.emplace_back(wanted[k], k);
    std::sort(places.begin(), places.end());
    for (size_t k = 1; k < places.size(); ++k)
      if (places[k - 1].first == places[k].first) fail(at(i), ": mask_ids must not repeat a mask, got ", places[k].first, " twice");
    std::vector<std::pair<int64_t, int64_t>> chosen;  // place and polygon
    chosen.reserve(count);
    for (int64_t p = 0; p < count; ++p) {
      const int32_t mask = row[3 * p], first = row[3 * p + 1], last = row[3 * p + 2];
      // All polygons are checked, also those that are not selected: ranges must lie within the vertices.
      if (first < 0 || last > available || first > last)
        fail(at(i), ": polygon ", p, " has the vertices ", first, " to ", last, ", but there are ", available);
      const auto found = std::lower_bound(places.begin(), places.end(), std::pair<int32_t, int64_t>(mask, 0));
      if (found != places.end() && found->first == mask) chosen.emplace_back(found->second, p);
    }
    // By place in mask_ids, and within a mask in the order of the input.
    std::sort(chosen.begin(), chosen.end());
    int64_t polygon = 0, vertex = 0, place = 0;
    for (const auto& [k, p] : chosen) {
      if (k > place) break;  // nothing for this place
      const int64_t length = row[3 * p + 2] - row[3 * p + 1];
      selected[polygon++] = {reindex_masks ? k : wanted[k], vertex, vertex + length, row[3 * p + 1]};
      vertex += length;
      // The last polygon of its mask.
      if (static_cast<size_t>(polygon) == chosen.size() || chosen[polygon].first != k) ++place;
    }
    if (place < ids.volume(i)) fail(at(i), ": mask_ids must be masks of the polygons, got ", wanted[place]);
    int64_t *shape = polygon_shapes + 2 * i, *vertex_shape = vertex_shapes + 2 * i;
    shape[0] = polygon;
    shape[1] = 3;
    vertex_shape[0] = vertex;
    vertex_shape[1] = shapes != nullptr ? shapes[2 * i + 1] : width;
  });
}

#endif

#ifdef __CUDACC__
// Where a polygon and its vertices come from and go to.
struct PolygonCopy {
  const char* from;
  char* to;
  int64_t bytes;
  int32_t* row;
  int32_t mask, begin, end;
};

// A block of threads for each polygon; its first thread also writes the polygon's row.
__global__ void copy_polygons(const __grid_constant__ TableRows<PolygonCopy> copies, int64_t count) {
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
  const Samples in_polygons(polygons, polygons_shapes), from(vertices, vertices_shapes), rows(out_polygons, out_polygons_shapes),
      to(out_vertices, out_vertices_shapes);
  const char* const op = "segmentation.select_masks";
  if (from.ndim() != 2 || rows.ndim() != 2) fail(Error::Value, op, ": polygons and vertices must have rows of numbers");
  if (in_polygons.size() != rows.size() || from.size() != rows.size() || to.size() != rows.size() || to.dtype() != from.dtype() ||
      rows.dtype() != DType::int32)
    fail(Error::Value, op, ": the outputs must have the samples and the types of the inputs");
  const int64_t listed = table.numel() / 4;
  const auto* selected = reinterpret_cast<const SelectedPolygon*>(host_numbers<const int64_t>(op, "the selection", table, polygons.numel() / 3 * 4));
  // A vertex has as many coordinates as the second axis has elements.
  const auto vertex_bytes = [=](int64_t i) { return from.shape(i)[1] * from.item_bytes(); };
  // The selection of sample i; each of its polygons lies within the vertices of the input and of the output.
  const auto polygons_of = [=](int64_t i) {
    const int64_t first = in_polygons.offset(i) / 3, count = rows.shape(i)[0], width = from.shape(i)[1];
    if (rows.volume(i) != 3 * count || count > listed - first)
      fail(Error::Value, op, ": sample ", i, " of the output has more polygons than are selected");
    for (const SelectedPolygon* p = selected + first; p < selected + first + count; ++p) {
      const int64_t length = p->end - p->begin, most = width > 0 ? from.volume(i) / width : 0, room = width > 0 ? to.volume(i) / width : 0;
      if (p->begin < 0 || p->end < p->begin || p->end > room || p->source < 0 || p->source > most - length)
        fail(Error::Value, op, ": sample ", i, ": a selected polygon is not within the vertices");
    }
    return selected + first;
  };
#ifdef __CUDACC__
  if (vertices.is_cuda()) {
    std::vector<PolygonCopy> copies;
    for (int64_t i = 0; i < rows.size(); ++i) {
      const SelectedPolygon* polygon = polygons_of(i);
      for (int64_t p = 0; p < rows.shape(i)[0]; ++p, ++polygon)
        copies.push_back({static_cast<const char*>(from.data(i)) + polygon->source * vertex_bytes(i),
                          static_cast<char*>(to.data(i)) + polygon->begin * vertex_bytes(i), (polygon->end - polygon->begin) * vertex_bytes(i),
                          static_cast<int32_t*>(rows.data(i)) + 3 * p, static_cast<int32_t>(polygon->mask), static_cast<int32_t>(polygon->begin),
                          static_cast<int32_t>(polygon->end)});
    }
    if (copies.empty()) return;
    const KernelTable<PolygonCopy> device(copies);
    copy_polygons<<<batch_grid(copies.size(), 1, 1), 64, 0, current_cuda_stream()>>>(device.rows(), static_cast<int64_t>(copies.size()));
    return check_launch("segmentation.select_masks");
  }
#endif
  launch_cpu("segmentation.select_masks", rows.size(), 50.0 + 0.2 * to.mean_volume(), {table}, [=](int64_t i) {
    const SelectedPolygon* polygon = polygons_of(i);
    auto* row = static_cast<int32_t*>(rows.data(i));
    for (int64_t p = 0; p < rows.shape(i)[0]; ++p, ++polygon, row += 3) {
      row[0] = static_cast<int32_t>(polygon->mask);
      row[1] = static_cast<int32_t>(polygon->begin);
      row[2] = static_cast<int32_t>(polygon->end);
      std::memcpy(static_cast<char*>(to.data(i)) + polygon->begin * vertex_bytes(i),
                  static_cast<const char*>(from.data(i)) + polygon->source * vertex_bytes(i), (polygon->end - polygon->begin) * vertex_bytes(i));
    }
  });
}

}  // namespace
}  // namespace ndd::select_masks_kernels
NDD_KERNELS(segmentation_select_masks, ndd::select_masks_kernels::select_masks)
#ifndef __NVCC__
NDD_KERNEL(select_masks_plan, CPU, ndd::select_masks_kernels::plan)
#endif
