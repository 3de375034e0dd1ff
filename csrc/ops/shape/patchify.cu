// SPDX-License-Identifier: Apache-2.0
// Images and videos as rows of patches: token (f, y, x) holds the pixels of `temporal` frames and of a square of each. Tokens are ordered by blocks of
// merge x merge patches, blocks and the patches within them row by row.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ndd/color/interleave.h"
#include "ndd/elementwise/streaming.h"
#include "ndd/hd.h"
#include "ndd/kernel.h"
#include "ndd/slice/slice.h"
#include "ndd/stream/stream.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd::patchify_kernels {
namespace {

// Extents and strides of the input in elements. An image has one frame, with stride 0, which fills all frames of a token; a video repeats its last one.
struct Patches {
  const char* in;
  char* out;
  int64_t frames, height, width, channels;
  int64_t frame_step, row_step, pixel_step, channel_step;
  int64_t grid_frames, grid_rows, grid_columns;  // of tokens
  int64_t patch_height, patch_width, merge, temporal;
  bool channels_last;  // in a token

  NDD_HD int64_t token_volume() const { return temporal * channels * patch_height * patch_width; }
  // Of a token: those of an image are one.
  int64_t distinct_frames() const { return frames == 1 ? 1 : temporal; }
  // The pixels of a row of blocks, all distinct frames together.
  int64_t planes_volume() const { return distinct_frames() * channels * merge * patch_height * grid_columns * patch_width; }
};

#ifdef __CUDACC__
// The place of a token: the first row and column of its patch, and its group of frames.
struct Place {
  int64_t group, row, column;
};

NDD_HD Place place_of(const Patches& p, int64_t token) {
  // token = ((group * block rows + block row) * blocks + block column) * square + patch within the block
  const int64_t square = p.merge * p.merge, blocks = p.grid_columns / p.merge;
  const int64_t within = token % square, block = token / square;
  const int64_t block_row = block / blocks % (p.grid_rows / p.merge);
  return {block / (blocks * (p.grid_rows / p.merge)), (block_row * p.merge + within / p.merge) * p.patch_height,
          (block % blocks * p.merge + within % p.merge) * p.patch_width};
}

#endif

NDD_HD const char* frame_of(const Patches& p, int64_t group, int64_t t, int64_t item_bytes) {
  const int64_t frame = group * p.temporal + t, last = p.frames - 1;
  return p.in + (frame < last ? frame : last) * p.frame_step * item_bytes;
}

#ifdef __CUDACC__
// One thread per element of the output: the divisions take about 40 instructions, which the bandwidth allows for elements of 4 bytes.
template <class T>
__global__ void patchify_gpu(const Patches* samples, int64_t count) {
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    const Patches p = samples[i];
    const int64_t volume = p.token_volume(), total = p.grid_frames * p.grid_rows * p.grid_columns * volume;
    const auto width = static_cast<uint32_t>(p.patch_width), height = static_cast<uint32_t>(p.patch_height);
    const auto channels = static_cast<uint32_t>(p.channels), temporal = static_cast<uint32_t>(p.temporal);
    for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < total; e += int64_t{gridDim.x} * blockDim.x) {
      const Place place = place_of(p, e / volume);
      auto rest = static_cast<uint32_t>(e % volume);
      uint32_t c, t, y, x;
      // From the inside out: y, x, c with the frames outermost, or c, t, y, x.
      if (p.channels_last) {
        c = rest % channels, rest /= channels;
        x = rest % width, rest /= width;
        y = rest % height, t = rest / height;
      } else {
        x = rest % width, rest /= width;
        y = rest % height, rest /= height;
        t = rest % temporal, c = rest / temporal;
      }
      const int64_t row = place.row + y, column = place.column + x;
      T value{};
      // Patches beyond the edge are filled with zeros.
      if (row < p.height && column < p.width) {
        const auto* frame = reinterpret_cast<const T*>(frame_of(p, place.group, t, sizeof(T)));
        value = frame[row * p.row_step + column * p.pixel_step + c * p.channel_step];
      }
      reinterpret_cast<T*>(p.out)[e] = value;
    }
  }
}
#endif

// Copies the runs of a row of pixels, one per patch, to their tokens. `bytes` is that of a run, 0 if the number is not known at compile time: a copy of
// known size is a few vector moves, and takes a fifth of a call of memcpy.
template <int64_t bytes>
void scatter(const char* row, char* const* tokens, int64_t offset, int64_t patches, int64_t run) {
  for (int64_t k = 0; k < patches; ++k) std::memcpy(tokens[k] + offset, row + k * (bytes ? bytes : run), static_cast<size_t>(bytes ? bytes : run));
}

