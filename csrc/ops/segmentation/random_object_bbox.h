// SPDX-License-Identifier: Apache-2.0
// segmentation.random_object_bbox: a label is drawn, then one of its objects; the box around it. What both devices share: the arguments, and the choice
// among the objects of a mask.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ndd/args.h"
#include "ndd/error.h"
#include "ndd/python_interface.h"
#include "ndd/random/random.h"
#include "ops/random/random_window.h"
#include "ops/segmentation/objects.h"

namespace ndd::object_bbox {

inline constexpr int64_t kMissing = INT32_MIN;  // pads lists whose lengths differ between samples
inline constexpr int64_t kLowest = INT32_MIN;

// The arguments of one sample, with defaults filled in.
struct ObjectRule {
  double foreground_prob;
  int64_t background, k_largest;
  bool ignore_class;
  bool listed;  // labels are those of `weights`; else all but the background, equally likely
  std::unordered_map<int64_t, double> weights;
  std::vector<int64_t> threshold;  // least extents

  // The label of objects with this label; kNoObject for the background and labels that are not listed.
  int64_t label_of(int64_t label) const {
    if (listed) return weights.count(label) > 0 ? label : kNoObject;
    return label == background ? kNoObject : label;
  }
};

struct DrawnObject {
  std::vector<int64_t> begin, end;
  int64_t label;
};

inline DrawnObject whole_sample(const int64_t* shape, int64_t ndim, const ObjectRule& rule) {
  return {std::vector<int64_t>(ndim, 0), std::vector<int64_t>(shape, shape + ndim), rule.background};
}

// Draws a label by weight among those with a valid object, then one of its objects. Falls back to the whole sample.
inline DrawnObject choose_object(const MaskObjects& objects, const int64_t* shape, int64_t ndim, const ObjectRule& rule, Philox& stream) {
  DrawnObject drawn_object = whole_sample(shape, ndim, rule);
  // With ignore_class all objects are of one class, and are equally likely.
  const auto class_of = [&](int64_t k) { return rule.ignore_class ? 0 : objects.labels[k]; };
  std::vector<int64_t> valid, labels;  // labels in the order of their first objects
  std::unordered_map<int64_t, double> weights;
  double total = 0.0;
  for (int64_t k = 0; k < objects.size(); ++k) {
    bool large = true;
    for (int64_t d = 0; d < ndim && !rule.threshold.empty(); ++d) large = large && objects.extent(k, d) >= rule.threshold[d];
    if (!large) continue;
    valid.push_back(k);
    const double weight = rule.listed ? rule.weights.at(objects.labels[k]) : 1.0;
    if (weights.emplace(class_of(k), weight).second) {
      labels.push_back(class_of(k));
      total += weight;
    }
  }
  // No object is large enough, or the weights of all of them are 0.
  if (!(total > 0.0)) return drawn_object;
  double left = stream.uniform_double() * total;
  int64_t label = 0;
  // Rounding may leave a rest behind the last label, which is taken then.
  for (const int64_t candidate : labels) {
    if (!(weights[candidate] > 0.0)) continue;
    label = candidate;
    left -= weights[candidate];
    if (left < 0.0) break;
  }
  valid.erase(std::remove_if(valid.begin(), valid.end(), [&](int64_t k) { return class_of(k) != label; }), valid.end());
  if (rule.k_largest > 0 && rule.k_largest < static_cast<int64_t>(valid.size())) {
    // Stable: of objects with equal volume the first ones are kept on both devices.
    std::stable_sort(valid.begin(), valid.end(), [&](int64_t a, int64_t b) { return objects.volume(a) > objects.volume(b); });
    valid.resize(rule.k_largest);
  }
  const int64_t chosen = valid[random_window_detail::below(stream.uniform_double(), static_cast<int64_t>(valid.size()))];
  std::copy_n(objects.begin.begin() + chosen * ndim, ndim, drawn_object.begin.begin());
  std::copy_n(objects.end.begin() + chosen * ndim, ndim, drawn_object.end.begin());
  drawn_object.label = label;
  return drawn_object;
}

// Reads the arguments, which may be pending on the CPU until a sample is processed.
class Rules {
 public:
  Rules(const MaybeTensor& background, const MaybeTensor& class_weights, const MaybeTensor& classes, const Tensor& foreground_prob,
        const MaybeTensor& threshold, int64_t k_largest, bool ignore_class)
      : foreground_prob_(foreground_prob), k_largest_(k_largest), ignore_class_(ignore_class) {
    if (background) background_.emplace(*background);
    if (class_weights) weights_.emplace(*class_weights);
    if (classes) classes_.emplace(*classes);
    if (threshold) threshold_.emplace(*threshold);
  }

