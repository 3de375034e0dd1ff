// SPDX-License-Identifier: Apache-2.0
#include "decoders/jpeg/libjpeg.h"

#include "decoders/jpeg/scans.h"
#include "ndd/error.h"
#include "ndd/python_interface.h"

#include <algorithm>
#include <exception>

#ifdef NDD_LIBJPEG
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>

#include <cstring>
#include <limits>
#include <memory>
#endif

namespace ndd {

#ifdef NDD_LIBJPEG
namespace {

// NDD_TEXT expands its argument before NDD_TEXT_OF quotes it.
#define NDD_TEXT_OF(x) #x
#define NDD_TEXT(x) NDD_TEXT_OF(x)

// Error handling by longjmp. libjpeg's default handlers print and end the process; they would also add a reference to `stderr`, which a
// static library built without -fPIC cannot have.
// `manager` comes first, so a pointer to it is one to the struct; libjpeg knows only its own part. Source and Scans are built alike.
struct Errors {
  jpeg_error_mgr manager{};
  std::jmp_buf place;
  int code = 0;

  Errors() {
    manager.error_exit = [](j_common_ptr info) {
      auto* errors = reinterpret_cast<Errors*>(info->err);
      errors->code = info->err->msg_code;
      std::longjmp(errors->place, 1);
    };
    // Negative levels are warnings about corrupt data; others are traces.
    manager.emit_message = [](j_common_ptr info, int level) {
      if (level < 0) ++info->err->num_warnings;
    };
    manager.output_message = [](j_common_ptr) {};
    manager.format_message = [](j_common_ptr, char* text) { *text = 0; };
    manager.reset_error_mgr = [](j_common_ptr info) { info->err->num_warnings = 0; };
  }
};

// A file in memory whose end is an error, as in nvImageCodec; libjpeg's own memory source continues with gray.
struct Source {
  jpeg_source_mgr manager{};

  explicit Source(const EncodedImage& file) {
    manager.next_input_byte = file.data;
    manager.bytes_in_buffer = file.size;
    manager.init_source = [](j_decompress_ptr) {};
    manager.fill_input_buffer = [](j_decompress_ptr info) -> boolean {
      info->err->error_exit(reinterpret_cast<j_common_ptr>(info));
      return FALSE;
    };
    manager.skip_input_data = [](j_decompress_ptr info, long bytes) {
      jpeg_source_mgr& source = *info->src;
      if (bytes <= 0) return;
      if (static_cast<size_t>(bytes) > source.bytes_in_buffer) info->err->error_exit(reinterpret_cast<j_common_ptr>(info));
      source.next_input_byte += bytes;
      source.bytes_in_buffer -= static_cast<size_t>(bytes);
    };
    manager.resync_to_restart = jpeg_resync_to_restart;
    manager.term_source = [](j_decompress_ptr) {};
  }
};

// Limits the number of scans, see max_scans().
struct Scans {
  jpeg_progress_mgr manager{};
  int max;
  bool exceeded = false;

  explicit Scans(double pixels) : max(max_scans(pixels)) {
    manager.progress_monitor = [](j_common_ptr info) {
      auto* scans = reinterpret_cast<Scans*>(info->progress);
      if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= scans->max) return;
      scans->exceeded = true;
      info->err->error_exit(info);
    };
  }
};

// Bound on libjpeg's memory. The coefficients of a progressive image are kept in memory, 2 bytes each; if its components differ in size,
// the blocks are padded by at most four in each direction. Truncated files allocate for the size that they claim, as in nvImageCodec; that
// size was checked against max_pixels before.
long memory_limit(const ScaledJpeg& image) {
  constexpr double kComponents = 4, kBytes = 2, kPadding = 64, kSlack = 16 << 20;
  const double coefficients = static_cast<double>(image.height + kPadding) * static_cast<double>(image.width + kPadding) * kComponents;
  return static_cast<long>(coefficients * kBytes * 1.25 + kSlack);
}

// Adobe stores CMYK inverted, in files with its marker.
void rgb_of_cmyk(const uint8_t* in, int64_t pixels, bool inverted, bool blue_first, uint8_t* out) {
  for (int64_t i = 0; i < pixels; ++i, in += 4, out += 3) {
    const int black = inverted ? in[3] : 255 - in[3];
    for (int c = 0; c < 3; ++c) out[blue_first ? 2 - c : c] = static_cast<uint8_t>((inverted ? in[c] : 255 - in[c]) * black / 255);
  }
}

// Everything with a destructor lives here, in the caller of the functions with setjmp: longjmp runs no destructors.
struct Decompression {
  jpeg_decompress_struct info{};
  Errors errors;
  Source source;
  Scans scans;
  std::unique_ptr<uint8_t[]> row;