using Scatter = void (*)(const char* row, char* const* tokens, int64_t offset, int64_t patches, int64_t run);

// Patches of 14 and 16 pixels, as bytes, floats of 16 and 32 bits, and as pixels of 3 bytes, 3 halves or 3 floats.
Scatter scatter_of(int64_t run) {
  switch (run) {
    case 14: return scatter<14>;
    case 16: return scatter<16>;
    case 28: return scatter<28>;
    case 32: return scatter<32>;
    case 42: return scatter<42>;
    case 48: return scatter<48>;
    case 56: return scatter<56>;
    case 64: return scatter<64>;
    case 84: return scatter<84>;
    case 96: return scatter<96>;
    case 168: return scatter<168>;
    case 192: return scatter<192>;
    default: return scatter<0>;
  }
}

// Fills the tokens of one row of patches. The pixels are read row by row, which the prefetcher follows, and their runs go to all tokens of the row: 60
// patches of 14 x 14 x 3 floats stay in the L2 cache. Token by token, reading 42 runs of 56 bytes that lie rows apart, took 3 times as long.
class PatchRow {
 public:
  // `streams`: the whole result does not fit in the caches. Tokens are then put together in a buffer and stored past them, because an ordinary store
  // reads the line that it overwrites: 86 MB of floats, channels last to planes, take 16 ms instead of 21.
  PatchRow(const Patches& p, DType dtype, int64_t bytes, bool streams)
      : p_(p), dtype_(dtype), bytes_(bytes), streams_(streams && p.grid_columns * p.token_volume() * bytes <= kMaxBuffer),
        run_(p.patch_width * bytes * (p.channels_last ? p.channels : 1)), scatter_(scatter_of(run_)) {}

  void fill(int64_t group, int64_t grid_row) {
    // The rows of pixels that the image has here; none in patches that only complete a block.
    const int64_t row = grid_row * p_.patch_height, rows = std::clamp<int64_t>(p_.height - row, 0, p_.patch_height);
    find_tokens(group, grid_row, rows);
    // An image fills all frames of a token.
    const int64_t frames = p_.distinct_frames();
    for (int64_t t = 0; t < frames; ++t) {
      const char* pixels = frame_of(p_, group, t, bytes_) + row * p_.row_step * bytes_;
      if (p_.channels_last) {
        fill_pixels(pixels, rows, t, frames);
      } else {
        fill_planes(pixels, rows, t, frames);
      }
    }
    if (streams_) store_tokens();
  }

 private:
  // Where the tokens of this row of patches begin. Tokens that the image does not fill are zero.
  // Tokens are ordered by blocks of merge x merge patches, row by row within a block.
  void find_tokens(int64_t group, int64_t grid_row, int64_t rows) {
    const int64_t merge = p_.merge, volume = p_.token_volume() * bytes_, blocks = p_.grid_columns / merge;
    const int64_t first = (group * (p_.grid_rows / merge) + grid_row / merge) * blocks * merge * merge + grid_row % merge * merge;
    tokens_.resize(static_cast<size_t>(p_.grid_columns));
    if (streams_) {
      results_.resize(tokens_.size());
      row_.resize(static_cast<size_t>(p_.grid_columns * volume));
    }
    for (int64_t x = 0; x < p_.grid_columns; ++x) {
      char* token = p_.out + (first + x / merge * merge * merge + x % merge) * volume;
      if (streams_) results_[static_cast<size_t>(x)] = std::exchange(token, row_.data() + x * volume);
      tokens_[static_cast<size_t>(x)] = token;
      // Only what pixels do not cover has to be zero, but such tokens are few.
      if (rows < p_.patch_height || (x + 1) * p_.patch_width > p_.width) std::memset(token, 0, static_cast<size_t>(volume));
    }
  }

  // Past the caches; the fence makes the stores visible before the work counts as done.
  void store_tokens() {
    const int64_t volume = p_.token_volume() * bytes_;
    for (size_t x = 0; x < tokens_.size(); ++x) stream_copy(results_[x], tokens_[x], volume);
    stream_fence();
  }

  // Sends a row of pixels to the tokens, at `offset` in frame t and, for an image, in all further frames.
  void send(const char* row, int64_t offset, int64_t frame_bytes, int64_t t, int64_t frames) {
    // `rest`: bytes of the last patch, which the image fills in part.
    const int64_t whole = p_.width / p_.patch_width, rest = p_.width % p_.patch_width * (run_ / p_.patch_width);
    for (int64_t k = t; k < (frames == 1 ? p_.temporal : t + 1); ++k) {
      const int64_t at = offset + k * frame_bytes;
      scatter_(row, tokens_.data(), at, whole, run_);
      if (rest > 0) std::memcpy(tokens_[static_cast<size_t>(whole)] + at, row + whole * run_, static_cast<size_t>(rest));
    }
  }

