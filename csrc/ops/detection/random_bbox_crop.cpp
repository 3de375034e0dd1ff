// SPDX-License-Identifier: Apache-2.0
// random_bbox_crop: windows are drawn until one shows the boxes well enough. On the host, in the call: how many boxes are left decides about the shapes
// of the outputs, and a window takes 0.1 us.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ndd/args.h"
#include "ndd/host_numbers.h"
#include "ndd/kernel.h"
#include "ndd/random/random.h"

namespace ndd {
namespace {

constexpr int kMaxDims = 3;
// The bound if total_num_attempts is not set: boxes that no window satisfies would otherwise loop forever.
constexpr int64_t kMaxAttempts = 100000;
constexpr double kRatioTolerance = 1e-4, kLimitTolerance = 1e-4;

// Of a window or a box; x, y and z.
struct Extent {
  double low[kMaxDims], high[kMaxDims];

  double volume(int dims) const {
    double product = 1.0;
    for (int d = 0; d < dims; ++d) product *= high[d] - low[d];
    return product;
  }
};

double common_volume(const Extent& a, const Extent& b, int dims) {
  double product = 1.0;
  for (int d = 0; d < dims; ++d) product *= std::max(0.0, std::min(a.high[d], b.high[d]) - std::max(a.low[d], b.low[d]));
  return product;
}

// Where in a row of numbers a box has its start and its end or extent along each axis.
struct BoxLayout {
  int start[kMaxDims], end[kMaxDims], dims;
  bool extents;

  explicit BoxLayout(const std::string& layout) : dims(static_cast<int>(layout.size() / 2)), extents(layout.find('W') != std::string::npos) {
    const std::string upper = extents ? "WHD" : "XYZ";
    std::string sorted = layout;
    std::sort(sorted.begin(), sorted.end());
    std::string expected = std::string("xyz", std::min(dims, kMaxDims)) + upper.substr(0, static_cast<size_t>(dims));
    std::sort(expected.begin(), expected.end());
    if (dims < 2 || sorted != expected)
      fail(Error::Value, "random_bbox_crop: the layout of boxes must have each of \"xyXY\", \"xyWH\", \"xyzXYZ\" or \"xyzWHD\" once, got \"", layout,
           "\"");
    for (int d = 0; d < dims; ++d) {
      start[d] = static_cast<int>(layout.find("xyz"[d]));
      end[d] = static_cast<int>(layout.find(upper[d]));
    }
  }

  Extent read(const float* row) const {
    Extent box{};
    for (int d = 0; d < dims; ++d) {
      box.low[d] = row[start[d]];
      box.high[d] = extents ? box.low[d] + row[end[d]] : row[end[d]];
    }
    return box;
  }
};

// The arguments of a call, the same for all samples.
struct CropRule {
  std::vector<double> thresholds, scaling, aspect;  // the aspect ratios: least and largest of x / y, x / z, y / z
  int64_t attempts, total_attempts;
  double prune;  // negative: a box is kept where its center lies in the window
  bool allow_no_crop, all_boxes, overlap;
};

struct Crop {
  double anchor[kMaxDims], shape[kMaxDims];  // as the output has them
  Extent window;  // relative
};

// Draws windows until one passes a threshold. It remembers the best one so far, which is the result if the attempts run out.
class Search {
 public:
  // `image` and `wanted` are in pixels; null where they are not given.
  Search(const CropRule& rule, const std::vector<Extent>& boxes, int dims, const double* image, const double* wanted, Philox stream)
      : rule_(rule), boxes_(boxes), dims_(dims), image_(image), wanted_(wanted), stream_(stream) {}

  // whole: no crop; valid: a threshold is met; best: the best of those that met none; none: no allowed aspect ratio was found.
  enum Result { whole, valid, best, none };

