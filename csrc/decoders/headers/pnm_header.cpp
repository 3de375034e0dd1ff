// SPDX-License-Identifier: Apache-2.0
// Netpbm's P1 to P6: a header of numbers as text, separated by white space and comments. Parsers differ in where a comment may begin and
// what ends it. nvImageCodec's parser also takes the first pixels of a bitmap (P1, P4) for a number, and its codec does not scale samples
// whose largest value is neither 255 nor 65535. Such files are rewritten with a plain header, pixels of one or two bytes, and the full
// range.
#include "decoders/headers/file_header.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace ndd {
namespace {

// Returns where the comment at `at` ends.
size_t line_end(const EncodedImage& file, size_t at) {
  while (at < file.size && file.data[at] != '\n' && file.data[at] != '\r') ++at;
  return at;
}

// Reads the numbers of a header.
class Text {
 public:
  explicit Text(const EncodedImage& file) : file_(file) {}

  // Reads the next number, which white space must follow: readers differ in how they treat "12#" and "12a".
  int64_t number(const char* what) {
    skip_space();
    int64_t value = 0;
    const size_t begin = at_;
    for (; at_ < file_.size && std::isdigit(file_.data[at_]); ++at_) {
      value = value * 10 + (file_.data[at_] - '0');
      if (value > INT32_MAX) reject_header(std::string("its ") + what + " is out of range");
    }
    if (at_ == begin || at_ == file_.size) reject_header(std::string("its header lacks the ") + what);
    if (!std::isspace(file_.data[at_])) reject_header(std::string("its ") + what + " does not end with white space");
    return value;
  }

  size_t at() const { return at_; }
  bool plain() const { return plain_; }

 private:
  void skip_space() {
    for (; at_ < file_.size; ++at_) {
      if (file_.data[at_] == '#') {
        plain_ = false;
        at_ = line_end(file_, at_);
        if (at_ == file_.size) reject_header("a comment in its header does not end");
      } else if (!std::isspace(file_.data[at_])) {
        return;
      }
    }
  }

  const EncodedImage& file_;
  size_t at_ = 2;  // after the P and its digit
  bool plain_ = true;  // without comments
};

// In bitmaps 1 is black. The digits of a text bitmap need no white space between them.
void unpack_bits(const EncodedImage& file, const FileHeader& header, uint8_t* gray) {
  const int64_t row_bytes = (header.width + 7) / 8;
  const uint8_t* row = file.data + header.raster;
  for (int64_t y = 0; y < header.height; ++y, row += row_bytes) {
    for (int64_t x = 0; x < header.width; ++x) *gray++ = row[x / 8] >> (7 - x % 8) & 1 ? 0 : 255;
  }
}

void unpack_digits(const EncodedImage& file, const FileHeader& header, uint8_t* gray, uint8_t* end) {
  for (size_t at = header.raster; gray < end; ++at) {
    if (at >= file.size) reject_header("it ends in its pixels");
    const uint8_t c = file.data[at];
    if (c == '#') {
      at = line_end(file, at);
    } else if (c == '0' || c == '1') {
      *gray++ = c == '0' ? 255 : 0;
    } else if (!std::isspace(c)) {
      reject_header("a pixel is neither 0 nor 1");
    }
  }
}

// Writes samples of one or two bytes, big-endian, scaled to the full range.
class Scaled {
 public:
  Scaled(const FileHeader& header, uint8_t* out) : header_(header), out_(out), bytes_(header.dtype == DType::uint16 ? 2 : 1) {}

  void add(int64_t sample) {
    const int64_t white = bytes_ == 2 ? 65535 : 255;
    const int64_t scaled = std::min((sample * white + header_.largest / 2) / header_.largest, white);
    if (bytes_ == 2) *out_++ = static_cast<uint8_t>(scaled >> 8);
    *out_++ = static_cast<uint8_t>(scaled);
  }

