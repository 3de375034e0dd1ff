// SPDX-License-Identifier: Apache-2.0
// Maps from matrices: given as an argument (on the host) or as an input (on the device of the images), per sample or per frame.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ndd/elementwise/elements.cuh"
#include "ndd/warp/driver.h"

namespace ndd {

// Inverts x -> a x + b: a becomes its inverse, b becomes -inverse(a) b. False if it is singular.
template <int D>
NDD_HD bool invert_affine(double (&a)[D][D], double (&b)[D]) {
  double cofactor[D][D], determinant = 0;
  if constexpr (D == 2) {
    cofactor[0][0] = a[1][1], cofactor[0][1] = -a[1][0], cofactor[1][0] = -a[0][1], cofactor[1][1] = a[0][0];
  } else {
    for (int i = 0; i < 3; ++i)
      for (int k = 0; k < 3; ++k) {
        // Cyclic indices give the cofactor its sign.
        const int r = (i + 1) % 3, s = (i + 2) % 3, u = (k + 1) % 3, v = (k + 2) % 3;
        cofactor[i][k] = a[r][u] * a[s][v] - a[r][v] * a[s][u];
      }
  }
  // Laplace's expansion along the first row.
  for (int k = 0; k < D; ++k) determinant += a[0][k] * cofactor[0][k];
  // The difference is NaN for infinite and NaN determinants.
  if (determinant == 0 || !(determinant - determinant == 0)) return false;
  double shift[D];
  for (int i = 0; i < D; ++i) {
    shift[i] = 0;
    for (int k = 0; k < D; ++k) {
      a[i][k] = cofactor[k][i] / determinant;
      shift[i] -= a[i][k] * b[k];
    }
  }
  for (int i = 0; i < D; ++i) b[i] = shift[i];
  return true;
}

// Converts a matrix (D, D + 1) to the map from output to input, inverting it if `forward`.
template <int D>
struct AffineRule {
  using Map = AffineMap<D>;
  static constexpr int kElements = D * (D + 1);
  bool forward;

  NDD_HD bool operator()(const double* m, Map* map) const {
    double a[D][D], b[D];
    for (int i = 0; i < D; ++i) {
      for (int k = 0; k < D; ++k) a[i][k] = m[i * (D + 1) + k];
      b[i] = m[i * (D + 1) + D];
    }
    // A singular matrix stays as it is: an error on the host; a kernel cannot raise one.
    const bool valid = !forward || invert_affine<D>(a, b);
    for (int i = 0; i < D; ++i) {
      for (int k = 0; k < D; ++k) map->m[i][k] = static_cast<float>(a[i][k]);
      map->m[i][D] = static_cast<float>(b[i]);
    }
    return valid;
  }
};

struct PerspectiveMap {
  float m[3][3];

  // The affine map without the division, if the perspective row is trivial; its points are the same.
  bool affine(AffineMap<2>* map) const {
    for (int k = 0; k < 6; ++k) map->m[k / 3][k % 3] = m[k / 3][k % 3];
    return m[2][0] == 0.0f && m[2][1] == 0.0f && m[2][2] == 1.0f;
  }
  NDD_HD Point<2> operator()(const Point<2>& to) const {
    float v[3];
    for (int r = 0; r < 3; ++r) v[r] = mul_then_add(m[r][0], to.at[0], mul_then_add(m[r][1], to.at[1], m[r][2]));
    return {v[0] / v[2], v[1] / v[2]};  // infinite where v[2] is zero
  }
};

// `centered`: in the matrix's coordinates, (0, 0) is the center of the first pixel and not its corner.
struct PerspectiveRule {
  using Map = PerspectiveMap;
  static constexpr int kElements = 9;
  bool forward, centered;

