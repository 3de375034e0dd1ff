// SPDX-License-Identifier: Apache-2.0
#include "decoders/file_kind.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace ndd {
namespace {

using std::string_view;

struct Kind {
  size_t at;
  string_view mark;
  const char* name;
};

// In this order: the first that fits.
constexpr Kind kKinds[] = {
    {0, string_view("\x1f\x8b", 2), "compressed by gzip (decompress it)"},
    {0, string_view("\x28\xb5\x2f\xfd", 4), "compressed by Zstandard (decompress it)"},
    {0,
     string_view("\xfd"
                 "7zXZ\0",
                 6),
     "compressed by xz (decompress it)"},
    {0, string_view("BZh", 3), "compressed by bzip2 (decompress it)"},
    {0, string_view("\x04\x22\x4d\x18", 4), "compressed by LZ4 (decompress it)"},
    {0, string_view("PK\x03\x04", 4), "a ZIP archive (as .npz files are)"},
    {0, string_view("PK\x05\x06", 4), "an empty ZIP archive"},
    {0, string_view("7z\xbc\xaf\x27\x1c", 6), "a 7z archive"},
    {0, string_view("Rar!\x1a\x07", 6), "a RAR archive"},
    {257, string_view("ustar", 5), "a tar archive"},
    {0, string_view("PAR1", 4), "a Parquet file"},
    {0, string_view("ARROW1", 6), "an Arrow file"},
    {0, string_view("\x93NUMPY", 6), "an .npy file"},
    {0, string_view("\x89HDF\r\n\x1a\n", 8), "an HDF5 file"},
    {0, string_view("SIMPLE  =", 9), "a FITS file"},
    {0, string_view("SQLite format 3", 15), "an SQLite database"},
    {16, string_view("\xde\xc0\xef\xbe", 4), "an LMDB database"},
    {0, string_view("\x0a\x23\xd7\xce", 4), "a RecordIO file"},
    {0, string_view("version https://git-lfs", 23), "a pointer of Git LFS (run: git lfs pull)"},
    {0, string_view("%PDF-", 5), "a PDF document"},
    {0, string_view("\xff\xd8\xff", 3), "a JPEG image"},
    {0, string_view("\x89PNG\r\n\x1a\n", 8), "a PNG image"},
    {0, string_view("GIF8", 4), "a GIF image"},
    {0, string_view("II*\0", 4), "a TIFF image"},
    {0, string_view("MM\0*", 4), "a TIFF image"},
    {8, string_view("WEBP", 4), "a WebP image"},
    {4, string_view("jP  \r\n", 6), "a JPEG 2000 image"},
    {8, string_view("WAVE", 4), "a WAV file"},
    {8, string_view("AVI ", 4), "an AVI video"},
    {8, string_view("AIFF", 4), "an AIFF sound"},
    {0, string_view(".snd", 4), "an AU sound"},
    {0, string_view("fLaC", 4), "a FLAC sound"},
    {28, string_view("\x01vorbis", 7), "an Ogg Vorbis sound"},
    {28, string_view("OpusHead", 8), "an Ogg Opus sound"},
    {28, string_view("\x80theora", 7), "an Ogg Theora video"},
    {0, string_view("OggS", 4), "an Ogg file"},
    {8, string_view("M4A ", 4), "an MPEG-4 sound (AAC or ALAC)"},
    {8, string_view("avif", 4), "an AVIF image"},
    {8, string_view("heic", 4), "a HEIC image"},
    {4, string_view("ftyp", 4), "an MP4 or QuickTime file"},
    {0, string_view("\x1a\x45\xdf\xa3", 4), "a Matroska or WebM file"},
    {0, string_view("FLV\x01", 4), "an FLV video"},
    {0, string_view("\x30\x26\xb2\x75\x8e\x66\xcf\x11", 8), "a WMV or WMA file"},
    {0, string_view("ID3", 3), "an MP3 sound"},
    {0, string_view("#!AMR", 5), "an AMR sound"},
    {0, string_view("BM", 2), "a BMP image"},
};

bool is_adts(const uint8_t* data, size_t size) { return size >= 7 && data[0] == 0xff && (data[1] & 0xf6) == 0xf0; }
bool is_mpeg_audio(const uint8_t* data, size_t size) { return size >= 4 && data[0] == 0xff && (data[1] & 0xe6) == 0xe2 && (data[2] & 0xf0) < 0xf0; }

bool is_text(const uint8_t* data, size_t size) {
  return std::all_of(data, data + size, [](uint8_t byte) { return byte >= 32 || (byte >= 9 && byte <= 13); });
}

}  // namespace

std::string file_kind(const uint8_t* data, size_t size) {
  size = std::min(size, kKindBytes);
  if (size < 2) return {};
  for (const Kind& kind : kKinds) {
    if (kind.at + kind.mark.size() <= size && std::memcmp(data + kind.at, kind.mark.data(), kind.mark.size()) == 0) return kind.name;
  }
  if (is_adts(data, size)) return "an AAC sound (ADTS)";
  if (is_mpeg_audio(data, size)) return "an MP3 sound";
  if (!is_text(data, size)) return {};
  const auto* first = std::find_if(data, data + size, [](uint8_t byte) { return byte > 32; });
  if (first == data + size) return {};
  return *first == '<' ? "an HTML or XML document" : *first == '{' || *first == '[' ? "a JSON document" : "a text file";
}

std::string other_kind(const uint8_t* data, size_t size) {
  const std::string kind = file_kind(data, size);
  return kind.empty() ? kind : ": it is " + kind;
}

}  // namespace ndd

// For Python; valid until the next call of the thread.
extern "C" __attribute__((visibility("default"))) const char* ndd_file_kind(const uint8_t* data, int64_t size) {
  thread_local std::string kind;
  kind = ndd::file_kind(data, static_cast<size_t>(size));
  return kind.c_str();
}
