// SPDX-License-Identifier: Apache-2.0
// From the bytes of a row, as TIFF packs them, to samples.
#pragma once

#include "decoders/tiff/tiff_image.h"

#include <cstdint>
#include <vector>

namespace ndd {

class RowUnpacker {
 public:
  // Whole samples of less bits than their type are `scaled` to its whole range, or stay what they are: the indices of a palette.
  RowUnpacker(const TiffImage& image, bool scaled);

  // Writes the samples of pixels from `first` on; `step` is the distance of their first samples in `out`, in samples of `image.dtype()`. A row of
  // blocks with subsampled chroma has several rows of pixels, of which this is `row_in_block`.
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
  std::vector<uint16_t> levels_;      // of samples of few bits, when scaled
  std::vector<uint8_t> differences_;  // a row without its predictor
  std::vector<uint8_t> dense_;        // samples on their way to pixels of another distance
};

}  // namespace ndd
