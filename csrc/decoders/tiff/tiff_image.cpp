// SPDX-License-Identifier: Apache-2.0
// Everything that the rest of the TIFF decoder relies on is checked here, once: sizes, types, the combination of samples and compression, and that
// the pieces lie in the file. `reject_header` is for damaged files, `reject_kind` for valid ones that are not supported.
#include "decoders/tiff/tiff_image.h"

#include "decoders/headers/file_header.h"
#include "ndd/error.h"

#include <algorithm>

namespace ndd {
namespace {

constexpr int64_t kMaxSamples = 32;              // per pixel; the limit of nvImageCodec
constexpr int64_t kMaxPieceRow = INT32_MAX / 4;  // bytes; libtiff counts them in 32 bits
constexpr double kMaxTilePixels = 1 << 24;       // or four times the pixels of the image, if that is more

// Values of the tag Compression: TIFF 6.0 and libtiff's registry.
enum Compression : int64_t {
  kNone = 1,
  kRle = 2,
  kFax3 = 3,
  kFax4 = 4,
  kLzw = 5,
  kOldJpeg = 6,
  kJpeg = 7,
  kDeflate = 8,
  kRleWords = 32771,
  kPackBits = 32773,
  kNext = 32766,
  kThunder = 32809,
  kPixarLog = 32909,
  kOldDeflate = 32946,
  kZstd = 50000
};

[[noreturn]] void reject_kind(const std::string& kind) { fail("no decoder for TIFF with ", kind); }

// Names from the registry of TIFF tags, for errors: a user recognizes the program that wrote the file.
std::string compression_name(int64_t compression) {
  switch (compression) {
    case 9: return "JBIG, black and white";
    case 10: return "JBIG, color";
    case 32767: return "Sony ARW";
    case 32769: return "packed raw";
    case 32770: return "Samsung SRW";
    case 32895: return "IT8 CT padding";
    case 32896: return "IT8 line work";
    case 32897: return "IT8 monochrome picture";
    case 32898: return "IT8 binary line art";
    case 32908: return "Pixar film";
    case 32910:
    case 32911: return "Kodak";
    case 32947: return "Kodak DCS";
    case 33003: return "Aperio JPEG 2000, YCbCr";
    case 33004: return "Aperio JPEG 2000, lossy";
    case 33005: return "Aperio JPEG 2000, RGB";
    case 33007: return "ALT JPEG";
    case 34661: return "JBIG";
    case 34676: return "SGI LogLuv";
    case 34677: return "SGI LogLuv, 24 bits";
    case 34712: return "JPEG 2000";
    case 34713: return "Nikon NEF";
    case 34718: return "Microsoft binary";
    case 34719: return "Microsoft progressive transform";
    case 34720: return "Microsoft vector";
    case 34887: return "LERC";
    case 34892: return "lossy JPEG";
    case 34925: return "LZMA";
    case 34926: return "old Zstandard";
    case 34927: return "old WebP";
    case 34933: return "PNG";
    case 34934:
    case 22610: return "JPEG XR";
    case 48124: return "Jetraw";
    case 50001: return "WebP";
    case 50002:
    case 52546: return "JPEG XL";
    case 65000: return "Kodak DCR";
    case 65535: return "Pentax PEF";
    default: return "unknown";
  }
}

// All but kNone are decompressed by libtiff.
bool is_supported(int64_t compression) {
  constexpr Compression kSupported[] = {kNone,     kRle,      kFax3, kFax4,    kLzw,      kOldJpeg,    kJpeg, kDeflate,
                                        kRleWords, kPackBits, kNext, kThunder, kPixarLog, kOldDeflate, kZstd};
  return std::find(std::begin(kSupported), std::end(kSupported), compression) != std::end(kSupported);
}

// Returns the largest possible compression ratio, 0 if it is unbounded.
double largest_ratio(int64_t compression) {
  switch (compression) {
    case kNone: return 1;
    case kLzw: return 4096;  // a code of 12 bits stands for at most so many bytes
    case kDeflate:
    case kOldDeflate: return 1032;
    case kPackBits: return 64;  // two bytes for 128
    default: return 0;
  }
}

// The compressions for which libtiff undoes a predictor; with any other the tag has no meaning.
bool has_predictor(int64_t compression) {
  return compression == kLzw || compression == kDeflate || compression == kOldDeflate || compression == kZstd;
}

std::string bits_text(int64_t bits) { return std::to_string(bits) + " bits a sample"; }

// Returns the value of a tag that has one value for each sample of a pixel, and rejects different ones.
int64_t common_value(const TiffImage& image, int tag, int64_t otherwise, const char* what) {
  const auto found = image.tags.numbers(tag);
  if (!found) return otherwise;
  // A file may list more values than it has samples; the others mean nothing.
  const uint64_t count = std::min(found->count, static_cast<uint64_t>(image.samples));
  // Some writers store a single value for all samples.
  if (count != 1 && count < static_cast<uint64_t>(image.samples)) TiffDirectory::reject(tag, "does not fit the samples of a pixel");
  std::string each;
  bool same = true;
  for (uint64_t i = 0; i < count; ++i) {
    same = same && image.tags.number_at(*found, i) == image.tags.number_at(*found, 0);
    each += (i ? ", " : "") + std::to_string(image.tags.number_at(*found, i));
  }
  if (!same) reject_kind(std::string("samples of different ") + what + " in a pixel (" + each + ")");
  return static_cast<int64_t>(std::min<uint64_t>(image.tags.number_at(*found, 0), UINT32_MAX));
}

// Without SamplesPerPixel: from the number of BitsPerSample, or from the colors.
int64_t samples_of(const TiffDirectory& tags, int64_t photometric) {
  if (tags.has(kTiffSamples)) return tags.number(kTiffSamples, 1);
  if (const auto bits = tags.numbers(kTiffBits); bits && bits->count > 1) return static_cast<int64_t>(std::min<uint64_t>(bits->count, UINT32_MAX));
  return photometric == 2 || photometric == 6 ? 3 : 1;
}

// SampleFormat: 1 unsigned, 2 signed, 3 floating-point, 4 undefined, 5 and 6 complex.
TiffSampleKind kind_of(int64_t format, int64_t bits) {
  switch (format) {
    case 2: return TiffSampleKind::has_sign;
    case 3:
      if (bits != 16 && bits != 24 && bits != 32 && bits != 64) reject_kind("floating-point samples of " + std::to_string(bits) + " bits");
      return TiffSampleKind::floating;
    case 5:
    case 6: reject_kind("complex samples; store their real and imaginary parts as two images");
    default: return TiffSampleKind::whole;  // includes undefined formats, and 0, which some writers leave
  }
}

// PhotometricInterpretation: 4 is a transparency mask, which is shown as gray; 5 is separated, CMYK if InkSet is 1 or absent.
TiffColors colors_of(const TiffImage& image) {
  switch (image.photometric) {
    case 0: return TiffColors::white_is_zero;
    case 1:
    case 4: return TiffColors::gray;
    case 2: return image.samples < 3 ? TiffColors::gray : TiffColors::rgb;
    case 3: return TiffColors::palette;
    case 5: return image.samples < 4 || image.tags.number(kTiffInkSet, 1) != 1 ? TiffColors::unknown : TiffColors::inks;
    case 6: return TiffColors::ycbcr;
    case 8: return TiffColors::cielab;
    case 9: return TiffColors::icclab;
    default: return TiffColors::unknown;
  }
}

void check_palette(const TiffImage& image) {
  const auto colors = image.tags.numbers(kTiffPalette);
  // TIFF 6.0, ColorMap: all reds, then all greens, then all blues, 2^bits of 16 bits each.
  if (image.bits > 16 || image.kind != TiffSampleKind::whole || !colors || colors->type != kTiffShort ||
      colors->count != static_cast<uint64_t>(3) << image.bits)
    reject_header("its palette does not fit its samples");
}

void check_ycbcr(TiffImage& image) {
  if (image.samples < 3) reject_header("it has YCbCr colors and " + std::to_string(image.samples) + " samples a pixel");
  if (image.compression == kJpeg) {
    if (image.samples != 3 || image.planar) reject_kind("JPEG compression of YCbCr colors in planes or with alpha");
    return;  // libjpeg reads the subsampling from its own header, and converts the colors
  }
  if (image.bits != 8 && image.bits != 16) reject_kind("YCbCr colors of " + bits_text(image.bits));
  // The default of the tag: one sample of chroma for 2x2 pixels.
  image.chroma_x = image.chroma_y = 2;
  if (const auto steps = image.tags.numbers(kTiffSubsampling)) {
    if (steps->count < 2) TiffDirectory::reject(kTiffSubsampling, "has one value");
    image.chroma_x = static_cast<int64_t>(image.tags.number_at(*steps, 0));
    image.chroma_y = static_cast<int64_t>(image.tags.number_at(*steps, 1));
  }
  const auto is_step = [](int64_t step) { return step == 1 || step == 2 || step == 4; };
  if (!is_step(image.chroma_x) || !is_step(image.chroma_y)) TiffDirectory::reject(kTiffSubsampling, "is neither 1, 2 nor 4");
  if (!image.has_blocks()) return;
  if (image.planar || image.bits != 8 || image.samples != 3) reject_kind("subsampled YCbCr colors in planes, with alpha, or of more than 8 bits");
  if (image.predictor != 1) reject_kind("subsampled YCbCr colors and a predictor");
}

void check_colors(TiffImage& image) {
  const bool whole = image.kind == TiffSampleKind::whole;
  switch (image.colors) {
    case TiffColors::palette: return check_palette(image);
    case TiffColors::ycbcr:
      if (!whole) reject_kind("YCbCr colors of samples that are signed or floating-point");
      return check_ycbcr(image);
    case TiffColors::white_is_zero:
      if (image.samples > 2) reject_kind("photometric interpretation 0 (white is zero) and " + std::to_string(image.samples) + " samples a pixel");
      if (!whole) reject_kind("photometric interpretation 0 (white is zero) of samples that are signed or floating-point");
      return;
    case TiffColors::cielab:
    case TiffColors::icclab:
      if (image.samples < 3) reject_header("it has L*a*b* colors and " + std::to_string(image.samples) + " samples a pixel");
      if (!whole && image.kind != TiffSampleKind::has_sign) reject_kind("L*a*b* colors of floating-point samples");
      if (image.bits != 8 && image.bits != 16) reject_kind("L*a*b* colors of " + bits_text(image.bits));
      image.kind = TiffSampleKind::whole;  // only a* and b* have a sign
      return;
    default: return;
  }
}

// Rejects combinations of samples that libtiff's decoder of a compression does not support, before memory is allocated for them.
void check_compression(const TiffImage& image) {
  const bool one_bit = image.bits == 1 && image.samples_in_piece() == 1 && image.kind == TiffSampleKind::whole;
  switch (image.compression) {
    case kRle:
    case kFax3:
    case kFax4:
    case kRleWords:
      if (!one_bit) reject_kind("the compression of fax machines and more than one bit a pixel");
      return;
    case kJpeg:
      if (image.kind != TiffSampleKind::whole || (image.bits != 8 && image.bits != 12)) reject_kind("JPEG compression of " + bits_text(image.bits));
      return;
    case kNext:
    case kThunder:
      if (image.bits != (image.compression == kNext ? 2 : 4) || image.samples_in_piece() != 1 || image.kind != TiffSampleKind::whole)
        reject_kind("compression " + std::to_string(image.compression) + " of " + bits_text(image.bits));
      return;
    case kPixarLog: {
      const bool floating = image.kind == TiffSampleKind::floating;
      if (floating ? image.bits != 32 : image.kind != TiffSampleKind::whole || (image.bits != 8 && image.bits != 16))
        reject_kind("Pixar's logarithmic compression of " + bits_text(image.bits));
      return;
    }
    default: break;
  }
  if (image.predictor == 1) return;
  const bool whole_bytes = image.bits == 8 || image.bits == 16 || image.bits == 24 || image.bits == 32 || image.bits == 64;
  // 2: differences of neighbors in a row; 3: the same of floating-point numbers, byte by byte.
  if (image.predictor != 2 && image.predictor != 3) reject_kind("predictor " + std::to_string(image.predictor));
  if (!whole_bytes) reject_kind("a predictor and " + bits_text(image.bits));
  if (image.predictor == 3 && image.kind != TiffSampleKind::floating) reject_header("it has a predictor for floating-point samples, and none such");
}

// Strips have the width of the image and RowsPerStrip rows; tiles have a size of their own. Either has offsets and lengths in bytes.
void read_pieces(TiffImage& image) {
  const TiffDirectory& tags = image.tags;
  image.tiled = tags.has(kTiffTileWidth) || tags.has(kTiffTileHeight);
  if (image.tiled) {
    image.piece_width = tags.number(kTiffTileWidth, 0);
    image.piece_height = tags.number(kTiffTileHeight, 0);
  } else {
    image.piece_width = image.width;
    image.piece_height = std::min(tags.number(kTiffRowsPerStrip, UINT32_MAX), image.height);
  }
  // RowsPerStrip defaults to 2^32 - 1: a single strip.
  if (image.piece_width < 1 || image.piece_height < 1) reject_header("its strips or tiles have no pixels");
  // Some writers store the offsets of tiles under the tag of strips.
  if (tags.has(kTiffStripOffsets) && tags.has(kTiffTileOffsets)) reject_header("it has both strips and tiles");
  image.offsets = tags.numbers(tags.has(kTiffTileOffsets) ? kTiffTileOffsets : kTiffStripOffsets);
  image.lengths = tags.numbers(tags.has(kTiffTileBytes) ? kTiffTileBytes : kTiffStripBytes);
}

// Checks that the pieces cover the image, and that the file is large enough for them. Sizes are computed in floating point, because
// products of hostile extents overflow 64 bits.
void check_data(const TiffImage& image) {
  const double piece_pixels = static_cast<double>(image.piece_width) * static_cast<double>(image.piece_height);
  const double row_bytes =
      static_cast<double>(image.piece_width) * static_cast<double>(image.samples_in_piece()) * static_cast<double>(image.bits) / 8;
  const double image_pixels = static_cast<double>(image.width) * static_cast<double>(image.height);
  if (row_bytes > kMaxPieceRow || (image.tiled && piece_pixels > std::max(kMaxTilePixels, 4 * image_pixels)))
    reject_header("its rows or tiles are too large");
  // From here on across() and down() are small: fewer offsets than pieces are rejected before the loop below.
  const double count = static_cast<double>(image.across()) * static_cast<double>(image.down()) * static_cast<double>(image.planes());
  if (!image.offsets || static_cast<double>(image.offsets->count) < count) reject_header("it has fewer strips or tiles than its size needs");
  if (image.lengths && static_cast<double>(image.lengths->count) < count)
    reject_header("it has fewer lengths of strips or tiles than its size needs");

  // A small file must not claim an image that its bytes cannot hold: memory is allocated by the header alone.
  const double ratio = largest_ratio(image.compression);
  if (ratio == 0) return;
  double raw = 0, stored = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    // Pieces are numbered along rows of the grid, then down, then by planes.
    const int64_t rows = image.rows_of_piece(i / image.across() % image.down());
    const double bytes = static_cast<double>(image.packed_rows(rows)) * static_cast<double>(image.packed_row_bytes());
    const uint64_t at = image.tags.number_at(*image.offsets, static_cast<uint64_t>(i));
    // In unsigned arithmetic: `at` comes from the file and may be any number.
    if (at > image.file.size) reject_header("a strip or tile lies outside of the file");
    const uint64_t left = image.file.size - at;
    // Without compression the length follows from the size, whatever the tag says.
    if (image.compression == kNone && bytes > static_cast<double>(left)) reject_header("a strip or tile is longer than the file");
    raw += bytes;
    stored += static_cast<double>(image.lengths ? std::min(left, image.tags.number_at(*image.lengths, static_cast<uint64_t>(i))) : left);
  }
  if (image.compression != kNone && raw > stored * ratio) reject_header("its strips or tiles are too short for its size");
}

// Whether nvImageCodec's parser and its libtiff extension decode the file correctly without changes.
bool suits_libtiff(const TiffImage& image) {
  const TiffDirectory& tags = image.tags;
  const auto has_type = [&](int tag) {
    const auto found = tags.numbers(tag);
    return !found || found->type != kTiffByte;
  };
  // Tags whose values a parser would have to guess must be there.
  const bool complete = tags.has(kTiffBits) && tags.has(kTiffSamples) && tags.has(kTiffPhotometric) && image.lengths;
  // BYTE is rare in these tags, and not every parser accepts it.
  const bool plain_types = has_type(kTiffWidth) && has_type(kTiffHeight) && has_type(kTiffBits) && has_type(kTiffSamples) &&
                           has_type(kTiffPhotometric) && has_type(kTiffOrientation) && has_type(kTiffRowsPerStrip) && has_type(kTiffTileWidth) &&
                           has_type(kTiffTileHeight) && has_type(kTiffSampleFormat) && has_type(kTiffCompression) && has_type(kTiffPlanar) &&
                           has_type(kTiffPredictor) && (!image.lengths || image.lengths->type != kTiffByte) && image.offsets->type != kTiffByte;
  if (!complete || !plain_types || image.planar || tags.number(kTiffFillOrder, 1) != 1) return false;
  const int64_t format = common_value(image, kTiffSampleFormat, 1, "formats");
  const bool plain_samples = (format == 1 && (image.bits == 8 || image.bits == 16 || image.bits == 32)) || (format == 3 && image.bits == 32);
  const auto bits = tags.numbers(kTiffBits);
  if (!plain_samples || bits->count != static_cast<uint64_t>(image.samples)) return false;
  // TIFF demands multiples of 16; libtiff's behavior for others, and for a mix of the tags of strips and tiles, is not relied on.
  const bool tiles_fit = !image.tiled || (image.piece_width % 16 == 0 && image.piece_height % 16 == 0 && !tags.has(kTiffRowsPerStrip) &&
                                          tags.has(kTiffTileOffsets) && tags.has(kTiffTileBytes));
  if (!tiles_fit) return false;
  const bool ycbcr_jpeg = image.colors == TiffColors::ycbcr && image.compression == kJpeg;
  if (image.photometric != 1 && image.colors != TiffColors::rgb && !ycbcr_jpeg) return false;
  return image.compression == kJpeg ? image.bits == 8 : image.compression == kNone || is_byte_compression(image.compression);
}

}  // namespace