  Result run(Crop& crop) {
    // No crop is one more option beside the thresholds; a window of a given size cannot be the whole image.
    const int64_t options = static_cast<int64_t>(rule_.thresholds.size()) + (rule_.allow_no_crop && wanted_ == nullptr);
    const int64_t limit = rule_.total_attempts > 0 ? rule_.total_attempts : std::max(kMaxAttempts, rule_.attempts);
    double highest = -1.0;
    for (int64_t tried = 0; tried < limit;) {
      // A threshold, or no crop, is drawn first, and several windows are tried for it. The high half of the product is uniform in [0, options).
      const size_t option = static_cast<size_t>(uint64_t{stream_.next()} * static_cast<uint64_t>(options) >> 32);
      if (option == rule_.thresholds.size()) {
        for (int d = 0; d < dims_; ++d) crop.anchor[d] = 0.0, crop.shape[d] = 1.0;
        return whole;
      }
      for (int64_t k = 0; k < rule_.attempts; ++k, ++tried) {
        Crop candidate{};
        if (!draw(candidate)) continue;
        // Without boxes any window will do.
        if (boxes_.empty()) {
          crop = candidate;
          return valid;
        }
        const double metric = metric_of(candidate.window);
        if (metric >= rule_.thresholds[option] && keeps_any(candidate.window)) {
          crop = candidate;
          return valid;
        }
        if (metric > highest) {
          highest = metric;
          crop = candidate;
        }
      }
    }
    // No window so far had an allowed aspect ratio: take the first one that has.
    for (int64_t k = 0; highest < 0.0 && k < kMaxAttempts; ++k)
      if (draw(crop)) return best;
    return highest < 0.0 ? none : best;
  }

  bool keeps(const Extent& window, const Extent& box) const {
    // The visible part of the box. NaN, of a box without volume, is not kept.
    if (rule_.prune >= 0.0) return common_volume(window, box, dims_) / box.volume(dims_) > rule_.prune;
    for (int d = 0; d < dims_; ++d) {
      const double center = (box.low[d] + box.high[d]) * 0.5;
      if (!(center >= window.low[d] && center <= window.high[d])) return false;
    }
    return true;
  }

 private:
  // False if the aspect ratio is not allowed.
  bool draw(Crop& crop) {
    if (wanted_ != nullptr) {
      for (int d = 0; d < dims_; ++d) {
        // A window larger than the image begins outside, at a negative offset.
        const int64_t room = static_cast<int64_t>(image_[d]) - static_cast<int64_t>(wanted_[d]);
        const int64_t offset = static_cast<int64_t>(uint64_t{stream_.next()} * static_cast<uint64_t>(std::abs(room) + 1) >> 32);
        crop.anchor[d] = static_cast<double>(room < 0 ? -offset : offset);
        crop.shape[d] = wanted_[d];
        crop.window.low[d] = crop.anchor[d] / image_[d];
        crop.window.high[d] = (crop.anchor[d] + crop.shape[d]) / image_[d];
      }
      return true;
    }
    double extents[kMaxDims] = {};
    for (int d = 0; d < dims_; ++d)
      extents[d] = (rule_.scaling[0] + (rule_.scaling[1] - rule_.scaling[0]) * stream_.uniform()) * (image_ == nullptr ? 1.0 : image_[d]);
    if (!with_aspect(extents)) return false;
    for (int d = 0; d < dims_; ++d) {
      // Rounded as the output will be, so the boxes are kept by the window that the user sees.
      const double shape = static_cast<float>(extents[d] / (image_ == nullptr ? 1.0 : image_[d]));
      crop.shape[d] = shape;
      crop.anchor[d] = static_cast<float>((1.0 - shape) * stream_.uniform());
      crop.window.low[d] = crop.anchor[d];
      crop.window.high[d] = crop.anchor[d] + shape;
    }
    return true;
  }