  NDD_HD bool operator()(const double* m, Map* map) const {
    double a[3][3];
    for (int i = 0; i < 9; ++i) a[i / 3][i % 3] = m[i];
    // A homography has no shift of its own: it is part of the 3 x 3 matrix.
    double nothing[3] = {};
    // Homographies are equal up to a factor, so dividing by the determinant does not matter.
    const bool valid = !forward || invert_affine<3>(a, nothing);
    for (int k = 0; k < 3 && centered; ++k) {  // shifts by half a pixel before and after
      a[0][k] += 0.5 * a[2][k];
      a[1][k] += 0.5 * a[2][k];
    }
    for (int i = 0; i < 3; ++i) {
      // Before the matrix: from pixel corners to pixel centers.
      if (centered) a[i][2] -= 0.5 * (a[i][0] + a[i][1]);
      for (int k = 0; k < 3; ++k) map->m[i][k] = static_cast<float>(a[i][k]);
    }
    return valid;
  }
};

#ifdef __CUDACC__
template <class Item, class Rule>
__global__ void set_matrix_maps(Item* items, const void* const* matrices, int64_t count, DType dtype, Rule rule) {
  const int64_t n = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (n >= count) return;
  double m[Rule::kElements];
  for (int k = 0; k < Rule::kElements; ++k) m[k] = load_element(matrices[n], dtype, k);
  rule(m, &items[n].map);
}
#endif

template <int D, class Rule>
class MatrixMaps {
 public:
  using Map = typename Rule::Map;

  MatrixMaps(const WarpImages& images, const MaybeTensor& input, const MaybeTensor& input_shapes, const MaybeTensor& argument, Rule rule)
      : images_(images), rule_(rule) {
    if (input) input_.emplace(*input, input_shapes);
    if (argument) argument_.emplace(*argument);
  }

  void operator()(WarpItem<D, Map>& item, int64_t i, int64_t f) const {
    check(i);
    // The values of such a matrix are not on the host; on_device() below computes the map in a kernel.
    if (on_device()) return;
    double m[Rule::kElements];
    const int64_t first = matrix_count(i) > 1 ? f * Rule::kElements : 0;
    for (int k = 0; k < Rule::kElements; ++k) {
      m[k] = input_ ? load_element(input_->data(i), input_->dtype(), first + k) : (*argument_)(i, first + k);
      // Samplers would silently treat the points of such a map as far outside.
      if (!std::isfinite(m[k])) images_.refuse(i, "matrix must be finite");
    }
    if (!rule_(m, &item.map)) fail(Error::Value, images_.op(), ": matrix is singular: it has no inverse, sample ", i);
  }

#ifdef __CUDACC__
  void on_device(WarpItem<D, Map>* items, const std::vector<int64_t>& samples, const std::vector<int64_t>& frames) const {
    if (!on_device()) return;
    std::vector<const void*> matrices;
    for (size_t n = 0; n < samples.size(); ++n) {
      const int64_t f = matrix_count(samples[n]) > 1 ? frames[n] : 0;
      matrices.push_back(static_cast<const char*>(input_->data(samples[n])) + f * Rule::kElements * input_->item_bytes());
    }
    const CudaTable<const void*> table(matrices);
    const int64_t count = static_cast<int64_t>(matrices.size());
    set_matrix_maps<<<static_cast<unsigned>((count + 63) / 64), 64, 0, current_cuda_stream()>>>(items, table.data(), count, input_->dtype(), rule_);
    check_launch(images_.op());
  }
#endif

 private:
  bool on_device() const { return input_ && input_->values().is_cuda(); }
  int64_t elements(int64_t i) const { return input_ ? input_->volume(i) : argument_->cols(); }
  int64_t matrix_count(int64_t i) const { return elements(i) / Rule::kElements; }

  void check(int64_t i) const {
    const int64_t count = elements(i);
    if (count == 0 || count % Rule::kElements != 0) images_.refuse(i, "matrix must have ", Rule::kElements, " elements, got ", count);
    images_.check_frames(i, matrix_count(i), "matrix", input_.has_value());
  }

  WarpImages images_;
  Rule rule_;
  std::optional<Samples> input_;
  std::optional<Args<float>> argument_;
};

}  // namespace ndd
