// SPDX-License-Identifier: Apache-2.0
// What the kernels of the image decoders, on the CPU and on the GPU, make of their arguments.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "decoders/image_decoder.h"
#include "decoders/sample_errors.h"
#include "ndd/args.h"
#include "ndd/samples.h"

namespace ndd {

inline EncodedImage encoded_image(const Samples& files, int64_t i) {
  return {static_cast<const uint8_t*>(files.data(i)), static_cast<size_t>(files.volume(i))};
}

inline ImageShape shape_of(const Samples& images, int64_t i) {
  const int64_t* shape = images.shape(i);
  return {shape[0], shape[1], shape[2]};
}

// `windows` (N, 4 or 5): y, x, height, width in the image as delivered, and the scale in eighths.
inline DecodeOptions options_of(DecodeOptions options, const MaybeTensor& windows, int64_t i) {
  if (windows) {
    const Args<int64_t> window(*windows);
    options.window = CropWindow{window(i, 0), window(i, 1), window(i, 2), window(i, 3)};
    if (window.cols() > 4) options.eighths = static_cast<int>(std::clamp<int64_t>(window(i, 4), 1, 8));
  }
  return options;
}

// Why samples could not be decoded, a row each, uint8 (N, bytes): text that ends with a zero, empty where nothing is wrong. Samples are decoded at
// the same time, each writes its own row.
class Reasons {
 public:
  explicit Reasons(const MaybeTensor& table) : table_(table) {}

  explicit operator bool() const { return table_.has_value(); }
  bool has(int64_t i) const { return table_ && *row(i); }

  void set(int64_t i, const std::string& reason) const {
    const size_t length = std::min(reason.size(), static_cast<size_t>(table_->size(1)) - 1);
    std::memcpy(row(i), reason.data(), length);
    row(i)[length] = 0;
  }

 private:
  char* row(int64_t i) const { return static_cast<char*>(table_->data_ptr()) + i * table_->size(1); }

  MaybeTensor table_;
};

// Runs `work`; false when it failed and the reason was noted instead of thrown.
template <class F>
bool noted(const Reasons& reasons, const std::string& op, int64_t i, F work) {
  if (!reasons) {
    for_sample(op, i, work);
    return true;
  }
  if (reasons.has(i)) return false;
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    reasons.set(i, error.what());
    return false;
  }
}

}  // namespace ndd
