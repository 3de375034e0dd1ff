// SPDX-License-Identifier: Apache-2.0
// The second bytes of JPEG markers: ITU-T T.81, table B.1.
#pragma once

namespace ndd {

enum JpegMarker : int {
  // TEM and RST: no length follows. SOF0, SOF2, SOF3, SOF10: frame headers. DHT, JPG, DAC: not frames, though between them.
  kTem = 0x01,
  kBaseline = 0xc0,
  kProgressive = 0xc2,
  kLossless = 0xc3,
  kDht = 0xc4,
  kJpg = 0xc8,
  kArithmeticProgressive = 0xca,
  kDac = 0xcc,
  kRst0 = 0xd0,
  kRst7 = 0xd7,
  kSoi = 0xd8,
  kEoi = 0xd9,
  kSos = 0xda,
  kApp1 = 0xe1
};

// Frame headers have the numbers from 0xc0 to 0xcf, among which three other markers lie.
inline bool is_jpeg_frame(int marker) { return marker >= 0xc0 && marker <= 0xcf && marker != kDht && marker != kJpg && marker != kDac; }

// Markers that no length follows, apart from the beginning and the end of the image.
inline bool stands_alone(int marker) { return marker == kTem || (marker >= kRst0 && marker <= kRst7); }

}  // namespace ndd
