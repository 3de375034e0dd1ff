// SPDX-License-Identifier: Apache-2.0
#include "decoders/headers/other_format.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace ndd {
namespace {

struct Signature {
  const char* bytes;
  size_t length;
  const char* name;
};

constexpr Signature kSignatures[] = {
    {"GIF8", 4, "a GIF image"},
    {"\xff\x0a", 2, "a JPEG XL image"},
    {"\0\0\0\x0cJXL ", 8, "a JPEG XL image"},
    {"II\xbc\x01", 4, "a JPEG XR image"},
    {"8BPS", 4, "a Photoshop document"},
    {"v/1\x01", 4, "an OpenEXR image"},
    {"#?", 2, "a Radiance HDR image"},
    {"DDS ", 4, "a DDS texture"},
    {"P7\n", 3, "a PAM image"},
    {"PF\n", 3, "a PFM image"},
    {"Pf\n", 3, "a PFM image"},
    {"\0\0\1\0", 4, "an icon"},
    {"SIMPLE  =", 9, "a FITS file"},
    {"%PDF", 4, "a PDF document"},
    {"PK\3\4", 4, "a ZIP archive"},
    {"\x1f\x8b", 2, "gzip data"},
    {"\x28\xb5\x2f\xfd", 4, "zstd data"},
    {"\x93NUMPY", 6, "a NumPy file"},
    {"OggS", 4, "Ogg audio or video"},
    {"fLaC", 4, "FLAC audio"},
    {"ID3", 3, "MP3 audio"},
    {"\x1a\x45\xdf\xa3", 4, "a Matroska or WebM video"},
    {"version https://git-lfs", 23, "a Git LFS pointer, whose content has not been fetched"},
    {"<", 1, "HTML, XML or SVG text"},
};

bool begins(const EncodedImage& file, size_t at, const char* bytes, size_t length) {
  return file.size >= at + length && !std::memcmp(file.data + at, bytes, length);
}

std::string name_brand(const uint8_t* brand) {
  const auto is = [&](const char* name) { return !std::memcmp(brand, name, 4); };
  if (is("avif") || is("avis")) return "an AVIF image";
  if (is("heic") || is("heix") || is("mif1") || is("msf1") || is("hevc")) return "a HEIF image";
  if (is("qt  ")) return "a QuickTime video";
  return "an MP4 video";
}

}  // namespace

std::string name_other_format(const EncodedImage& file) {
  if (begins(file, 4, "ftyp", 4) && file.size >= 12) return name_brand(file.data + 8);
  if (begins(file, 0, "RIFF", 4) && begins(file, 8, "WAVE", 4)) return "WAV audio";
  if (begins(file, 0, "RIFF", 4) && begins(file, 8, "AVI ", 4)) return "an AVI video";
  if (begins(file, 257, "ustar", 5)) return "a tar archive";
  for (const Signature& known : kSignatures) {
    if (begins(file, 0, known.bytes, known.length)) return known.name;
  }
  const size_t looked_at = std::min<size_t>(file.size, 64);
  const bool text = std::all_of(file.data, file.data + looked_at, [](uint8_t c) { return c >= ' ' ? c != 0x7f : std::isspace(c) != 0; });
  const bool zeros = std::all_of(file.data, file.data + file.size, [](uint8_t c) { return c == 0; });
  if (zeros) return "nothing but zeros";
  return text ? "text" : "";
}

}  // namespace ndd
