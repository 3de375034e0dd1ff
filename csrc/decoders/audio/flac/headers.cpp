// SPDX-License-Identifier: Apache-2.0
// What the format allows and our decoder does not support is rejected in the same way as damage: libsndfile then reads the file.
#include "decoders/audio/flac/headers.h"

#include "decoders/encoded_image.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ndd::flac {
namespace {

constexpr size_t kStreamInfo = 34;  // bytes
constexpr int kMinBlock = 16, kMaxChannels = 8;

// The table for a CRC that begins with the highest bit and starts from zero.
template <class T>
constexpr std::array<T, 256> crc_table(T polynomial) {
  std::array<T, 256> table{};
  constexpr int kTop = sizeof(T) * 8 - 1;
  for (int i = 0; i < 256; ++i) {
    uint32_t value = static_cast<uint32_t>(i) << (kTop - 7);
    for (int bit = 0; bit < 8; ++bit) value = value << 1 ^ (value >> kTop & 1 ? polynomial : 0u);
    table[i] = static_cast<T>(value);
  }
  return table;
}

// Table k is the checksum of a byte before k zeros, so eight bytes are added in one step.
constexpr std::array<std::array<uint16_t, 256>, 8> kSlices = [] {
  std::array<std::array<uint16_t, 256>, 8> tables{};
  tables[0] = crc_table<uint16_t>(0x8005);
  for (int k = 1; k < 8; ++k)
    for (int i = 0; i < 256; ++i) tables[k][i] = static_cast<uint16_t>(tables[k - 1][i] << 8 ^ tables[0][tables[k - 1][i] >> 8]);
  return tables;
}();
constexpr std::array<uint8_t, 256> kHeaderTable = crc_table<uint8_t>(0x07);

// The number in a frame header, in the manner of UTF-8 with up to 36 bits. Returns its bytes, or 0 if it is damaged.
size_t read_number(const uint8_t* data, size_t size, int64_t& number) {
  if (size == 0) return 0;
  const int ones = __builtin_clz(~(static_cast<uint32_t>(data[0]) << 24) | 1);
  if (ones == 0) {
    number = data[0];
    return 1;
  }
  if (ones == 1 || ones > 7 || size < static_cast<size_t>(ones)) return 0;
  number = data[0] & (0x7f >> ones);
  for (int k = 1; k < ones; ++k) {
    if (data[k] >> 6 != 2) return 0;
    number = number << 6 | (data[k] & 0x3f);
  }
  return static_cast<size_t>(ones);
}

}  // namespace

std::optional<Stream> read_stream(SoundBytes& bytes) {
  const size_t size = bytes.size();
  const uint8_t* data = bytes.need(0, 8 + kStreamInfo);
  if (size < 8 + kStreamInfo || std::memcmp(data, "fLaC", 4) != 0 || (data[4] & 0x7f) != 0 || (big32(data + 4) & 0xffffff) != kStreamInfo) return {};
  // STREAMINFO (RFC 9639, 8.2): smallest and largest block (2 bytes each), smallest and largest frame (3 each), then rate (20 bits),
  // channels - 1 (3), bits - 1 (5), samples (36), and an MD5 sum, which is not checked.
  const uint8_t* info = data + 8;
  Stream stream{};
  const auto min_block = static_cast<int>(big16(info));
  stream.max_block = static_cast<int>(big16(info + 2));
  stream.rate = static_cast<int>(big32(info + 10) >> 12);
  stream.channels = 1 + (info[12] >> 1 & 7);
  stream.bits = 1 + ((info[12] & 1) << 4 | info[13] >> 4);
  stream.samples = static_cast<int64_t>(info[13] & 15) << 32 | big32(info + 14);
  const bool is_known = stream.bits == 8 || stream.bits == 16 || stream.bits == 24;
  if (!is_known || min_block < kMinBlock || stream.max_block < min_block || stream.rate == 0 || stream.samples == 0) return {};
  size_t at = 4;
  // Metadata blocks: a flag for the last one and a type in one byte, a length in three.
  for (bool is_last = false; !is_last;) {
    if (size - at < 4) return {};
    const uint32_t block = big32(bytes.need(at, at + 4));
    is_last = (block & 0x80000000u) != 0;
    const size_t length = block & 0xffffff;
    if (length > size - at - 4) return {};
    at += 4 + length;
  }
  stream.begin = at;
  return stream;
}