 private:
  const FileHeader& header_;
  uint8_t* out_;
  const int bytes_;
};

// P5 and P6: samples of one byte, or two big-endian ones if the largest value exceeds 255.
void scale_bytes(const EncodedImage& file, const FileHeader& header, int64_t samples, Scaled out) {
  const uint8_t* p = file.data + header.raster;
  for (int64_t i = 0; i < samples; ++i) out.add(header.dtype == DType::uint16 ? big16(p + 2 * i) : p[i]);
}

// P2 and P3: decimal numbers, which are clamped to the largest value while they are read so that long ones cannot overflow.
void scale_text(const EncodedImage& file, const FileHeader& header, int64_t samples, Scaled out) {
  size_t at = header.raster;
  for (int64_t i = 0; i < samples; ++i) {
    while (at < file.size && (std::isspace(file.data[at]) || file.data[at] == '#')) {
      if (file.data[at] == '#') at = line_end(file, at);
      else ++at;
    }
    if (at >= file.size || !std::isdigit(file.data[at])) reject_header(at >= file.size ? "it ends in its pixels" : "a sample is not a number");
    int64_t value = 0;
    for (; at < file.size && std::isdigit(file.data[at]); ++at) value = std::min<int64_t>(value * 10 + (file.data[at] - '0'), header.largest);
    out.add(value);
  }
}

}  // namespace

FileHeader read_pnm_header(const EncodedImage& file) {
  // P1 to P3 are a bitmap, gray and RGB as text, P4 to P6 the same as bytes.
  const char kind = static_cast<char>(file.data[1]);
  const bool text = kind <= '3';
  FileHeader header;
  header.codec = "pnm";
  header.bitmap = kind == '1' || kind == '4';
  header.channels = kind == '3' || kind == '6' ? 3 : 1;
  Text numbers(file);
  header.width = numbers.number("width");
  header.height = numbers.number("height");
  header.largest = header.bitmap ? 255 : numbers.number("largest value");
  if (header.largest < 1 || header.largest > 65535) reject_header("its largest value is " + std::to_string(header.largest));
  // One white-space character separates the header from the pixels.
  header.raster = numbers.at() + 1;
  header.dtype = header.largest > 255 ? DType::uint16 : DType::uint8;

  const double samples = static_cast<double>(header.height) * static_cast<double>(header.width) * header.channels;
  double pixels = samples * (header.largest > 255 ? 2 : 1);
  // Bits, with each row padded to a byte.
  if (kind == '4') pixels = static_cast<double>(header.height) * static_cast<double>((header.width + 7) / 8);
  if (kind == '2' || kind == '3') pixels = 2 * samples - 1;  // at least a digit and a space for each
  header.min_bytes = static_cast<double>(header.raster) + pixels;
  // Text is rewritten as bytes, because OpenCV requires a character after the last number.
  header.needs_rewriting = text || header.bitmap || !numbers.plain() || (header.largest != 255 && header.largest != 65535);
  return header;
}

std::vector<uint8_t> rewrite_pnm(const EncodedImage& file, const FileHeader& header) {
  const char kind = static_cast<char>(file.data[1]);
  const int64_t samples = header.height * header.width * header.channels;
  const std::string plain = std::string(header.channels == 3 ? "P6\n" : "P5\n") + std::to_string(header.width) + " " + std::to_string(header.height) +
                            "\n" + (header.dtype == DType::uint16 ? "65535\n" : "255\n");
  std::vector<uint8_t> copy(plain.begin(), plain.end());
  copy.resize(plain.size() + static_cast<size_t>(samples) * item_bytes(header.dtype));
  uint8_t* out = copy.data() + plain.size();
  if (kind == '4') unpack_bits(file, header, out);
  else if (kind == '1') unpack_digits(file, header, out, copy.data() + copy.size());
  else if (kind <= '3') scale_text(file, header, samples, {header, out});
  else scale_bytes(file, header, samples, {header, out});
  return copy;
}

}  // namespace ndd
