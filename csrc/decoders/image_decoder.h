// SPDX-License-Identifier: Apache-2.0
// Decodes one encoded image to memory of the caller: JPEG, PNG, PNM, WebP and most TIFFs with the CPU decoders of nvImageCodec, BMP and the
// other TIFFs with our own.
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

// `any` keeps the channels of the file.
enum class ImageType { rgb, bgr, gray, ycbcr, any };

ImageType image_type_from_name(const std::string& name);

struct ImageHeader {
  int64_t height, width;  // as stored
  int channels;
  Orientation orientation;
  bool is_cmyk;  // CMYK and YCCK JPEGs
  DType dtype;  // of the decoded samples
  std::string codec;
  std::string unusual;  // see FileHeader
  bool gamma = false;  // the codec would convert to gray in linear light
  bool in_pieces = false;  // see FileHeader
  bool by_opencv = false;  // see FileHeader
  int color_channels = 0;  // of a file in pieces
  std::string unknown_colors;  // see FileHeader
};

struct DecodeOptions {
  ImageType type;
  bool adjust_orientation;
  bool fast_idct;
  std::optional<CropWindow> window;  // in the delivered image, after scaling and orientation
  int eighths = 8;  // scale; less than 8 only for a JPEG for which can_be_scaled() is true
};

struct ImageShape {
  int64_t height, width, channels;
};

// Returns the name of a format that Python decodes, else null. nvImageCodec has no GIF, AVIF and HEIC; JPEG 2000 must not reach it: its CPU decoder
// is OpenCV's, which passes an uninitialized pointer to OpenJPEG, and OpenJPEG writes through it if a header is damaged (SIGSEGV for 2 % of
// mutated files).
const char* format_decoded_by_python(const EncodedImage& image);

// Not thread-safe; threads take one with ImageDecoderLease.
class ImageDecoder {
 public:
  ImageDecoder();
  ~ImageDecoder();

  // Reads the header of a `complete` file, or of its beginning, which need not contain the pixels.
  ImageHeader read_header(const EncodedImage& image, bool complete = true);

  // Fills `out` with dense rows of `shape`. Throws Error if decoded_shape() no longer returns this shape: memory of the caller may change
  // between the call that sized the output and the decoding.
  void decode(const EncodedImage& image, const DecodeOptions& options, const ImageShape& shape, void* out, DType out_dtype);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether libjpeg-turbo is available and decodes such a file at a fraction of its size.
bool can_be_scaled(const ImageHeader& header);

// Returns the shape of the result. Throws Error for a window outside the image and for colors that cannot be converted.
ImageShape decoded_shape(const ImageHeader& header, const DecodeOptions& options);

// A decoder from a pool, returned at the end of the scope. The pool grows to as many decoders as ever worked at the same time; the one
// returned last is taken first, because its tables and buffers are warm. Decoders are never destroyed: threads and thread pools may end,
// and the process may exit, in any order.
class ImageDecoderLease {
 public:
  ImageDecoderLease();
  ~ImageDecoderLease();
  ImageDecoder* operator->() const { return decoder_.get(); }

 private:
  std::unique_ptr<ImageDecoder> decoder_;
};

}  // namespace ndd
