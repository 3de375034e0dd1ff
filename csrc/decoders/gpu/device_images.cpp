// SPDX-License-Identifier: Apache-2.0
#include "decoders/gpu/device_images.h"

#include "decoders/codecs/codec_output.h"
#include "ndd/python_interface.h"

#include <cstring>
#include <map>
#include <mutex>
#include <random>

namespace ndd {
namespace {

// A byte that is not ASCII comes first, as in a PNG: neither a text file nor an image of another format begins so.
constexpr char kMagic[8] = {'\x89', 'N', 'D', 'D', 'G', 'P', 'U', '\n'};

// The whole file: the pixels themselves stay in GPU memory.
struct Prefix {
  char magic[8];
  uint64_t token;
};

struct Registry {
  std::mutex mutex;
  std::map<uint64_t, DeviceImage> images;
  std::random_device random;
};

// Never destroyed: threads may decode while the process exits.
Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

}  // namespace

bool is_device_image(const EncodedImage& image) { return image.size == sizeof(Prefix) && !std::memcmp(image.data, kMagic, sizeof kMagic); }

DeviceImage find_device_image(const EncodedImage& image) {
  // Copied, because files have any alignment.
  Prefix prefix;
  std::memcpy(&prefix, image.data, sizeof prefix);
  const std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().images.find(prefix.token);
  if (found == registry().images.end()) codec_error("the file is damaged");
  return found->second;
}

ImageHeader header_of_device_image(const DeviceImage& image) {
  ImageHeader header{};
  // Upright and without a color space: Python has checked that nothing but the decoding leads to the samples.
  header.height = image.height;
  header.width = image.width;
  header.channels = static_cast<int>(image.channels);
  header.dtype = image.bits <= 8 ? DType::uint8 : DType::uint16;
  header.codec = kDeviceCodec;
  return header;
}

}  // namespace ndd

// Writes a file of 16 bytes that stands for an image in GPU memory, until ndd_forget_device_image. Returns its token.
NDD_EXPORT(keep, uint64_t, ndd_keep_device_image, (const void* data, int64_t height, int64_t width, int64_t channels, int64_t bits, void* file)) {
  ndd::Registry& all = ndd::registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  ndd::Prefix prefix;
  std::memcpy(prefix.magic, ndd::kMagic, sizeof prefix.magic);
  // Random, so a file cannot be written that names an image of another call.
  do {
    prefix.token = uint64_t{all.random()} << 32 | all.random();
  } while (all.images.count(prefix.token));
  all.images[prefix.token] = {data, height, width, channels, bits};
  std::memcpy(file, &prefix, sizeof prefix);
  return prefix.token;
}

NDD_EXPORT(keep, void, ndd_forget_device_image, (uint64_t token)) {
  const std::lock_guard<std::mutex> lock(ndd::registry().mutex);
  ndd::registry().images.erase(token);
}
