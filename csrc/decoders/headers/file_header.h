// SPDX-License-Identifier: Apache-2.0
// Our own reading of the headers of image files, in front of nvImageCodec's.
//
// The codecs behind nvImageCodec read a file again for themselves, and some write an image of the size that they found into memory of the size that
// the library's parser found. So a file is handed on only when both agree on its header, and when nobody can read that header in two ways: an ambiguous
// one is refused, or written anew. These functions are strict where a codec's memory depends on it, and leave all else to the codecs.
#pragma once

#include "decoders/encoded_image.h"
#include "decoders/orientation.h"
#include "ndd/dtypes.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ndd {

struct FileHeader {
  const char* codec = nullptr;  // as nvImageCodec calls it; null for what is none of its formats
  int64_t height = 0, width = 0;
  int channels = 0;
  DType dtype = DType::uint8;
  double least_bytes = 0;  // that a whole file with so many pixels has
  std::string unusual;  // what the CPU codecs may lack for it, as a part of a message
  bool bitmap = false;  // PNM with a bit a pixel
  bool upright = false;  // a JPEG without an APP1 segment, which may have EXIF data with an orientation
  std::optional<Orientation> orientation;  // where it is read here, and not by nvImageCodec: of PNG, TIFF and WebP
  bool gamma = false;  // a PNG for which libpng would convert to gray in linear light
  bool needs_rewriting = false;  // `rewritten_file` reads the same for everybody
  size_t raster = 0;  // of PNM: where the pixels begin
  int64_t largest = 0;  // of PNM: the sample that is white
  bool in_pieces = false;  // a TIFF of which libtiff only decompresses the strips or tiles
  bool by_opencv = false;  // a TIFF for OpenCV, which turns the image itself where it finds an orientation
  int color_channels = 0;  // of a TIFF in pieces: without alpha
  std::string unknown_colors;  // why the samples do not become RGB or gray, as a part of a message
};

// Throws for a header that is damaged or that can be read in two ways. A file that is not `complete` may end anywhere behind its size.
FileHeader read_file_header(const EncodedImage& file, bool complete);

FileHeader read_jpeg_header(const EncodedImage& file, bool complete);
FileHeader read_png_header(const EncodedImage& file, bool complete);
FileHeader read_tiff_header(const EncodedImage& file);
FileHeader read_bmp_header(const EncodedImage& file);
FileHeader read_pnm_header(const EncodedImage& file);
FileHeader read_webp_header(const EncodedImage& file, bool complete);

// A file whose header says `needs_rewriting`, in a form that all readers take for the same.
std::vector<uint8_t> rewritten_file(const EncodedImage& file, const FileHeader& header);

// Without what stands between segments in front of the scan: libjpeg skips it, nvImageCodec's parser does not.
std::vector<uint8_t> rewritten_jpeg(const EncodedImage& file);

// Without the frames of an animation, for the picture is the default image, which need not be one of them; and with an end, which may be missing.
std::vector<uint8_t> rewritten_png(const EncodedImage& file);

// With the EXIF chunk no longer announced, which nvImageCodec's parser looks for without RIFF's padding, and with as many bytes as OpenCV wants.
std::vector<uint8_t> rewritten_webp(const EncodedImage& file);

// A whole PNM file as P5 or P6, with a plain header and samples from 0 to 255 or 65535.
std::vector<uint8_t> rewritten_pnm(const EncodedImage& file, const FileHeader& header);

// An upright TIFF, with the tags that readers expect.
std::vector<uint8_t> rewritten_tiff(const EncodedImage& file, const FileHeader& header);

// "the file is damaged (...)"
[[noreturn]] void damaged_header(const std::string& what);

}  // namespace ndd