  // Random extents almost never match a single allowed ratio, so then the longest side is kept and the others follow from it.
  bool with_aspect(double (&extents)[kMaxDims]) const {
    // Pair 0 is x / y, pair 1 x / z, pair 2 y / z.
    const auto low = [&](int k) { return rule_.aspect[2 * k]; };
    const auto high = [&](int k) { return rule_.aspect[2 * k + 1]; };
    const int pairs = dims_ == 2 ? 1 : 3;
    if (low(0) == high(0) && (dims_ == 2 || low(1) == high(1))) {
      // The extents have the ratios; the longest one becomes as long as the longest that was drawn.
      double sides[kMaxDims] = {1.0, 1.0 / low(0), dims_ == 3 ? 1.0 / low(1) : 0.0};
      const double longest_side = *std::max_element(extents, extents + dims_), longest = *std::max_element(sides, sides + dims_);
      for (int d = 0; d < dims_; ++d) extents[d] = sides[d] * (longest_side / longest);
    } else if (low(0) == high(0)) {
      extents[1] = extents[0] / low(0);
    } else if (dims_ == 3 && low(1) == high(1)) {
      extents[2] = extents[0] / low(1);
    } else if (dims_ == 3 && low(2) == high(2)) {
      extents[2] = extents[1] / low(2);
    }
    constexpr int kFirst[3] = {0, 0, 1}, kSecond[3] = {1, 2, 2};
    for (int k = 0; k < pairs; ++k) {
      const double ratio = extents[kFirst[k]] / extents[kSecond[k]], slack = low(k) == high(k) ? kRatioTolerance * low(k) : 0.0;
      if (!(ratio >= low(k) - slack && ratio <= high(k) + slack)) return false;
    }
    return true;
  }

  // The least value of all boxes, or the largest.
  double metric_of(const Extent& window) const {
    double found = rule_.all_boxes ? std::numeric_limits<double>::infinity() : 0.0;
    const double area = window.volume(dims_);
    for (const Extent& box : boxes_) {
      // Overlap: the visible part of the box; otherwise intersection over union. A box without volume counts as 0.
      const double both = common_volume(window, box, dims_), own = box.volume(dims_);
      const double ratio = both / (rule_.overlap ? own : area + own - both), value = ratio >= 0.0 ? ratio : 0.0;
      found = rule_.all_boxes ? std::min(found, value) : std::max(found, value);
    }
    return found;
  }

  bool keeps_any(const Extent& window) const {
    for (const Extent& box : boxes_)
      if (keeps(window, box)) return true;
    return false;
  }

  const CropRule& rule_;
  const std::vector<Extent>& boxes_;
  int dims_;
  const double *image_, *wanted_;
  Philox stream_;
};

std::vector<double> numbers_of(const char* name, const Tensor& tensor, int64_t least) {
  const auto* data = host_numbers<const double>("random_bbox_crop", name, tensor, least);
  return {data, data + tensor.numel()};
}

// The extents of an image or of a window: a row for each sample, or one for all.
struct Extents {
  std::optional<Args<double>> rows;