  void fill_pixels(const char* pixels, int64_t rows, int64_t t, int64_t frames) {
    int64_t step = p_.row_step * bytes_;
    if (p_.channels > 1 && p_.channel_step != 1) {
      // Pixels whose channels lie in planes are interleaved first.
      pixels = reorder(pixels, {rows, p_.width, p_.channels}, {p_.row_step, p_.pixel_step, p_.channel_step});
      step = p_.width * p_.channels * bytes_;
    }
    for (int64_t y = 0; y < rows; ++y) send(pixels + y * step, y * run_, p_.patch_height * run_, t, frames);
  }

  // Separates three channels while a row is in the first-level cache: of bytes, by the loops of the slice driver a third of the time went to that.
  template <class T>
  void fill_separated(const char* pixels, int64_t rows, int64_t t, int64_t frames) {
    const int64_t frame_bytes = p_.patch_height * run_;
    buffer_.resize(static_cast<size_t>(3 * p_.width * bytes_));
    T* const first = reinterpret_cast<T*>(buffer_.data());
    T* const channels[] = {first, first + p_.width, first + 2 * p_.width};
    for (int64_t y = 0; y < rows; ++y) {
      separate(reinterpret_cast<const T*>(pixels) + y * p_.row_step, p_.width, channels);
      for (int64_t c = 0; c < 3; ++c)
        send(reinterpret_cast<const char*>(channels[c]), c * p_.temporal * frame_bytes + y * run_, frame_bytes, t, frames);
    }
  }

  void fill_planes(const char* pixels, int64_t rows, int64_t t, int64_t frames) {
    // Interleaved colors, the usual case.
    if (p_.channels == 3 && p_.pixel_step == 3 && p_.channel_step == 1) {
      if (bytes_ == 1) return fill_separated<uint8_t>(pixels, rows, t, frames);
      if (bytes_ == 2) return fill_separated<uint16_t>(pixels, rows, t, frames);
      if (bytes_ == 4) return fill_separated<uint32_t>(pixels, rows, t, frames);
    }
    int64_t step = p_.row_step * bytes_, plane = p_.channel_step * bytes_;
    if (p_.pixel_step != 1) {
      // Other interleaved channels: planes first, of these rows only.
      pixels = reorder(pixels, {p_.channels, rows, p_.width}, {p_.channel_step, p_.row_step, p_.pixel_step});
      step = p_.width * bytes_;
      plane = rows * step;
    }
    const int64_t frame_bytes = p_.patch_height * run_;
    for (int64_t c = 0; c < p_.channels; ++c)
      for (int64_t y = 0; y < rows; ++y) send(pixels + c * plane + y * step, c * p_.temporal * frame_bytes + y * run_, frame_bytes, t, frames);
  }

  // Copies pixels into a buffer with the axes in another order, by the loops of the slice driver.
  const char* reorder(const char* pixels, const int64_t (&extents)[3], const int64_t (&steps)[3]) {
    buffer_.resize(static_cast<size_t>(extents[0] * extents[1] * extents[2] * bytes_));
    Slice slice;
    slice.in = pixels;
    slice.out = buffer_.data();
    slice.cached = true;
    for (int d = 0; d < 3; ++d) slice.add_axis(extents[d], extents[d], steps[d], 0, false);
    slice.set_out_strides();
    static const Channel unchanged;
    run_slice_cpu(slice, &unchanged, dtype_, dtype_);
    return buffer_.data();
  }

  static constexpr int64_t kMaxBuffer = 1 << 20;  // within the L2 cache of a core

  const Patches p_;
  const DType dtype_;
  const int64_t bytes_;
  const bool streams_;
  const int64_t run_;
  const Scatter scatter_;
  std::vector<char*> tokens_, results_;  // where they are put together, and where they belong
  std::vector<char> buffer_, row_;
};

// Fills the tokens, as planes, of images of bytes: runs of a few bytes, each one vector move. The planes of a row of blocks are put into the
// second-level cache, and tokens from there in the order of the output: 46 MB take 7 ms, 13 run by run to all tokens of a row.
class ByteTokens {
 public:
  static constexpr int64_t kWide = 32;  // the widest patch in pixels