int TiffImage::color_channels() const {
  switch (colors) {
    case TiffColors::gray: return samples >= 3 ? 3 : 1;  // three or more bands count as red, green and blue
    case TiffColors::white_is_zero: return 1;
    case TiffColors::unknown: return 1;
    default: return 3;
  }
}

// A palette index becomes three channels.
int TiffImage::channels() const { return static_cast<int>(colors == TiffColors::palette ? samples + 2 : samples); }

DType TiffImage::dtype() const {
  // Colors of a palette have 16 bits, whatever the indices have.
  if (colors == TiffColors::palette) return DType::uint16;
  if (kind != TiffSampleKind::whole || bits > 32) return DType::float32;
  return bits <= 8 ? DType::uint8 : bits <= 16 ? DType::uint16 : DType::uint32;
}

bool is_byte_compression(int64_t compression) { return has_predictor(compression) || compression == kPackBits; }

std::string photometric_name(int64_t photometric) {
  const auto named = [&](const char* name) { return std::to_string(photometric) + " (" + name + ")"; };
  switch (photometric) {
    case 5: return named("separated inks other than CMYK");
    case 10: return named("ITU L*a*b*");
    case 32803: return named("color filter array");
    case 32844: return named("LogL");
    case 32845: return named("LogLuv");
    case 34892: return named("linear raw");
    case 51177: return named("depth map");
    case 52527: return named("semantic mask");
    default: return named("unknown");
  }
}