  ObjectRule of(int64_t i, int64_t ndim) const {
    ObjectRule rule{foreground_prob_(i), background_ ? (*background_)(i) : 0, k_largest_, ignore_class_, classes_ || weights_, {}, {}};
    std::vector<int64_t> labels;
    std::vector<double> weights;
    for (int64_t k = 0; classes_ && k < classes_->cols() && (*classes_)(i, k) != kMissing; ++k) labels.push_back((*classes_)(i, k));
    for (int64_t k = 0; weights_ && k < weights_->cols() && !std::isnan((*weights_)(i, k)); ++k) weights.push_back((*weights_)(i, k));
    if (classes_ && weights_ && labels.size() != weights.size())
      fail(error(i), "classes has ", labels.size(), " numbers, class_weights ", weights.size());
    // Weights alone are for the labels from 0 on, without the background.
    if (!classes_)
      for (int64_t label = 0; labels.size() < weights.size(); ++label)
        if (label != rule.background) labels.push_back(label);
    // A background that the user has chosen must not be a class. The default one gives way, to a label below all classes.
    const bool clash = std::find(labels.begin(), labels.end(), rule.background) != labels.end();
    if (clash && background_) fail(error(i), "the background ", rule.background, " is among the classes");
    if (clash) rule.background = std::max(*std::min_element(labels.begin(), labels.end()), INT64_MIN + 1) - 1;
    for (size_t k = 0; k < labels.size(); ++k) {
      const double weight = weights_ ? weights[k] : 1.0;
      rule.weights[labels[k]] += weight > 0.0 ? weight : 0.0;
    }
    for (int64_t d = 0; threshold_ && d < ndim; ++d) rule.threshold.push_back((*threshold_)(i, threshold_->cols() == 1 ? 0 : d));
    return rule;
  }

 private:
  static std::string error(int64_t i) { return "segmentation.random_object_bbox: sample " + std::to_string(i) + ": "; }

  std::optional<Args<int64_t>> background_, classes_, threshold_;
  std::optional<Args<double>> weights_;
  Args<double> foreground_prob_;
  int64_t k_largest_;
  bool ignore_class_;
};

NDD_ENUM("random_object_bbox.Format", Format, int64_t, anchor_shape, start_end, box);

inline void check_masks(const std::string& op, const Samples& in) {
  if (in.ndim() < 1 || is_floating_dtype(in.dtype())) fail(Error::Value, op, ": masks must be integers, in rows");
}

// Throws unless the outputs have room for the boxes of all samples.
inline void check_boxes(const std::string& op, const Samples& in, Format format, const Tensor& first, const Tensor& second, const Tensor& labels) {
  const int64_t numbers = in.size() * in.ndim();
  const bool is_box = format == Format::box;
  if (first.numel() < (is_box ? 2 : 1) * numbers || (!is_box && second.numel() < numbers) || labels.numel() < in.size())
    fail(Error::Value, op, ": the outputs must have a box and a label for each of ", in.size(), " samples");
  for (const Tensor* output : {&first, &second, &labels})
    if (output->dtype() != DType::int32 || !output->is_contiguous()) fail(Error::Type, op, ": the outputs must be int32 and contiguous");
}

// The boxes of a batch: `first` is int32 (N, ndim), for a box (N, 2 ndim); `second` (N, ndim), or empty; `labels` (N,).
struct Boxes {
  int64_t ndim;
  Format format;
  int32_t *first, *second, *labels;

  void set(int64_t i, const DrawnObject& object) const {
    const int64_t firsts = format == Format::box ? 2 * ndim : ndim;
    for (int64_t d = 0; d < ndim; ++d) {
      first[i * firsts + d] = static_cast<int32_t>(object.begin[d]);
      const int64_t other = format == Format::anchor_shape ? object.end[d] - object.begin[d] : object.end[d];
      if (format == Format::box) first[i * firsts + ndim + d] = static_cast<int32_t>(other);
      else second[i * ndim + d] = static_cast<int32_t>(other);
    }
    labels[i] = static_cast<int32_t>(std::max<int64_t>(object.label, kLowest));
  }
};

}  // namespace ndd::object_bbox