  static bool takes(const Patches& p, int64_t bytes) {
    // Rows of single channels, or of interleaved colors.
    const bool planes = p.pixel_step == 1, pixels = p.channels == 3 && p.pixel_step == 3 && p.channel_step == 1;
    return bytes == 1 && (planes || pixels) && !p.channels_last && p.patch_width <= kWide && p.token_volume() <= kStaged &&
           p.planes_volume() <= kMaxPlanes;
  }

  ByteTokens(const Patches& p, bool streams)
      : p_(p), streams_(streams), out_(p.out), row_(p.grid_columns * p.patch_width + kWide), rows_(p.merge * p.patch_height),
        // Zeros, which no image overwrites behind its right edge.
        planes_(static_cast<size_t>(p.distinct_frames() * p.channels * rows_ * row_)), staged_(static_cast<size_t>(2 * kStaged + kWide)) {}

  void fill() {
    const int64_t block_rows = p_.grid_rows / p_.merge;
    for (int64_t group = 0; group < p_.grid_frames; ++group) {
      for (int64_t block = 0; block < block_rows; ++block) {
        for (int64_t t = 0; t < p_.distinct_frames(); ++t) load_rows(group, block, t);
        p_.patch_width <= 16 ? put_tokens<16>() : put_tokens<kWide>();
      }
    }
    // What is left after the last token, less than is stored together.
    std::memcpy(out_, staged_.data(), static_cast<size_t>(used_));
    if (streams_) stream_fence();
  }

 private:
  uint8_t* plane(int64_t t, int64_t c) { return planes_.data() + (t * p_.channels + c) * rows_ * row_; }

  // Puts the planes of a row of blocks into the buffer; whatever lies behind the image is zero.
  void load_rows(int64_t group, int64_t block, int64_t t) {
    const auto* frame = reinterpret_cast<const uint8_t*>(frame_of(p_, group, t, 1));
    for (int64_t y = 0; y < rows_; ++y) {
      const int64_t row = block * rows_ + y;
      const uint8_t* const pixels = frame + row * p_.row_step;
      if (row < p_.height && p_.pixel_step == 3) {
        uint8_t* const channels[] = {plane(t, 0) + y * row_, plane(t, 1) + y * row_, plane(t, 2) + y * row_};
        separate(pixels, p_.width, channels);
        continue;
      }
      for (int64_t c = 0; c < p_.channels; ++c) {
        uint8_t* const to = plane(t, c) + y * row_;
        if (row < p_.height) std::memcpy(to, pixels + c * p_.channel_step, static_cast<size_t>(p_.width));
        else std::memset(to, 0, static_cast<size_t>(row_));
      }
    }
  }

  // `bytes`: of a move, which may exceed the patch. The next move overwrites the excess.
  template <int64_t bytes>
  void put_tokens() {
    const int64_t blocks = p_.grid_columns / p_.merge, square = p_.merge * p_.merge, width = p_.patch_width, last = p_.distinct_frames() - 1;
    for (int64_t k = 0; k < blocks * square; ++k) {
      // The patch's place in the planes of the row of blocks.
      const int64_t x = (k / square * p_.merge + k % p_.merge) * width, y = k % square / p_.merge * p_.patch_height;
      uint8_t* to = staged_.data() + used_;
      for (int64_t c = 0; c < p_.channels; ++c) {
        for (int64_t t = 0; t < p_.temporal; ++t) {
          const uint8_t* from = plane(std::min(t, last), c) + y * row_ + x;
          for (int64_t r = 0; r < p_.patch_height; ++r, from += row_, to += width) std::memcpy(to, from, bytes);
        }
      }
      used_ += p_.token_volume();
      if (used_ >= kStaged) store();
    }
  }

  // Stores what is staged. Past the caches only whole lines: the rest stays for the next time.
  void store() {
    // Stores past the caches are whole lines, so the end must lie on one.
    const int64_t beyond = streams_ ? static_cast<int64_t>(reinterpret_cast<uintptr_t>(out_ + used_) % kCacheLine) : 0, whole = used_ - beyond;
    if (streams_) stream_copy(out_, staged_.data(), whole);
    else std::memcpy(out_, staged_.data(), static_cast<size_t>(whole));
    std::memcpy(staged_.data(), staged_.data() + whole, static_cast<size_t>(beyond));
    out_ += whole;
    used_ = beyond;
  }

  static constexpr int64_t kStaged = 16 << 10;  // within the first-level cache
  static constexpr int64_t kMaxPlanes = 512 << 10;  // within the second-level cache

  const Patches p_;
  const bool streams_;
  char* out_;
  const int64_t row_, rows_;  // of a plane, in bytes; of a block
  int64_t used_ = 0;
  std::vector<uint8_t> planes_, staged_;
};

