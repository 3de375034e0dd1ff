// SPDX-License-Identifier: Apache-2.0
// A guess for a message, never for a decision: no file is decoded or refused because of what this finds.
#include "decoders/file_kind.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "ndd/python_interface.h"

namespace ndd {
namespace {

using namespace std::string_view_literals;

// A file begins with `mark` at byte `at`.
struct Kind {
  size_t at;
  std::string_view mark;
  const char* name;
  std::string_view begin = {};  // also required at the start of the file, for containers such as RIFF
};

// The first match counts: long marks before short ones that they contain, and "BM" last, because text may begin with it.
constexpr Kind kKinds[] = {
    {0, "\x1f\x8b"sv, "compressed by gzip (decompress it)"},
    {0, "\x28\xb5\x2f\xfd"sv, "compressed by Zstandard (decompress it)"},
    {0, "\xfd\x37zXZ\0"sv, "compressed by xz (decompress it)"},
    {0, "BZh"sv, "compressed by bzip2 (decompress it)"},
    {0, "\x04\x22\x4d\x18"sv, "compressed by LZ4 (decompress it)"},
    {0, "PK\x03\x04"sv, "a ZIP archive (as .npz files are)"},
    {0, "PK\x05\x06"sv, "an empty ZIP archive"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    {0, "Rar!\x1a\x07"sv, "a RAR archive"},
    {257, "ustar"sv, "a tar archive"},
    {0, "PAR1"sv, "a Parquet file"},
    {0, "ARROW1"sv, "an Arrow file"},
    {0, "\x93NUMPY"sv, "an .npy file"},
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    {0, "SIMPLE  ="sv, "a FITS file"},
    {0, "SQLite format 3"sv, "an SQLite database"},
    {16, "\xde\xc0\xef\xbe"sv, "an LMDB database"},
    {0, "\x0a\x23\xd7\xce"sv, "a RecordIO file"},
    {0, "version https://git-lfs"sv, "a pointer of Git LFS (run: git lfs pull)"},
    {0, "%PDF-"sv, "a PDF document"},
    {0, "\xff\xd8\xff"sv, "a JPEG image"},
    {0, "\x89PNG\r\n\x1a\n"sv, "a PNG image"},
    {0, "GIF8"sv, "a GIF image"},
    {0, "II*\0"sv, "a TIFF image"},
    {0, "MM\0*"sv, "a TIFF image"},
    {0, "II+\0"sv, "a TIFF image"},
    {0, "MM\0+"sv, "a TIFF image"},
    {8, "WEBP"sv, "a WebP image", "RIFF"sv},
    {0, "\0\0\0\x0cjP  \r\n"sv, "a JPEG 2000 image"},
    {0, "\xff\x4f\xff\x51"sv, "a JPEG 2000 image"},
    {0, "\xff\x0a"sv, "a JPEG XL image"},
    {0, "\0\0\0\x0cJXL "sv, "a JPEG XL image"},
    {0, "II\xbc\x01"sv, "a JPEG XR image"},
    {4, "ftypavif"sv, "an AVIF image"},
    {4, "ftypavis"sv, "an AVIF image"},
    {4, "ftyphei"sv, "a HEIF image"},
    {4, "ftyphevc"sv, "a HEIF image"},
    {4, "ftypmif1"sv, "a HEIF image"},
    {4, "ftypmsf1"sv, "a HEIF image"},
    {0, "8BPS"sv, "a Photoshop document"},
    {0, "v/1\x01"sv, "an OpenEXR image"},
    {0, "#?RADIANCE"sv, "a Radiance HDR image"},
    {0, "#?RGBE"sv, "a Radiance HDR image"},
    {0, "DDS "sv, "a DDS texture"},
    {0, "P7\n"sv, "a PAM image"},
    {0, "PF\n"sv, "a PFM image"},
    {0, "Pf\n"sv, "a PFM image"},
    {0, "\0\0\1\0"sv, "an icon"},
    {8, "WAVE"sv, "a WAV file", "RIFF"sv},
    {8, "AVI "sv, "an AVI video", "RIFF"sv},
    {8, "AIFF"sv, "an AIFF sound", "FORM"sv},
    {0, ".snd"sv, "an AU sound"},
    {0, "fLaC"sv, "a FLAC sound"},
    {28, "\x01vorbis"sv, "an Ogg Vorbis sound", "OggS"sv},
    {28, "OpusHead"sv, "an Ogg Opus sound", "OggS"sv},
    {28, "\x80theora"sv, "an Ogg Theora video", "OggS"sv},
    {0, "OggS"sv, "an Ogg file"},
    {4, "ftypM4A "sv, "an MPEG-4 sound (AAC or ALAC)"},
    {4, "ftyp"sv, "an MP4 or QuickTime file"},
    {0, "\x1a\x45\xdf\xa3"sv, "a Matroska or WebM file"},
    {0, "FLV\x01"sv, "an FLV video"},
    {0, "\x30\x26\xb2\x75\x8e\x66\xcf\x11"sv, "a WMV or WMA file"},
    {0, "ID3"sv, "an MP3 sound"},
    {0, "#!AMR"sv, "an AMR sound"},
    {0, "BM"sv, "a BMP image"},
};

bool has(const uint8_t* data, size_t size, size_t at, std::string_view mark) {
  // memcmp() takes no null pointer, which an empty mark has.
  return mark.empty() || (at + mark.size() <= size && !std::memcmp(data + at, mark.data(), mark.size()));
}

// Netpbm: P1 to P6 and white space.
bool is_pnm(const uint8_t* data, size_t size) {
  return size >= 3 && data[0] == 'P' && data[1] >= '1' && data[1] <= '6' && (data[2] == ' ' || data[2] == '\n' || data[2] == '\r' || data[2] == '\t');
}

// ADTS: a sync word of 12 bits, then the version, two layer bits that are always 0, and a flag. MPEG audio: 11 bits, a version, a layer that is not
// 0, and a bit rate that is not 15.
bool is_adts(const uint8_t* data, size_t size) { return size >= 7 && data[0] == 0xff && (data[1] & 0xf6) == 0xf0; }
bool is_mpeg_audio(const uint8_t* data, size_t size) { return size >= 4 && data[0] == 0xff && (data[1] & 0xe6) == 0xe2 && (data[2] & 0xf0) < 0xf0; }

// Printable ASCII, tabs and ends of lines; bytes from 128 on may be UTF-8 or another encoding.
bool is_text(const uint8_t* data, size_t size) {
  return std::all_of(data, data + size, [](uint8_t byte) { return (byte >= 32 && byte != 127) || (byte >= 9 && byte <= 13); });
}

}  // namespace

std::string file_kind(const uint8_t* data, size_t size) {
  size = std::min(size, kKindBytes);
  if (size < 2) return {};
  for (const Kind& kind : kKinds) {
    if (has(data, size, kind.at, kind.mark) && has(data, size, 0, kind.begin)) return kind.name;
  }
  if (is_pnm(data, size)) return "a PNM image";
  if (is_adts(data, size)) return "an AAC sound (ADTS)";
  if (is_mpeg_audio(data, size)) return "an MP3 sound";
  if (std::all_of(data, data + size, [](uint8_t byte) { return byte == 0; })) return "a file that begins with zeros";
  if (!is_text(data, size)) return {};
  // The first character that is not white space decides among kinds of text.
  const auto* first = std::find_if(data, data + size, [](uint8_t byte) { return byte > 32; });
  if (first == data + size) return {};
  return *first == '<' ? "an HTML or XML document" : *first == '{' || *first == '[' ? "a JSON document" : "a text file";
}

std::string other_kind(const uint8_t* data, size_t size) {
  const std::string kind = file_kind(data, size);
  return kind.empty() ? kind : ": it is " + kind;
}

}  // namespace ndd

// Called by Python. The result is valid until the next call on this thread.
NDD_EXPORT(keep, const char*, ndd_file_kind, (const uint8_t* data, int64_t size)) {
  thread_local std::string kind;
  kind = ndd::file_kind(data, static_cast<size_t>(size));
  return kind.c_str();
}