  explicit Extents(const MaybeTensor& tensor) {
    if (tensor) rows.emplace(*tensor);
  }
  const double* of(int64_t i, int dims, double (&extents)[kMaxDims]) const {
    for (int d = 0; rows && d < dims; ++d)
      // Differences of two are exact, and are numbers of pixels.
      if (extents[d] = (*rows)(i, d); !(std::abs(extents[d]) < 0x1p53))
        fail("random_bbox_crop: sample ", i, ": extents must be numbers of pixels, got ", extents[d]);
    return rows ? extents : nullptr;
  }
};

// `image` and `wanted` are double (1 or N, dims), x first. `anchors` and `shapes` are float32 (N, dims), `mapped` has the boxes in the window, `kept`
// (bool) and `numbers` (int32) say for each box whether it is left and its number, `counts` (int64) how many are left of each sample, `results`
// (int32) how each search ended.
void random_bbox_crop(const Tensor& boxes, const MaybeTensor& boxes_shapes, const MaybeTensor& image, const MaybeTensor& wanted,
                      const Tensor& thresholds, const Tensor& scaling, const Tensor& aspect, int64_t attempts, int64_t total_attempts, double prune,
                      bool allow_no_crop, bool all_boxes, bool overlap, const std::string& layout, const Tensor& words, const Tensor& anchors,
                      const Tensor& shapes, const Tensor& mapped, const Tensor& kept, const Tensor& numbers, const Tensor& counts,
                      const Tensor& results) {
  const std::string op = "random_bbox_crop";
  const Samples in(boxes, boxes_shapes);
  const BoxLayout where(layout);
  const int dims = where.dims;
  const int64_t* drawn = drawn_words(op, words);
  const CropRule rule{numbers_of("the table of thresholds", thresholds, 0),
                      numbers_of("scaling", scaling, 2),
                      numbers_of("aspect_ratio", aspect, 6),
                      attempts,
                      total_attempts,
                      prune,
                      allow_no_crop,
                      all_boxes,
                      overlap};
  if (attempts < 1) fail(Error::Value, op, ": num_attempts must be at least 1, got ", attempts);
  if (in.dtype() != DType::float32) fail(Error::Type, op, ": boxes must be float32");
  if (wanted && !image) fail(Error::Value, op, ": crop_shape needs input_shape");
  const Extents images(image), windows(wanted);
  // `boxes` may have more elements than its samples.
  const int64_t samples = in.size(), most = boxes.numel() / (2 * dims);
  auto* const anchor_numbers = host_numbers<float>(op, "the table of anchors", anchors, samples * dims);
  auto* const shape_numbers = host_numbers<float>(op, "the table of shapes", shapes, samples * dims);
  auto* const mapped_numbers = host_numbers<float>(op, "the output", mapped, boxes.numel());
  auto* const mask = host_numbers<bool>(op, "the mask", kept, most);
  auto* const indices = host_numbers<int32_t>(op, "the table of indices", numbers, most);
  auto* const left_of = host_numbers<int64_t>(op, "the table of counts", counts, samples);
  auto* const ends = host_numbers<int32_t>(op, "the table of results", results, samples);
  launch_cpu(op, samples, 500.0 + 20.0 * in.mean_volume(), {}, [&](int64_t i) {
    const auto* rows = static_cast<const float*>(in.data(i));
    const int64_t count = in.volume(i) / (2 * dims), first = in.offset(i) / (2 * dims);
    std::vector<Extent> extents(count);
    for (int64_t b = 0; b < count; ++b) {
      extents[b] = where.read(rows + 2 * dims * b);
      for (int d = 0; d < dims; ++d)
        if (!(extents[b].low[d] >= -kLimitTolerance && extents[b].high[d] <= 1.0 + kLimitTolerance && extents[b].low[d] <= extents[b].high[d]))
          fail(op, ": sample ", i, ", box ", b, " is not within the image: it is ", extents[b].low[d], " to ", extents[b].high[d], " along ",
               "xyz"[d], "; boxes are in parts of the image's size, from 0 to 1");
    }
    Crop crop{};
    double own[kMaxDims], of_window[kMaxDims];
    Search search(rule, extents, dims, images.of(i, dims, own), windows.of(i, dims, of_window), Philox(drawn, i));
    const Search::Result result = search.run(crop);
    if (result == Search::none) fail(op, ": sample ", i, ": no window within scaling has an aspect_ratio that is allowed");
    for (int d = 0; d < dims; ++d) {
      anchor_numbers[i * dims + d] = static_cast<float>(crop.anchor[d]);
      shape_numbers[i * dims + d] = static_cast<float>(crop.shape[d]);
    }
    int64_t left = 0;
    for (int64_t b = 0; b < count; ++b) {
      float* out = mapped_numbers + (first + b) * 2 * dims;
      const bool keep = result == Search::whole || search.keeps(crop.window, extents[b]);
      mask[first + b] = keep;
      indices[first + b] = static_cast<int32_t>(b);
      left += keep;
      for (int d = 0; d < dims; ++d) {
        double low = extents[b].low[d], high = extents[b].high[d];
        if (result == Search::whole) {
          // Unchanged, to the bit.
          out[where.start[d]] = rows[2 * dims * b + where.start[d]];
          out[where.end[d]] = rows[2 * dims * b + where.end[d]];
          continue;
        }
        const double start = crop.window.low[d], extent = crop.window.high[d] - start;
        // Relative to the window, cut off at its edges.
        low = std::min(std::max((low - start) / extent, 0.0), 1.0);
        high = std::min(std::max((high - start) / extent, 0.0), 1.0);
        out[where.start[d]] = static_cast<float>(low);
        out[where.end[d]] = static_cast<float>(where.extents ? high - low : high);
      }
    }
    left_of[i] = left;
    ends[i] = static_cast<int32_t>(result);
  });
}

}  // namespace
}  // namespace ndd
NDD_KERNEL(random_bbox_crop_search, CPU, ndd::random_bbox_crop)
