// SPDX-License-Identifier: Apache-2.0
// Anchors and ground-truth boxes: which anchor stands for which box, and the box as the anchor sees it. The same on CPU and GPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "ndd/hd.h"
#include "ndd/random/normal.h"

namespace ndd {

// Boxes are left, top, right, bottom.
struct BoxCoding {
  float criteria, scale, means[4], stds[4];
  bool offset;
};

NDD_HD float box_area(const float* box) { return (box[2] - box[0]) * (box[3] - box[1]); }

// Intersection over union. NaN where a number is NaN, or where both areas are zero.
NDD_HD float overlap_of(float left, float top, float right, float bottom, float area, const float* box, float box_area) {
  const float l = left > box[0] ? left : box[0], t = top > box[1] ? top : box[1];
  const float r = right < box[2] ? right : box[2], b = bottom < box[3] ? bottom : box[3];
  const float w = r - l, h = b - t;
  const float both = (w > 0.0f ? w : 0.0f) * (h > 0.0f ? h : 0.0f);
  return both / (area + box_area - both);
}

// The logarithm to 1 unit in the last place, -infinity at 0, with the same bits on the CPU and the GPU.
NDD_HD float log_of_ratio(float x) {
  if (!(x >= 1.17549435e-38f)) return x < 1.17549435e-38f && x >= 0.0f ? -INFINITY : NAN;
  if (x > 3.4028234e38f) return x;
  return static_cast<float>(log_of(static_cast<double>(x)));
}

// Center and size; with `offset`, as differences from the anchor.
NDD_HD void encode_box(const BoxCoding& coding, const float* box, const float* anchor, float* out) {
  for (int d = 0; d < 2; ++d) {
    const float center = (box[d] + box[d + 2]) * 0.5f, size = box[d + 2] - box[d];
    if (!coding.offset) {
      out[d] = center;
      out[d + 2] = size;
      continue;
    }
    const float anchor_center = (anchor[d] + anchor[d + 2]) * 0.5f * coding.scale, anchor_size = (anchor[d + 2] - anchor[d]) * coding.scale;
    // As in SSD (Liu et al., 2016): centers relative to the anchor's size, sizes as logarithms of ratios, both normalized.
    out[d] = ((center * coding.scale - anchor_center) / anchor_size - coding.means[d]) / coding.stds[d];
    out[d + 2] = (log_of_ratio(size * coding.scale / anchor_size) - coding.means[d + 2]) / coding.stds[d + 2];
  }
}

// An anchor without a box: no differences, or the anchor itself.
NDD_HD void encode_nothing(const BoxCoding& coding, const float* anchor, float* out) {
  for (int d = 0; d < 2; ++d) {
    out[d] = coding.offset ? 0.0f : (anchor[d] + anchor[d + 2]) * 0.5f;
    out[d + 2] = coding.offset ? 0.0f : anchor[d + 2] - anchor[d];
  }
}

}  // namespace ndd
