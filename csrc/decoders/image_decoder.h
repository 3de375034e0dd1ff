// SPDX-License-Identifier: Apache-2.0
// Decodes one encoded image into memory of the caller. JPEG, PNG, TIFF, PNM and WebP go through nvImageCodec's CPU decoders.
#pragma once

#include "decoders/encoded_image.h"
#include "decoders/orientation.h"
#include "ndd/dtypes.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ndd {

// `any` keeps the channels that the file has.
enum class ImageType { rgb, bgr, gray, ycbcr, any };

ImageType image_type_from_name(const std::string& name);

struct ImageHeader {
  int64_t height, width;  // as stored
  int channels;
  Orientation orientation;
  bool is_cmyk;   // CMYK and YCCK JPEGs
  DType dtype;    // of the decoded samples
  std::string codec;
  std::string unusual;  // a kind of file that the CPU codecs may lack, as a part of a message
  bool gamma = false;          // the codec would convert to gray in linear light
  bool in_pieces = false;      // see FileHeader
  bool by_opencv = false;      // see FileHeader
  int color_channels = 0;      // of a file in pieces
  std::string unknown_colors;  // see FileHeader
};

struct DecodeOptions {
  ImageType type;
  bool adjust_orientation;
  bool fast_idct;
  std::optional<CropWindow> window;  // in the image as delivered, that is at its scale and after the orientation
  int eighths = 8;  // the scale, which only a JPEG for which `can_be_scaled` may have less of
};

struct ImageShape {
  int64_t height, width, channels;
};

// True for JPEG 2000, which must not reach nvImageCodec: its CPU decoder is OpenCV's, which hands OpenJPEG an uninitialized pointer, and
// OpenJPEG writes through it when a header is damaged (SIGSEGV for 2 % of mutated files).
bool is_jpeg2000(const EncodedImage& image);

// Not thread-safe; `ImageDecoderLease` gives a thread one of its own.
class ImageDecoder {
 public:
  ImageDecoder();
  ~ImageDecoder();

  // Of a `complete` file, or of its first part, which is not expected to hold all pixels.
  ImageHeader read_header(const EncodedImage& image, bool complete = true);

  // Fills `out`, dense rows of `shape`. Throws when that is not the shape that `decoded_shape` gives for this image: memory of the caller can
  // change between the call that sized the output and the decoding.
  void decode(const EncodedImage& image, const DecodeOptions& options, const ImageShape& shape, void* out, DType out_dtype);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether libjpeg-turbo is there and decodes such a file at a part of its size.
bool can_be_scaled(const ImageHeader& header);

ImageShape decoded_shape(const ImageHeader& header, const DecodeOptions& options);

// A decoder from the pool, returned at the end of the scope. There are as many decoders as ever worked at the same time; the last one
// returned is handed out first, so that its tables and buffers are warm. Decoders are never destroyed: a thread may end, the pool of
// threads may change and the process may exit in any order.
class ImageDecoderLease {
 public:
  ImageDecoderLease();
  ~ImageDecoderLease();
  ImageDecoder* operator->() const { return decoder_.get(); }

 private:
  std::unique_ptr<ImageDecoder> decoder_;
};

}  // namespace ndd
