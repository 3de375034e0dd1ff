// SPDX-License-Identifier: Apache-2.0
#include "decoders/jpeg/scans.h"

#include "decoders/headers/file_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace ndd {
namespace {

constexpr int kCoefficients = 64, kMaxComponents = 4;
constexpr uint8_t kUnsent = 255;

// How many of the low bits of each coefficient have not been sent.
class SentBits {
 public:
  explicit SentBits(const uint8_t* frame) : count_(std::min<int>(frame[7], kMaxComponents)) {
    for (int i = 0; i < count_; ++i) {
      ids_[i] = frame[8 + 3 * i];
      low_[i].fill(kUnsent);
    }
  }

  // `scan` has `length` bytes, from its length on.
  void add(const uint8_t* scan, size_t length) {
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

  bool whole() const {
    return std::all_of(low_.begin(), low_.begin() + count_,
                       [](const auto& bits) { return std::all_of(bits.begin(), bits.end(), [](uint8_t low) { return low == 0; }); });
  }

 private:
  int count_;
  std::array<uint8_t, kMaxComponents> ids_{};
  std::array<std::array<uint8_t, kCoefficients>, kMaxComponents> low_{};
};

constexpr int kProgressive = 0xc2, kArithmeticProgressive = 0xca, kSos = 0xda, kEoi = 0xd9;

// Behind an 0xff, whether it is part of a scan's data: a stuffed zero, a marker without a length, or a fill byte.
bool is_data(int code) { return code == 0 || code == 0x01 || (code >= 0xd0 && code <= 0xd7) || code == 0xff; }

}  // namespace

bool lacks_scans(const EncodedImage& jpeg) {
  const uint8_t *p = jpeg.data + 2, *end = jpeg.data + jpeg.size;
  std::optional<SentBits> sent;
  while (p < end && (p = static_cast<const uint8_t*>(std::memchr(p, 0xff, static_cast<size_t>(end - p))))) {
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
    const bool is_frame = code >= 0xc0 && code <= 0xcf && code != 0xc4 && code != 0xc8 && code != 0xcc;
    if (is_frame && !sent) {
      if (code != kProgressive && code != kArithmeticProgressive) return false;
      if (length < 8 || length != 8 + 3 * static_cast<size_t>(segment[7])) return false;
      sent.emplace(segment);
    }
    if (code == kSos && sent) sent->add(segment, length);
    p = segment + std::max<size_t>(length, 2);
  }
  return sent && !sent->whole();
}

}  // namespace ndd
