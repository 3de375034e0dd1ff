// SPDX-License-Identifier: Apache-2.0
// Unpacks the bytes of a row of a TIFF to samples.
#pragma once

#include "decoders/tiff/tiff_image.h"

#include <cstdint>
#include <vector>

namespace ndd {

// Holds buffers for one row: each thread uses its own.
class RowUnpacker {
 public:
  // `scaled`: integers with fewer bits than their type are scaled to its full range; palette indices are not.
  RowUnpacker(const TiffImage& image, bool scaled);

  // Writes the samples of `pixels` pixels from `first` on; `step` is the distance between pixels in `out`, in samples of `image.dtype()`. A
  // packed row of blocks with subsampled chroma holds several rows of pixels; `row_in_block` selects one.
  void unpack(const uint8_t* row, int64_t row_in_block, int64_t first, int64_t pixels, void* out, int64_t step);

 private:
  void undo_predictor(const uint8_t* row);
  template <class T>
  T sample_of(uint64_t pattern) const;
  template <class T>
  void unpack_samples(const uint8_t* row, int64_t first, int64_t count, T* out) const;
  template <class T>
  void unpack_pixels(const uint8_t* row, int64_t first, int64_t pixels, T* out, int64_t step);
  void unpack_blocks(const uint8_t* row, int64_t row_in_block, int64_t first, int64_t pixels, uint8_t* out, int64_t step) const;

  const TiffImage& image_;
  const bool scaled_;
  bool little_;
  std::vector<uint16_t> levels_;      // scaled values of samples with few bits
  std::vector<uint8_t> differences_;  // a row after undo_predictor()
  std::vector<uint8_t> dense_;        // contiguous samples, before they are spread to `step`
};

}  // namespace ndd
