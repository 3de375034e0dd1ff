// SPDX-License-Identifier: Apache-2.0
// Checks of image headers that run before nvImageCodec sees a file.
//
// nvImageCodec's parser determines the size for which memory is allocated, but the codecs behind it parse the file again, and some write an
// image of the size that they found. Therefore a file is passed on only if our parser and the library's agree on its header, and if the
// header is unambiguous: an ambiguous one is rejected, or the file is rewritten so that every parser reads the same. These functions are
// strict where the memory of a codec depends on it, and leave everything else to the codecs.
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
  const char* codec = nullptr;  // nvImageCodec's name; null for an unknown format
  int64_t height = 0, width = 0;
  int channels = 0;
  DType dtype = DType::uint8;
  double min_bytes = 0;  // size of the smallest complete file with so many pixels
  std::string unusual;  // the kind of file, as part of a message, if the CPU codecs may not support it
  bool bitmap = false;  // PNM with one bit per pixel
  std::optional<Orientation> orientation;  // of JPEG, PNG, TIFF and WebP, where it is read here and not by nvImageCodec
  bool gamma = false;  // a PNG that libpng would convert to gray in linear light
  bool needs_rewriting = false;  // see rewrite_file
  size_t raster = 0;  // of PNM: offset of the pixels
  int64_t largest = 0;  // of PNM: the sample that stands for white
  bool in_pieces = false;  // a TIFF whose strips or tiles libtiff only decompresses
  bool by_opencv = false;  // a TIFF for OpenCV, which applies an orientation itself
  int color_channels = 0;  // of a TIFF in pieces: channels without alpha
  std::string unknown_colors;  // why the samples cannot be converted to RGB or gray, as part of a message
};

// Throws Error for a damaged or ambiguous header. A file that is not `complete` may end anywhere after its size.
FileHeader read_file_header(const EncodedImage& file, bool complete);

FileHeader read_jpeg_header(const EncodedImage& file, bool complete);
FileHeader read_png_header(const EncodedImage& file, bool complete);
FileHeader read_tiff_header(const EncodedImage& file);
FileHeader read_bmp_header(const EncodedImage& file);
FileHeader read_pnm_header(const EncodedImage& file);
FileHeader read_webp_header(const EncodedImage& file, bool complete);

// Returns a file with `needs_rewriting` in a form that all parsers read in the same way.
std::vector<uint8_t> rewrite_file(const EncodedImage& file, const FileHeader& header);

// Removes the bytes between the segments before the scan: libjpeg skips them, nvImageCodec's parser does not.
std::vector<uint8_t> rewrite_jpeg(const EncodedImage& file);

// Removes the frames of an animation, because the result is the default image, which need not be one of them; appends a missing end.
std::vector<uint8_t> rewrite_png(const EncodedImage& file);

// Clears the EXIF flag, because nvImageCodec's parser searches for the chunk without regard to RIFF's padding, and pads the file to the
// number of bytes that OpenCV reads unconditionally.
std::vector<uint8_t> rewrite_webp(const EncodedImage& file);

// Converts a complete PNM file to P5 or P6 with a plain header and samples from 0 to 255 or 65535.
std::vector<uint8_t> rewrite_pnm(const EncodedImage& file, const FileHeader& header);

// Makes the orientation upright and adds the tags that readers expect.
std::vector<uint8_t> rewrite_tiff(const EncodedImage& file, const FileHeader& header);

// Throws "the file is damaged (...)".
[[noreturn]] void reject_header(const std::string& what);

}  // namespace ndd