// `layout` has the letters of the input's axes: H, W, C and possibly F first.
void patchify(const Tensor& input, const MaybeTensor& input_shapes, const std::string& layout, int64_t patch_height, int64_t patch_width,
              int64_t merge, int64_t temporal, bool channels_last, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const int64_t bytes = in.item_bytes();
  constexpr int64_t kMost = 1 << 20;  // whatever is larger than an image is one patch
  for (const int64_t extent : {patch_height, patch_width, merge, temporal})
    if (extent < 1 || extent > kMost) fail(Error::Value, "patchify: patches must have 1 to ", kMost, " pixels along each axis, got ", extent);
  if (out.dtype() != in.dtype() || out.ndim() != 2 || static_cast<int64_t>(layout.size()) != in.ndim() || out.size() != in.size())
    fail(Error::Value, "patchify: the output must have tokens for each sample, of the type of the images, and \"", layout, "\" their axes");
  for (size_t d = 0; d < layout.size(); ++d)
    if (std::string("FHWC").find(layout[d]) == std::string::npos || layout.find(layout[d]) != d)
      fail(Error::Value, "patchify: the layout must have the axes H, W, C and F once, got \"", layout, "\"");
  const auto sample = [=](int64_t i) {
    Patches p{};
    p.in = static_cast<const char*>(in.data(i));
    p.out = static_cast<char*>(out.data(i));
    p.frames = 1;
    int64_t step = 1;
    for (int64_t d = in.ndim() - 1; d >= 0; --d) {
      const int64_t extent = in.shape(i)[d];
      // An axis that is missing keeps the stride 0.
      if (layout[d] == 'F') p.frames = extent, p.frame_step = step;
      if (layout[d] == 'H') p.height = extent, p.row_step = step;
      if (layout[d] == 'W') p.width = extent, p.pixel_step = step;
      if (layout[d] == 'C') p.channels = extent, p.channel_step = step;
      step *= extent;
    }
    p.patch_height = patch_height;
    p.patch_width = patch_width;
    p.merge = merge;
    p.temporal = temporal;
    p.channels_last = channels_last;
    const int64_t tall = patch_height * merge, wide = patch_width * merge;
    p.grid_frames = (p.frames + temporal - 1) / temporal;
    p.grid_rows = (p.height + tall - 1) / tall * merge;
    p.grid_columns = (p.width + wide - 1) / wide * merge;
    // What follows writes as many tokens as these numbers say: they must agree with the output.
    const int64_t grid[] = {p.grid_frames, p.grid_rows, p.grid_columns}, token[] = {temporal, p.channels, patch_height, patch_width};
    if (count_elements(grid, 1, 3) != out.shape(i)[0] || count_elements(token, 1, 4) != out.shape(i)[1])
      fail("patchify: sample ", i, ": the output has another shape than the tokens");
    return p;
  };
#ifdef __CUDACC__
  if (input.is_cuda()) {
    std::vector<Patches> samples;
    int64_t most = 0;
    for (int64_t i = 0; i < in.size(); ++i) {
      samples.push_back(sample(i));
      most = std::max(most, out.volume(i));
    }
    if (most == 0) return;
    const CudaTable<Patches> table(samples);
    const dim3 grid = batch_grid(most, 1024, in.size());
    const auto run = [&](auto tag) { patchify_gpu<decltype(tag)><<<grid, 256, 0, current_cuda_stream()>>>(table.data(), in.size()); };
    if (bytes == 1) run(uint8_t{});
    else if (bytes == 2) run(uint16_t{});
    else if (bytes == 4) run(uint32_t{});
    else run(uint64_t{});
    return check_launch("patchify");
  }
#endif
  const DType dtype = in.dtype();
  const bool streams = exceeds_caches(static_cast<int64_t>(out.mean_volume() * static_cast<double>(out.size() * bytes)));
  launch_cpu("patchify", in.size(), 0.1 * static_cast<double>(bytes) * out.mean_volume(), {}, [=](int64_t i) {
    const Patches p = sample(i);
    if (ByteTokens::takes(p, bytes)) return ByteTokens(p, streams).fill();
    PatchRow rows(p, dtype, bytes, streams);
    for (int64_t group = 0; group < p.grid_frames; ++group)
      for (int64_t y = 0; y < p.grid_rows; ++y) rows.fill(group, y);
  });
}

}  // namespace
}  // namespace ndd::patchify_kernels
NDD_KERNELS(patchify, ndd::patchify_kernels::patchify)
