// SPDX-License-Identifier: Apache-2.0
// The arguments of the image decoders' kernels, on the CPU and the GPU: files, windows, and the table of errors.
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

// Throws unless there is an image of height, width and channels for each file.
inline void check_images(const std::string& op, const Samples& files, const Samples& images) {
  if (images.size() != files.size() || (files.size() > 0 && images.ndim() != 3))
    fail(Error::Value, op, ": the output must have height, width and channels for each of ", files.size(), " files");
}

// Returns the options of sample i. `windows` (N, 4 or 5): y, x, height and width in the delivered image, and the scale in eighths.
inline DecodeOptions options_of(DecodeOptions options, const MaybeTensor& windows, int64_t i) {
  if (windows) {
    const Args<int64_t> window(*windows);
    options.window = CropWindow{window(i, 0), window(i, 1), window(i, 2), window(i, 3)};
    if (window.cols() > 4) options.eighths = static_cast<int>(std::clamp<int64_t>(window(i, 4), 1, 8));
  }
  return options;
}

// The reasons why samples could not be decoded: uint8 (N, bytes), a row of zero-terminated text for each sample, empty for success. Samples
// are decoded concurrently; each writes only its own row.
class Reasons {
 public:
  Reasons(const MaybeTensor& table, int64_t samples) : table_(table) {
    if (!table) return;
    check_numbers(*table);
    // A byte for the zero at the end.
    if (table->dtype() != DType::uint8 || table->dim() != 2 || table->size(0) < samples || table->size(1) < 1)
      fail(Error::Value, "the table of reasons must be uint8, with a row for each of ", samples, " samples");
  }

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

// Runs `work`. Returns false if it failed, now or in an earlier step, and the reason is in the table. Without a table the error is thrown.
template <class F>
bool try_sample(const Reasons& reasons, const std::string& op, int64_t i, F work) {
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
