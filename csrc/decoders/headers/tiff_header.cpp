// SPDX-License-Identifier: Apache-2.0
// TIFF and BigTIFF: the first directory. Of two entries with the same tag, libtiff and nvImageCodec's parser use different ones; and if
// strips or tiles do not cover the image, libtiff's rows are shorter than the parser's. The checks are in decoders/tiff, whose result is
// summarized here.
#include "decoders/headers/file_header.h"

#include "decoders/tiff/tiff_image.h"

namespace ndd {

FileHeader read_tiff_header(const EncodedImage& file) {
  const TiffImage image = read_tiff_image(file);
  FileHeader header;
  header.codec = "tiff";
  header.width = image.width;
  header.height = image.height;
  header.channels = image.channels();
  header.dtype = image.dtype();
  header.color_channels = image.color_channels();
  // TIFF's Orientation has the numbers of EXIF, which took over the tag.
  header.orientation = orientation_of_exif(image.tags.number(kTiffOrientation, 1));
  header.in_pieces = image.route == TiffRoute::pieces;
  header.needs_rewriting = header.by_opencv = image.route == TiffRoute::opencv;
  if (image.colors == TiffColors::unknown) header.unknown_colors = "photometric interpretation " + photometric_name(image.photometric);
  // Writers disagree on whether zero or the smallest value is black.
  if (image.kind == TiffSampleKind::has_sign) header.unknown_colors = "samples with a sign, of " + std::to_string(image.bits) + " bits";
  return header;
}

std::vector<uint8_t> rewrite_tiff(const EncodedImage& file, const FileHeader& header) {
  const TiffDirectory tags(file);
  // OpenCV would apply the orientation, which is applied here to all formats alike.
  std::map<int, uint16_t> changed{{kTiffOrientation, 1}};
  if (!tags.has(kTiffSamples)) changed[kTiffSamples] = static_cast<uint16_t>(header.channels);
  return tags.with_numbers(changed);
}

}  // namespace ndd
