// SPDX-License-Identifier: Apache-2.0
// Segments are skipped by their lengths, and in the data of a scan memchr finds the next marker. Nothing is decoded.
#include "decoders/jpeg/scans.h"

#include "decoders/jpeg/markers.h"
#include "ndd/error.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace ndd {
namespace {

constexpr int kCoefficients = 64, kMaxComponents = 4;
// Differs from all bit positions, which have 4 bits.
constexpr uint8_t kUnsent = 255;

// The number of low bits that are still missing, for each coefficient of each component: a progressive scan sends a range of coefficients of some
// components down to a bit (T.81, annex G).
class SentBits {
 public:
  // `frame`: a frame header from its length on; the caller has checked that it holds all components. Each has an identifier in its first byte.
  explicit SentBits(const uint8_t* frame) : count_(std::min<int>(frame[7], kMaxComponents)) {
    for (int i = 0; i < count_; ++i) {
      ids_[i] = frame[8 + 3 * i];
      low_[i].fill(kUnsent);
    }
  }

  // Adds a scan header of `length` bytes, beginning with its length.
  void add(const uint8_t* scan, size_t length) {
    // A scan header (T.81, B.2.3): length, number of components, 2 bytes for each, the first and last coefficient of the scan, and in one byte
    // the bit positions before the scan (high half) and after it (low half).
    const size_t components = length >= 3 ? scan[2] : 0;
    if (length != 6 + 2 * components) return;
    const uint8_t* spectrum = scan + 3 + 2 * components;
    const int first = spectrum[0], last = std::min<int>(spectrum[1], kCoefficients - 1), low = spectrum[2] & 15;
    for (size_t c = 0; c < components; ++c) {
      for (int i = 0; i < count_; ++i) {
        if (ids_[i] != scan[3 + 2 * c]) continue;
        for (int k = first; k <= last; ++k) low_[i][k] = static_cast<uint8_t>(low);
      }
    }
  }

  bool is_complete() const {
    return std::all_of(low_.begin(), low_.begin() + count_,
                       [](const auto& bits) { return std::all_of(bits.begin(), bits.end(), [](uint8_t low) { return low == 0; }); });
  }

 private:
  int count_;
  std::array<uint8_t, kMaxComponents> ids_{};
  std::array<std::array<uint8_t, kCoefficients>, kMaxComponents> low_{};
};

// Whether a byte after 0xff belongs to the data of a scan: a stuffed zero, a marker without a length, or a fill byte.
bool is_data(int code) { return code == 0 || code == 0xff || stands_alone(code); }

// Calls work(code, segment, bytes) for each segment from the first frame header on; `segment` begins with its length. Stops where the work returns
// false and wherever a file is damaged: the codec reports what is wrong with it.
template <class Work>
void walk_segments(const EncodedImage& jpeg, Work work) {
  const uint8_t *p = jpeg.data + 2, *end = jpeg.data + jpeg.size;
  while (p < end && (p = static_cast<const uint8_t*>(std::memchr(p, 0xff, static_cast<size_t>(end - p))))) {
    // A marker and its length.
    if (end - p < 4) return;
    const int code = p[1];
    if (is_data(code)) {
      p += code == 0xff ? 1 : 2;
      continue;
    }
    if (code == kEoi) return;
    const uint8_t* segment = p + 2;
    const size_t length = big16(segment);
    if (length > static_cast<size_t>(end - segment) || !work(code, segment, length)) return;
    // After a scan header its data follow, in which memchr searches for the next marker.
    p = segment + std::max<size_t>(length, 2);
  }
}

}  // namespace

bool lacks_scans(const EncodedImage& jpeg) {
  std::optional<SentBits> sent;
  walk_segments(jpeg, [&](int code, const uint8_t* segment, size_t length) {
    if (is_jpeg_frame(code) && !sent) {
      if (code != kProgressive && code != kArithmeticProgressive) return false;
      if (length < 8 || length != 8 + 3 * static_cast<size_t>(segment[7])) return false;
      sent.emplace(segment);
    }
    if (code == kSos && sent) sent->add(segment, length);
    return true;
  });
  return sent && !sent->is_complete();
}

int max_scans(double pixels) { return static_cast<int>(std::clamp(8.6e9 / pixels, 32.0, 500.0)); }

bool has_too_many_scans(const EncodedImage& jpeg, double pixels) {
  const int most = max_scans(pixels);
  int scans = 0, components = 0;
  bool is_progressive = false;
  walk_segments(jpeg, [&](int code, const uint8_t* segment, size_t length) {
    if (is_jpeg_frame(code) && components == 0 && length >= 8) {
      components = segment[7];
      is_progressive = code == kProgressive || code == kArithmeticProgressive;
    }
    if (code != kSos) return true;
    // Of a sequential file whose first scan has all components, nothing else is read. Most files are of this kind, and the search ends here.
    if (!is_progressive && length >= 3 && segment[2] == components) return false;
    return ++scans <= most;
  });
  return scans > most;
}

void reject_scans(int most) { fail("the image data are damaged: more than ", most, " scans, far more than an image of this size needs"); }

JpegFrame first_frame(const EncodedImage& image) {
  JpegFrame frame;
  if (image.size < 4 || image.data[0] != 0xff || image.data[1] != kSoi) return {};
  for (size_t at = 2; at + 4 <= image.size;) {
    if (image.data[at] != 0xff) return {};
    const int marker = image.data[at + 1];
    if (marker == 0xff) {  // a fill byte
      ++at;
      continue;
    }
    // Stricter than libjpeg: other bytes between the segments are skipped by some parsers and not by others.
    if (marker == 0 || stands_alone(marker) || marker == kSoi || marker == kEoi) return {};
    if (marker == kSos) return frame;
    const uint8_t* segment = image.data + at + 2;
    if (is_jpeg_frame(marker)) {
      if (frame.marker != 0 || image.size - at < 5) return {};
      frame = {marker, segment[2]};
    }
    at += 2 + big16(segment);
  }
  return {};
}

}  // namespace ndd
