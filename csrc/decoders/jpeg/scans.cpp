// SPDX-License-Identifier: Apache-2.0
#include "decoders/jpeg/scans.h"

#include "decoders/jpeg/markers.h"

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

}  // namespace

// Damaged files return false wherever the walk ends early: the codec reports what is wrong with them.
bool lacks_scans(const EncodedImage& jpeg) {
  const uint8_t *p = jpeg.data + 2, *end = jpeg.data + jpeg.size;
  std::optional<SentBits> sent;
  while (p < end && (p = static_cast<const uint8_t*>(std::memchr(p, 0xff, static_cast<size_t>(end - p))))) {
    // A marker and its length.
    if (end - p < 4) break;
    const int code = p[1];
    if (is_data(code)) {
      p += code == 0xff ? 1 : 2;
      continue;
    }
    if (code == kEoi) break;
    const uint8_t* segment = p + 2;
    const size_t length = big16(segment);
    if (length > static_cast<size_t>(end - segment)) break;
    if (is_jpeg_frame(code) && !sent) {
      if (code != kProgressive && code != kArithmeticProgressive) return false;
      if (length < 8 || length != 8 + 3 * static_cast<size_t>(segment[7])) return false;
      sent.emplace(segment);
    }
    if (code == kSos && sent) sent->add(segment, length);
    // After a scan header its data follow, in which memchr searches for the next marker.
    p = segment + std::max<size_t>(length, 2);
  }
  return sent && !sent->is_complete();
}

bool is_baseline_jpeg(const EncodedImage& image) {
  if (image.size < 4 || image.data[0] != 0xff || image.data[1] != kSoi) return false;
  for (size_t at = 2; at + 4 <= image.size;) {
    if (image.data[at] != 0xff) return false;
    const int marker = image.data[at + 1];
    if (marker == 0xff) {  // a fill byte
      ++at;
      continue;
    }
    if (marker == kBaseline) return true;
    // Stricter than libjpeg: files that are not clearly baseline go to the CPU.
    if (marker == 0 || stands_alone(marker) || marker == kSoi || marker == kEoi || marker == kSos || is_jpeg_frame(marker)) return false;
    at += 2 + big16(image.data + at + 2);
  }
  return false;
}

}  // namespace ndd
