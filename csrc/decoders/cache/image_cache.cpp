// SPDX-License-Identifier: Apache-2.0
// Whole images are kept and windows cut out of them, because random crops hardly ever ask for the same window again.
#include "decoders/cache/image_cache.h"

#include <algorithm>

#include "decoders/codecs/codec_output.h"
#include "decoders/raw_image.h"
#include "ndd/error.h"
#include "ndd/resample/cpu.h"

namespace ndd {
namespace {

// Memory for one image, reused by a thread.
class Scratch {
 public:
  uint8_t* bytes(int64_t count) {
    if (count > size_) {
      bytes_.reset();
      bytes_.reset(new uint8_t[static_cast<size_t>(count)]);
      size_ = count;
    }
    return bytes_.get();
  }
  // A single huge image must not keep memory in every thread.
  void end_use() {
    if (size_ <= int64_t{64} << 20) return;
    bytes_.reset();
    size_ = 0;
  }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  int64_t size_ = 0;
};

// Reduces an image as the operator resize does with resize_shorter: linear, with antialiasing.
void reduce(const uint8_t* in, const ImageShape& from, void* out, const ImageShape& to, DType dtype) {
  const auto axis = [](int64_t n, int64_t m) { return make_axis(n, m, 0, static_cast<float>(n), Filter::linear, Filter::linear, true); };
  resample_cpu({in, out, dtype, dtype, 1, from.channels, {unchanged_axis(1), axis(from.height, to.height), axis(from.width, to.width)}});
}

bool same(const ImageShape& a, const ImageShape& b) { return a.height == b.height && a.width == b.width && a.channels == b.channels; }

}  // namespace

ImageCache::ImageCache(std::unique_ptr<ImageStore> store, int64_t threshold, int64_t shorter, const std::string& version)
    : store_(std::move(store)), threshold_(threshold), shorter_(shorter), secret_(store_->secret()) {
  // The version is part of the hash key, so images of another codec version are not found.
  const ContentHash hash = content_hash(secret_, version.data(), version.size());
  secret_.words[4] ^= hash.low;
  secret_.words[5] ^= hash.high;
}

// Hashes everything that determines the pixels: the bytes of the file, and the arguments. The window is not part of it: crops are copied
// out of the whole image.
ContentHash ImageCache::key(const EncodedImage& file, const DecodeOptions& options, DType dtype) const {
  const int64_t arguments[] = {static_cast<int64_t>(options.type), options.adjust_orientation, options.fast_idct, static_cast<int64_t>(dtype),
                               shorter_};
  HashSecret own = secret_;
  const ContentHash hash = content_hash(secret_, arguments, sizeof arguments);
  own.words[6] ^= hash.low;
  own.words[7] ^= hash.high;
  return content_hash(own, file.data, file.size);
}

// Must agree with `reduced_shapes` in torch_ndd/decoders/_cache.py, which sizes the output.
ImageShape ImageCache::reduced_shape(const ImageShape& shape) const {
  const int64_t side = std::min(shape.height, shape.width);
  if (shorter_ == 0 || side <= shorter_) return shape;
  // n * shorter / side, rounded to nearest in integers.
  const auto scaled = [&](int64_t n) { return n == side ? shorter_ : (2 * n * shorter_ + side) / (2 * side); };
  return {scaled(shape.height), scaled(shape.width), shape.channels};
}

// Decodes an image as it is kept: whole, and reduced if it is larger than `shorter_`. The file itself is decoded to memory of the thread then.
void ImageCache::decode_whole(ImageDecoder& decoder, const EncodedImage& file, const DecodeOptions& whole, const ImageShape& shape, void* out,
                              DType dtype) const {
  const ImageShape small = reduced_shape(shape);
  if (same(small, shape)) return decoder.decode(file, whole, shape, out, dtype);
  thread_local Scratch scratch;
  uint8_t* pixels = scratch.bytes(bytes_of(shape, item_bytes(dtype)));
  decoder.decode(file, whole, shape, pixels, dtype);
  reduce(pixels, shape, out, small, dtype);
  scratch.end_use();
}

void ImageCache::decode(ImageDecoder& decoder, const EncodedImage& file, const DecodeOptions& options, const ImageShape& shape, void* out,
                        DType dtype) {
  // JPEG 2000 arrives here already decoded by Python: hashing and copying it would cost as much as converting it.
  const ContentHash name = is_raw_image(file) ? ContentHash{} : key(file, options, dtype);
  if (!is_raw_image(file) && store_->copy(name, {options.window, shape, item_bytes(dtype)}, out)) {
    hits_.fetch_add(1, std::memory_order_relaxed);
    return count_cached();
  }
  misses_.fetch_add(1, std::memory_order_relaxed);
  decode_missing(decoder, file, name, options, shape, out, dtype);
}

void ImageCache::decode_missing(ImageDecoder& decoder, const EncodedImage& file, const ContentHash& key, const DecodeOptions& options,
                                const ImageShape& shape, void* out, DType dtype) {
  DecodeOptions whole = options;
  whole.window.reset();
  const ImageShape full = decoded_shape(decoder.read_header(file), whole), kept = reduced_shape(full);
  const int64_t item = item_bytes(dtype);
  const CachedPart part{options.window, shape, item};
  // The file may have been overwritten since the output was sized.
  if (!part.fits(kept)) codec_error("the encoded image changed after the call");
  // Small images decode faster than their entry is worth; threshold_ is set by the user.
  const bool admissible = !is_raw_image(file) && bytes_of(kept, item) >= threshold_;
  // An exception of the decoder ends the slot without commit(), which drops its memory and reservation.
  if (const auto slot = admissible ? store_->admit(key, kept, item) : nullptr) {
    decode_whole(decoder, file, whole, full, slot->data(), dtype);
    copy_part(slot->data(), kept, part, out);
    return slot->commit();
  }
  // Not admitted: only the window is decoded, unless the reduction needs the whole image.
  if (same(kept, full)) return decoder.decode(file, options, shape, out, dtype);
  if (!options.window) return decode_whole(decoder, file, whole, full, out, dtype);
  thread_local Scratch scratch;
  uint8_t* pixels = scratch.bytes(bytes_of(kept, item));
  decode_whole(decoder, file, whole, full, pixels, dtype);
  copy_part(pixels, kept, part, out);
  scratch.end_use();
}

}  // namespace ndd