  explicit Decompression(const ScaledJpeg& image) : source(image.file), scans(static_cast<double>(image.height) * static_cast<double>(image.width)) {
    info.err = &errors.manager;
  }
  ~Decompression() { jpeg_destroy_decompress(&info); }
};

// Reads the header and sets up the output. Returns false for what libjpeg rejects or would decode to another shape. It has no locals with
// destructors, see above.
bool start(Decompression& work, const ScaledJpeg& image) {
  jpeg_decompress_struct& info = work.info;
  if (setjmp(work.errors.place)) return false;
  jpeg_create_decompress(&info);
  info.mem->max_memory_to_use = memory_limit(image);
  info.src = &work.source.manager;
  info.progress = &work.scans.manager;
  jpeg_read_header(&info, TRUE);
  // libjpeg must agree with the parsers that sized the output.
  if (info.image_height != image.height || info.image_width != image.width || info.data_precision != 8) return false;
  // The scale is a fraction of eighths; libjpeg-turbo picks the inverse DCT for it.
  info.scale_num = static_cast<unsigned>(image.eighths);
  info.scale_denom = kWholeScale;
  info.dct_method = image.fast_idct ? JDCT_IFAST : JDCT_ISLOW;
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  // libjpeg converts YCCK to CMYK but neither of them to RGB; rgb_of_cmyk() does.
  info.out_color_space = cmyk                               ? JCS_CMYK
                         : image.colors == JpegColors::gray ? JCS_GRAYSCALE
                         : image.colors == JpegColors::bgr  ? JCS_EXT_BGR
                                                            : JCS_EXT_RGB;
  if (cmyk && image.colors == JpegColors::gray) return false;
  jpeg_start_decompress(&info);
  // The output was sized by our formulas, so libjpeg's must have the same result.
  return info.output_height == scaled_extent(image.height, image.eighths) && info.output_width == scaled_extent(image.width, image.eighths) &&
         info.output_components == (cmyk                               ? 4
                                    : image.colors == JpegColors::gray ? 1
                                                                       : 3);
}

// Writes the rows of the part. Rows above it must be decoded, too, and land in the row buffer; rows below it are not.
bool read_rows(Decompression& work, const ScaledJpeg& image, uint8_t* out) {
  jpeg_decompress_struct& info = work.info;
  const CropWindow& part = image.part;
  const int channels = image.colors == JpegColors::gray ? 1 : 3;
  const int64_t row_bytes = part.width * channels;
  // libjpeg writes whole rows, directly into the output only if that is as wide.
  const bool direct = info.out_color_space != JCS_CMYK && part.width == info.output_width;
  if (setjmp(work.errors.place)) return false;
  while (info.output_scanline < part.y + part.height) {
    const int64_t y = static_cast<int64_t>(info.output_scanline) - part.y;
    uint8_t* target = out + y * row_bytes;
    JSAMPROW row = direct && y >= 0 ? target : work.row.get();
    if (jpeg_read_scanlines(&info, &row, 1) != 1) return false;
    if (y < 0 || row == target) continue;
    const uint8_t* pixels = work.row.get() + part.x * info.output_components;
    if (info.out_color_space == JCS_CMYK) rgb_of_cmyk(pixels, part.width, info.saw_Adobe_marker, image.colors == JpegColors::bgr, target);
    else std::memcpy(target, pixels, static_cast<size_t>(row_bytes));
  }
  return true;
}

}  // namespace

const char* libjpeg_version() { return "libjpeg-turbo " NDD_TEXT(LIBJPEG_TURBO_VERSION); }
bool has_libjpeg() { return true; }

bool decode_scaled_jpeg(const ScaledJpeg& image, uint8_t* out) {
  Decompression work(image);
  if (start(work, image)) {
    work.row = std::make_unique<uint8_t[]>(static_cast<size_t>(work.info.output_width) * static_cast<size_t>(work.info.output_components));
    if (read_rows(work, image, out)) return true;
  }
  if (work.scans.exceeded) reject_scans(work.scans.max);
  return false;
}

namespace {

// As Decompression: owns what longjmp would leak. jpeg_mem_dest allocates `file` with malloc.
struct Compression {
  jpeg_compress_struct info{};
  Errors errors;
  unsigned char* file = nullptr;
  unsigned long size = 0;

  Compression() { info.err = &errors.manager; }
  ~Compression() {
    jpeg_destroy_compress(&info);
    std::free(file);
  }
};

bool compress(Compression& work, const uint8_t* pixels, int64_t height, int64_t width, int channels, int quality, bool subsampled) {
  jpeg_compress_struct& info = work.info;
  if (setjmp(work.errors.place)) return false;
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &work.file, &work.size);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  // Huffman tables for this image instead of the standard ones: smaller files for a second pass.
  info.optimize_coding = TRUE;
  // Sampling factors of luma relative to chroma, whose factors stay 1: 4:2:0 or 4:4:4.
  if (channels == 3) info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = subsampled ? 2 : 1;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(pixels + static_cast<int64_t>(info.next_scanline) * width * channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

std::vector<uint8_t> encode_jpeg(const uint8_t* pixels, int64_t height, int64_t width, int channels, int quality, bool subsampled) {
  if (height < 1 || width < 1 || height > JPEG_MAX_DIMENSION || width > JPEG_MAX_DIMENSION || (channels != 1 && channels != 3))
    fail(Error::Value, "a JPEG has 1 or 3 channels and at most 65500x65500 pixels, got ", height, "x", width, "x", channels);
  Compression work;
  if (!compress(work, pixels, height, width, channels, quality, subsampled))
    fail("libjpeg could not write the image: its message ", work.errors.code);
  return {work.file, work.file + work.size};
}

#else  // without libjpeg

const char* libjpeg_version() { return "none"; }
bool has_libjpeg() { return false; }

bool decode_scaled_jpeg(const ScaledJpeg&, uint8_t*) { return false; }

std::vector<uint8_t> encode_jpeg(const uint8_t*, int64_t, int64_t, int, int, bool) { fail("the library was built without libjpeg-turbo"); }

#endif

}  // namespace ndd

// Writes up to `room` bytes of the file to `out`. Returns its length, or -1 on failure. Thread-safe.
NDD_EXPORT(release, int64_t, ndd_encode_jpeg,
           (const uint8_t* pixels, int64_t height, int64_t width, int channels, int quality, int subsampled, uint8_t* out, int64_t room)) {
  try {
    const std::vector<uint8_t> file = ndd::encode_jpeg(pixels, height, width, channels, quality, subsampled != 0);
    std::copy_n(file.data(), std::min<size_t>(file.size(), static_cast<size_t>(room)), out);
    return static_cast<int64_t>(file.size());
  } catch (const std::exception&) {
    return -1;
  }
}