TiffImage read_tiff_image(const EncodedImage& file) {
  TiffImage image(file);
  const TiffDirectory& tags = image.tags;
  image.width = tags.number(kTiffWidth, 0);
  image.height = tags.number(kTiffHeight, 0);
  if (image.width < 1 || image.height < 1) reject_header("its size is missing or zero");
  image.compression = tags.number(kTiffCompression, kNone);
  if (image.compression == 0) reject_header("its compression is 0");
  if (!is_supported(image.compression)) {
    // Named, because the list of supported compressions is short and users can convert the file.
    fail("no decoder for compression ", image.compression, " (", compression_name(image.compression),
         ") in TIFF files; save the image with another one, such as deflate");
  }
  image.photometric = tags.number(kTiffPhotometric, 1);
  image.samples = samples_of(tags, image.photometric);
  if (image.samples < 1) reject_header("it has " + std::to_string(image.samples) + " samples a pixel");
  if (image.samples > kMaxSamples) reject_kind(std::to_string(image.samples) + " samples a pixel, more than " + std::to_string(kMaxSamples));
  image.bits = common_value(image, kTiffBits, 1, "sizes");
  if (image.bits < 1 || image.bits > 64) reject_header("it has " + bits_text(image.bits));
  image.kind = kind_of(common_value(image, kTiffSampleFormat, 1, "formats"), image.bits);
  image.planar = image.samples > 1 && tags.number(kTiffPlanar, 1) == 2;
  // JPEG has an order of bits of its own, which the tag does not change.
  image.reversed_bits = tags.number(kTiffFillOrder, 1) == 2 && image.compression != kJpeg && image.compression != kOldJpeg;
  image.predictor = has_predictor(image.compression) ? tags.number(kTiffPredictor, 1) : 1;
  // In this order: colors_of() needs the number of samples, check_colors() may change `kind`, and check_compression() depends on both.
  image.colors = colors_of(image);
  if (image.compression == kOldJpeg) {
    if (image.bits != 8 || (image.samples != 1 && image.samples != 3)) reject_kind("compression 6 (old-style JPEG) of " + bits_text(image.bits));
    // Only OpenCV's libtiff supports old-style JPEG, through its RGBA interface.
    image.colors = image.samples == 3 ? TiffColors::rgb : TiffColors::gray;  // as libtiff delivers them
    image.route = TiffRoute::opencv;
    read_pieces(image);
    check_data(image);
    return image;
  }
  check_colors(image);
  check_compression(image);
  read_pieces(image);
  check_data(image);
  // All others are decoded piece by piece (pieces.cpp).
  if (suits_libtiff(image)) image.route = TiffRoute::whole_file;
  return image;
}

}  // namespace ndd