std::optional<FrameHeader> read_frame_header(const Stream& stream, const uint8_t* data, size_t size) {
  // 14 bits of synchronization, a zero, and whether blocks have various sizes.
  if (size < 6 || data[0] != 0xff || (data[1] & 0xfe) != 0xf8) return {};
  // Codes for size, rate, channels and bits; some stand for numbers that follow (RFC 9639, 9.1).
  const int block_code = data[2] >> 4, rate_code = data[2] & 15, size_code = data[3] >> 1 & 7;
  FrameHeader header{};
  header.channel_code = data[3] >> 4;
  if (block_code == 0 || rate_code == 15 || (data[3] & 1) != 0 || header.channel_code > kMidSide) return {};
  // The header must repeat the stream's properties: a match of two sync bytes alone is likely within sound.
  if ((header.channel_code < kMaxChannels ? header.channel_code + 1 : 2) != stream.channels) return {};
  constexpr int kBits[8] = {0, 8, 12, -1, 16, 20, 24, 32};
  if (size_code != 0 && kBits[size_code] != stream.bits) return {};
  int64_t number = 0;
  size_t at = 4 + read_number(data + 4, size - 4, number);
  // Room for the longest rest: 2 bytes of block size, 2 of rate, and the checksum.
  if (at == 4 || size - at < 5) return {};
  if (block_code == 1) header.block = 192;
  else if (block_code <= 5) header.block = 144 << block_code;
  else if (block_code >= 8) header.block = 1 << block_code;
  else if (block_code == 6) header.block = data[at++] + 1;
  else header.block = static_cast<int>(big16(data + at)) + 1, at += 2;
  constexpr int kRates[12] = {0, 88200, 176400, 192000, 8000, 16000, 22050, 24000, 32000, 44100, 48000, 96000};
  int rate = rate_code < 12 ? kRates[rate_code] : 0;
  if (rate_code >= 12) {
    const size_t bytes = rate_code == 12 ? 1 : 2;
    if (size - at < bytes + 1) return {};
    rate = bytes == 1 ? data[at] * 1000 : static_cast<int>(big16(data + at)) * (rate_code == 14 ? 10 : 1);
    at += bytes;
  }
  if (header.block > stream.max_block || (rate_code != 0 && rate != stream.rate)) return {};
  uint8_t sum = 0;
  for (size_t k = 0; k < at; ++k) sum = kHeaderTable[sum ^ data[k]];
  if (sum != data[at]) return {};
  // Blocks of various sizes number their first sample; blocks of one size number themselves.
  header.sample = (data[1] & 1) != 0 ? number : number * stream.max_block;
  header.bytes = at + 1;
  return header;
}

uint16_t checksum(const uint8_t* data, size_t size) {
  uint16_t sum = 0;
  for (; size >= 8; data += 8, size -= 8) {
    sum = static_cast<uint16_t>(kSlices[7][data[0] ^ sum >> 8] ^ kSlices[6][data[1] ^ (sum & 0xff)] ^ kSlices[5][data[2]] ^ kSlices[4][data[3]] ^
                                kSlices[3][data[4]] ^ kSlices[2][data[5]] ^ kSlices[1][data[6]] ^ kSlices[0][data[7]]);
  }
  for (; size > 0; ++data, --size) sum = static_cast<uint16_t>(sum << 8 ^ kSlices[0][sum >> 8 ^ *data]);
  return sum;
}

}  // namespace ndd::flac
