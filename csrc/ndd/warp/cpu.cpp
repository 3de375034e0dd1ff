// SPDX-License-Identifier: Apache-2.0
// The samplers of the CPU's warp: for a block of points, where they read, what they mix, and where the border needs care.
#include "ndd/warp/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "ndd/elementwise/elements.cuh"
#include "ndd/elementwise/rows.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/simd.h"
#include "ndd/slice/rows.h"
#include "ndd/warp/positions.h"
#include "ndd/warp/x86.h"
#include "ndd/warp/x86_planes.h"

namespace ndd::warp {
namespace {

// Samples the points of one row of each plane into pixels of the output type.
template <int D>
class RowSampler {
 public:
  RowSampler(const WarpSource<D>& src, DType in, DType out, Interp interp, const WarpPlanes& planes)
      : src_(src), interp_(interp), in_(in), in_bytes_(item_bytes(in)), pixel_bytes_(src.channels * item_bytes(out)), same_dtype_(in == out),
        store_(row_storer(out)), out_step_(planes.out_step), planes_(planes.count), sampled_(planes.count) {
    // Strides are those of axes x, y and z: the last one times its extent is the whole sample.
    elements_ = src.stride[D - 1] * src.size[D - 1];
    huge_ = elements_ / std::max<int64_t>(src.channels, 1) >= INT32_MAX - 8;  // positions are int32
    // Choose the sampler once for all rows; booleans are sampled as bytes.
    for_dtype(in == DType::boolean ? DType::uint8 : in, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (!std::is_same_v<T, bool>) {
        sample_ = &RowSampler::template linear_row<T>;
        if constexpr (D == 2) {
          if (interp == Interp::cubic) sample_ = &RowSampler::template wide_row<T, Interp::cubic>;
          if (interp == Interp::lanczos3) sample_ = &RowSampler::template wide_row<T, Interp::lanczos3>;
        }
      }
    });
    if (interp == Interp::cubic || interp == Interp::lanczos3) wide_ = std::make_unique<WideBlock>();
    // Nearest pixels of another type are copied first and converted row by row.
    if (interp == Interp::nearest && !same_dtype_) {
      load_ = row_loader(in);
      copied_.resize(kBlock * src.channels * in_bytes_ + 1);
      none_.resize(src.channels * in_bytes_ + 1);
    }
    // Four floats are stored at a time: room for those behind the last channel of the last pixel.
    staged_.resize(kBlock * src.channels + 3);
    const bool linear = D == 2 && in == out && interp == Interp::linear;
    for (int64_t p = 0; p < planes.count; ++p) {
      plane_ = &planes_[p];
      plane_->data = static_cast<const char*>(src.data) + p * planes.in_step;
      set_fill(p, in, out);
      if (!linear || in != DType::uint8) continue;
      plane_->u8 = u8_linear(reinterpret_cast<const uint8_t*>(plane_->data), src.size[0], src.size[1], src.channels, src.border, plane_->fill.data());
      plane_->u8.exact = src.fades;
    }
    if (linear && (in == DType::float32 || in == DType::uint8) && src.channels == 1) shape_ = linear_shape(src.size[0], src.size[1], src.border);
  }

  // Streaming stores must be visible to other threads before the work counts as finished.
  ~RowSampler() {
    if (streams_) slice::finish_stream();
  }
  RowSampler(const RowSampler&) = delete;
  RowSampler& operator=(const RowSampler&) = delete;

  // Tells the sampler how many bytes the call writes: if there are many, rows that are merely moved bypass the caches.
  void write(int64_t bytes) { streams_ = slice::streams(bytes); }

  int64_t pixel_bytes() const { return pixel_bytes_; }

  void operator()(const Coordinates<D>& coords, int64_t n, char* out) {
    if constexpr (D == 2) {
      // The AVX2 paths compute their own positions, eight points at a time.
      if (n >= 8 && shape_.usable) return in_ == DType::uint8 ? sample_planes<uint8_t>(coords, n, out) : sample_planes<float>(coords, n, out);
      if (n >= 8 && planes_[0].u8.usable) {
        for_each_plane(out, [&](char* to) {
          uint8_t* pixels = reinterpret_cast<uint8_t*>(to);
          linear_u8(plane_->u8, coords.at[0], coords.at[1], n, pixels, [&](int64_t j) { border_pixels(coords, j, 8, pixels); });
        });
        return;
      }
    }
    // Once for all planes, which have the same positions and weights.
    locate_all(coords, n);
    for_each_plane(out, [&](char* to) { sample_plane(coords, n, to); });
  }

 private:
  struct Plane {
    const char* data;
    std::vector<char> fill;    // one pixel of the fill value in the output type, plus a byte that copy_row may read
    std::vector<float> shown;  // the fill value of every channel as it is mixed with pixels, plus three elements of padding
    U8Image u8;
  };

  template <class Visit>
  void for_each_plane(char* out, Visit visit) {
    for (Plane& plane : planes_) {
      plane_ = &plane;
      visit(out);
      out += out_step_;
    }
  }

  template <class T>
  void sample_planes(const Coordinates<D>& coords, int64_t n, char* out) {
    if constexpr (D == 2) {
      for (size_t p = 0; p < planes_.size(); ++p) {
        float fill = planes_[p].shown[0];
        if (sizeof(T) == 1) fill = static_cast<float>(static_cast<uint8_t>(planes_[p].fill[0]));
        sampled_[p] = {planes_[p].data, out + p * out_step_, fill};
      }
      linear_planes<T>(shape_, coords.at[0], coords.at[1], n, sampled_.data(), static_cast<int64_t>(sampled_.size()), [&](int64_t j) {
        const LinearTaps<D> taps = linear_taps(src_, coords.point(j));
        for_each_plane(out, [&](char* to) {
          float pixel[4];
          border_pixel<T>(taps, pixel);
          reinterpret_cast<T*>(to)[j] = saturate<T>(pixel[0]);
        });
      });
    }
  }

  void sample_plane(const Coordinates<D>& coords, int64_t n, char* out) {
    if (interp_ == Interp::nearest) {
      if (same_dtype_) return copy_pixels(coords, n, plane_->fill.data(), out);
      copy_pixels(coords, n, none_.data(), copied_.data());
      load_(copied_.data(), n * src_.channels, staged_.data());
    } else {
      (this->*sample_)(coords, n, staged_.data());
    }
    store_(staged_.data(), n * src_.channels, out);
    if (interp_ != Interp::nearest || src_.border != Border::constant) return;
    for (int64_t j = 0; j < n; ++j)
      // The fill value is not converted like a pixel of the input, so it is written afterwards.
      if (positions_.pixel[j] < 0) std::memcpy(out + j * pixel_bytes(), plane_->fill.data(), pixel_bytes());
  }

 public:
  // Nearest pixels of a row that are consecutive in the source, as with maps that translate, pad or shear along x, are copied together: 16 images of
  // 224x224x3 take 0.3 ms instead of 1.3. Returns false, without effect, if they are not.
  bool moved(const Coordinates<D>& coords, int64_t n, char* out) {
    if constexpr (D == 2) {
      // Only pixels that are copied unchanged can be copied together.
      if (interp_ != Interp::nearest || !same_dtype_ || huge_) return false;
      const float *across = coords.at[0], *down = coords.at[1], kFar = 1 << 20;
      if (!(std::fabs(across[0]) < kFar && std::fabs(across[n - 1]) < kFar && std::fabs(down[0]) < kFar && std::fabs(down[n - 1]) < kFar))
        return false;
      // The ends of the row first: a cheap test that rules out most maps.
      const auto column = static_cast<int64_t>(std::floor(across[0])), row = static_cast<int64_t>(std::floor(down[0]));
      if (static_cast<int64_t>(std::floor(across[n - 1])) != column + n - 1 || static_cast<int64_t>(std::floor(down[n - 1])) != row) return false;
      const bool moves = follow(coords, n, static_cast<float>(column), static_cast<float>(row));
      if (moves) for_each_plane(out, [&](char* to) { copy_moved(column, row, n, to); });
      return moves;
    }
    return false;
  }

  // The same if the points are consecutive except for rounding, from the first one on that is not close to the next pixel. Returns how many of the n
  // pixels it has copied; points too far away for the precision of float are left out.
  int64_t moved_from(const Point<D>& first, int64_t n, char* out) {
    if constexpr (D == 2) {
      if (interp_ != Interp::nearest || !same_dtype_ || huge_) return 0;
      constexpr float kFar = 4096.0f, kMargin = 1.0f / 1024;  // kMargin is twice the error
      if (!(std::fabs(first.at[0]) < kFar && std::fabs(first.at[1]) < kFar)) return 0;
      // The whole run must stay within the range of full precision.
      n = std::min(n, static_cast<int64_t>(std::ceil(kFar - std::fabs(first.at[0]))) - 1);
      const float column = std::floor(first.at[0]), within = first.at[0] - column;
      if (n < 1 || within < kMargin || within > 1.0f - kMargin) return 0;
      const auto row = static_cast<int64_t>(std::floor(first.at[1]));
      for_each_plane(out, [&](char* to) { copy_moved(static_cast<int64_t>(column), row, n, to); });
      return n;
    }
    return 0;
  }

 private:
  void copy_moved(int64_t column, int64_t row, int64_t n, char* out) {
    if constexpr (D == 2) {
      // The row may lie beyond the source too: the border rule then chooses another line, or -1 for the fill value.
      const int64_t bytes = pixel_bytes(), line = border_index(src_.border, row, src_.size[1]), begin = std::clamp<int64_t>(-column, 0, n);
      const int64_t end = line < 0 ? begin : std::clamp<int64_t>(src_.size[0] - column, begin, n);
      const char* const from = plane_->data + line * src_.size[0] * bytes;
      if (end > begin && streams_) slice::move_streamed(from + (column + begin) * bytes, bytes, out + begin * bytes, end - begin, bytes);
      else if (end > begin) std::memcpy(out + begin * bytes, from + (column + begin) * bytes, (end - begin) * bytes);
      // The borders follow after the row, which is read in order. They bypass the caches as well: otherwise their lines would be read from memory
      // first, and mirrored borders of 16 float32 images took 15 % longer.
      const auto border = [&](int64_t first, int64_t last) {
        if (!streams_) return copy_beyond(from, line, column, first, last, out);
        border_.resize((last - first) * bytes);
        copy_beyond(from, line, column + first, 0, last - first, border_.data());
        slice::move_streamed(border_.data(), bytes, out + first * bytes, last - first, bytes);
      };
      border(0, begin);
      border(end, n);
    }
  }

  // Copies the pixels [first, last) of a row whose pixel 0 is column `column` of the source, where they lie beyond one of its ends: in a single run,
  // unless they are so far away that a mirrored border turns again.
  void copy_beyond(const char* from, int64_t line, int64_t column, int64_t first, int64_t last, char* out) const {
    if (first >= last) return;
    const int64_t bytes = pixel_bytes(), width = src_.size[0], begin = column + first, end = column + last, n = last - first;
    char* const to = out + first * bytes;
    const bool mirrored = src_.border == Border::reflect_1001 || src_.border == Border::reflect_101;
    const int64_t twice = src_.border == Border::reflect_1001 ? 1 : 0,
                  turn = begin < 0 ? -twice : 2 * width - 2 + twice;  // pixels c and turn - c are the same
    if (line < 0 || src_.border == Border::constant) return slice::repeat_item(plane_->fill.data(), to, n, bytes);
    if (src_.border == Border::clamp) return slice::repeat_item(from + (begin < 0 ? 0 : width - 1) * bytes, to, n, bytes);
    // A mirrored border is the same pixels in the opposite order, as long as it does not reach the other end.
    if (mirrored && turn - begin < width && turn - (end - 1) >= 0)
      return slice::move_items(from + (turn - begin) * bytes, -bytes, to, bytes, n, bytes);
    for (int64_t j = 0; j < n; ++j) std::memcpy(to + j * bytes, from + border_index(src_.border, begin + j, width) * bytes, bytes);
  }

  // Whether point j lies in pixel column + j of this row, for all j.
  static bool follow(const Coordinates<D>& coords, int64_t n, float column, float row) {
    int32_t others = 0;
    with_simd([&]() NDD_ALWAYS_INLINE {
      const float* __restrict across = coords.at[0];
      const float* __restrict down = coords.at[D - 1];
      const auto count = static_cast<int32_t>(n);
      const float first = column, low = row, high = row + 1.0f;
      int32_t found = 0;
      for (int32_t j = 0; j < count; ++j) {
        const float left = first + static_cast<float>(j);
        // Negated comparisons, so NaN counts as outside; or-ed without branches, so the loop vectorizes.
        found |= static_cast<int32_t>(!(across[j] >= left)) | static_cast<int32_t>(!(across[j] < left + 1.0f)) |
                 static_cast<int32_t>(!(down[j] >= low)) | static_cast<int32_t>(!(down[j] < high));
      }
      others = found;
    });
    return others == 0;
  }

  // Converts the fill value of each channel to a pixel of the output and, for mixing with pixels, of the input.
  void set_fill(int64_t plane, DType in, DType out) {
    const int64_t channels = src_.channels;
    std::vector<float> values(channels);
    for (int64_t c = 0; c < channels; ++c) values[c] = src_.fill_of(channels == 1 ? plane : c);
    plane_->fill.resize(channels * item_bytes(out) + 1);
    plane_->shown.resize(channels + 3);
    char* const fill = plane_->fill.data();
    float* const shown = plane_->shown.data();
    // To the output's type and back: what is mixed is the fill value as it would be stored.
    row_storer(out)(values.data(), channels, fill);
    row_loader(out)(fill, channels, shown);
    // The border blends with the fill value itself, not with its rounded form.
    if (src_.fades) std::copy(values.begin(), values.end(), shown);
    if (interp_ == Interp::nearest || src_.fades) return;
    std::vector<char> pixel(channels * in_bytes_);
    // Saturated to the input's type, because it takes part in mixing as if it were a pixel.
    row_storer(in)(shown, channels, pixel.data());
    row_loader(in)(pixel.data(), channels, shown);
  }

  void locate_all(const Coordinates<D>& coords, int64_t n) {
    // Every point takes the general path with 64-bit offsets.
    if (huge_) {
      std::fill_n(positions_.pixel, n, kBorder);
      return;
    }
    if (interp_ == Interp::linear) return void(locate<D, Interp::linear>(src_, coords, n, positions_));
    if constexpr (D == 2) {
      if (interp_ == Interp::cubic) {
        locate<D, Interp::cubic>(src_, coords, n, positions_);
        return weigh<Interp::cubic>(positions_, n, *wide_);
      }
      if (interp_ == Interp::lanczos3) {
        locate<D, Interp::lanczos3>(src_, coords, n, positions_);
        return weigh<Interp::lanczos3>(positions_, n, *wide_);
      }
    }
    // The vector loop clamps or marks points outside; wrapping them around needs a division each.
    const bool periodic = src_.border != Border::constant && src_.border != Border::clamp;
    if (!periodic) return void(locate<D, Interp::nearest>(src_, coords, n, positions_));
    if (!locate<D, Interp::nearest, true>(src_, coords, n, positions_)) return;
    for (int64_t j = 0; j < n; ++j)
      if (positions_.pixel[j] == kBorder) positions_.pixel[j] = static_cast<int32_t>(nearest_tap(src_, coords.point(j)) / src_.channels);
  }

  // Copies the nearest pixels unchanged, and `fill` beyond a constant border.
  void copy_pixels(const Coordinates<D>& coords, int64_t n, const char* fill, char* out) {
    if (huge_) return copy_far(coords, n, fill, out);
    if (src_.channels * in_bytes_ == 4 && gathers_pixels()) return gather_pixels(plane_->data, positions_.pixel, n, fill, out);
    switch (src_.channels * in_bytes_) {
      case 1: return copy_row<1>(n, fill, out);
      case 2: return copy_row<2>(n, fill, out);
      case 3: return copy_row<3>(n, fill, out);
      case 4: return copy_row<4>(n, fill, out);
      case 8: return copy_row<8>(n, fill, out);
      case 12: return copy_row<12>(n, fill, out);
      default: return copy_row<0>(n, fill, out);
    }
  }

  // `Bytes` is the size of a pixel, 0 if known only at run time. Three bytes are moved as four, half the instructions, where both pixels have a
  // successor.
  template <int Bytes>
  void copy_row(int64_t n, const char* fill, char* out) const {
    const int64_t bytes = Bytes > 0 ? Bytes : src_.channels * in_bytes_, wide = Bytes == 3 ? 4 : bytes, last = elements_ / src_.channels - 1;
    const char* data = plane_->data;
    const int32_t* __restrict pixels = positions_.pixel;
#pragma GCC unroll 4
    // The byte too many is overwritten by the next pixel; the last one of the row is copied exactly.
    for (int64_t j = 0; j + 1 < n; ++j, out += bytes) {
      const int64_t pixel = pixels[j];
      const char* from = pixel < 0 ? fill : data + pixel * bytes;
      if (Bytes == 3 && pixel == last) std::memcpy(out, from, bytes);
      else std::memcpy(out, from, wide);
    }
    std::memcpy(out, pixels[n - 1] < 0 ? fill : data + pixels[n - 1] * bytes, bytes);
  }

  // For images with more pixels than an int32 can count. The positions say afterwards which pixels are filled.
  void copy_far(const Coordinates<D>& coords, int64_t n, const char* fill, char* out) {
    const int64_t bytes = src_.channels * in_bytes_;
    for (int64_t j = 0; j < n; ++j, out += bytes) {
      const int64_t tap = nearest_tap(src_, coords.point(j));
      positions_.pixel[j] = tap < 0 ? kFill : 0;
      std::memcpy(out, tap < 0 ? fill : plane_->data + tap * in_bytes_, bytes);
    }
  }

  // Four channels at a time: a row may write up to three elements past its end.
  template <class T>
  void linear_row(const Coordinates<D>& coords, int64_t n, float* __restrict out) const {
    const T* __restrict data = reinterpret_cast<const T*>(plane_->data);
    const Positions<D>& positions = positions_;
    int64_t reach[1 << D] = {};  // offsets of the neighbors, in elements
    for (int t = 0; t < 1 << D; ++t)
      // Bit d of t says whether a neighbor is the second one along axis d.
      for (int d = 0; d < D; ++d) reach[t] += (t >> d & 1) * src_.stride[d];
    // From here on, loads of four channels could pass the end of the source.
    const int64_t channels = src_.channels, safe = elements_ - reach[(1 << D) - 1] - channels - 3;
    for (int64_t j = 0; j < n; ++j, out += channels) {
      const int64_t pixel = positions.pixel[j], offset = pixel * channels;
      if (pixel == kFill) {
        for (int64_t c = 0; c < channels; ++c) out[c] = plane_->shown[c];
        continue;
      }
      if (pixel == kBorder || offset >= safe) {
        border_pixel<T>(linear_taps(src_, coords.point(j)), out);
        continue;
      }
      if (channels == 1) {  // four at a time would waste three conversions: a rotation of int64 took three times as long
        float v[1 << D];
#pragma GCC unroll 8
        for (int t = 0; t < 1 << D; ++t) v[t] = static_cast<float>(data[offset + reach[t]]);
#pragma GCC unroll 3
        for (int d = 0; d < D; ++d) {
#pragma GCC unroll 4
          // Neighbors along x become one, then those along y, and along z: v[0] is the result.
          for (int t = 0; t < 1 << (D - 1 - d); ++t) v[t] = v[2 * t] + (v[2 * t + 1] - v[2 * t]) * positions.right[d][j];
        }
        *out = v[0];
        continue;
      }
      for (int64_t c = 0; c < channels; c += 4) {
        Float4 v[1 << D];
#pragma GCC unroll 8
        for (int t = 0; t < 1 << D; ++t) v[t] = load4(data + offset + reach[t] + c);
#pragma GCC unroll 3
        for (int d = 0; d < D; ++d) {
#pragma GCC unroll 4
          for (int t = 0; t < 1 << (D - 1 - d); ++t) v[t] = v[2 * t] + (v[2 * t + 1] - v[2 * t]) * positions.right[d][j];
        }
        std::memcpy(out + c, &v[0], sizeof(Float4));
      }
    }
  }

  template <class T, Interp interp>
  void wide_row(const Coordinates<D>& coords, int64_t n, float* __restrict out) const {
    if constexpr (D == 2) {
      constexpr int K = kTaps<interp>;
      const T* __restrict data = reinterpret_cast<const T*>(plane_->data);
      const int64_t channels = src_.channels, row = src_.stride[1], before = kLead<interp> * (row + channels);
      // Likewise for windows of K x K pixels.
      const int64_t safe = elements_ - K / 2 * (row + channels) - channels - 3;
      for (int64_t j = 0; j < n; ++j, out += channels) {
        const int64_t pixel = positions_.pixel[j], offset = pixel * channels;
        if (pixel == kFill) {
          for (int64_t c = 0; c < channels; ++c) out[c] = plane_->shown[c];
          continue;
        }
        if (pixel == kBorder || offset >= safe) {
          wide_border_pixel<interp>(coords.point(j), out);
          continue;
        }
        for (int64_t c = 0; c < channels; c += 4) {
          Float4 sum{};
#pragma GCC unroll 1
          for (int r = 0; r < K; ++r) {
            const T* from = data + offset - before + r * row + c;
            Float4 line{};
#pragma GCC unroll 6
            for (int k = 0; k < K; ++k) line += load4(from + k * channels) * wide_->across[k][j];
            sum += line * wide_->down[r][j];
          }
          std::memcpy(out + c, &sum, sizeof(Float4));
        }
      }
    }
  }

  // For any type: computing the weights takes longer than the loads.
  template <Interp interp>
  __attribute__((noinline)) void wide_border_pixel(const Point<D>& from, float* out) const {
    const WideTaps<interp> taps = wide_taps<interp>(src_, from);
    for (int64_t c = 0; c < src_.channels; ++c)
      out[c] = blend(taps, c, plane_->shown[c], [&](int64_t tap) { return load_element(plane_->data, in_, tap); });
  }

  // blend() for four channels at a time: writes up to three elements past the pixel, and reads them where they exist.
  template <class T>
  void border_pixel(const LinearTaps<D>& taps, float* out) const {
    const T* data = reinterpret_cast<const T*>(plane_->data);
    for (int64_t c = 0; c < src_.channels; c += 4) {
      Float4 sum{};
      float inside = 0.0f;
      for (int t = 0; t < 1 << D; ++t) {
        const int64_t at = taps.offset[t] + c;
        Float4 v;
        // The total weight of the taps inside, by which a fading border blends with the fill value.
        inside += taps.offset[t] < 0 ? 0.0f : taps.weight[t];
        if (taps.offset[t] < 0) {
          v = src_.fades ? Float4{} : load4(plane_->shown.data() + c);
        } else if (at + 4 <= elements_) {
          v = load4(data + at);
        } else {
          // The last elements of the source: fewer than four are left.
          T last[4] = {};
          std::copy(data + at, data + elements_, last);
          v = load4(last);
        }
        sum += taps.weight[t] * v;
      }
      for (int64_t k = 0; k < 4 && src_.fades; ++k) sum[k] = faded(sum[k], inside, plane_->shown[c + k]);
      std::memcpy(out + c, &sum, sizeof(Float4));
    }
  }

  void border_pixels(const Coordinates<D>& coords, int64_t begin, int64_t n, uint8_t* out) const {
    for (int64_t j = begin; j < begin + n; ++j) {
      float pixel[4];
      border_pixel<uint8_t>(linear_taps(src_, coords.point(j)), pixel);
      for (int64_t c = 0; c < src_.channels; ++c) out[j * src_.channels + c] = saturate<uint8_t>(pixel[c]);
    }
  }

  WarpSource<D> src_;
  Interp interp_;
  DType in_;
  int64_t in_bytes_, pixel_bytes_, elements_;
  bool same_dtype_, huge_, streams_ = false;
  StoreRow store_;
  int64_t out_step_;
  std::vector<Plane> planes_;
  Plane* plane_ = nullptr;  // the plane being sampled
  PlaneShape shape_;  // of planes that are sampled together
  std::vector<SampledPlane> sampled_;
  void (RowSampler::*sample_)(const Coordinates<D>&, int64_t, float*) const = nullptr;
  LoadRow load_ = nullptr;
  std::vector<char> border_;  // pixels of a row beyond one end of the source
  std::vector<char> copied_, none_;  // where nearest pixels are converted: a row of pixels of the input type, and one pixel of zeros
  std::unique_ptr<WideBlock> wide_;
  std::vector<float> staged_;
  Positions<D> positions_;
};

// A rotated row crosses a cache line at every other pixel, in a pattern that no hardware prefetcher follows. Reading the source once in order
// beforehand makes 16 VGA images take 9.1 ms instead of 16.7. Prefetching the rows ahead gained nothing, and a source larger than the L2 cache would
// not stay there.
template <int D>
void touch(const WarpSource<D>& src, int64_t item_bytes, const WarpPlanes& planes) {
  constexpr int64_t kCache = 1 << 20, kLine = 64;
  const int64_t bytes = src.stride[D - 1] * src.size[D - 1] * item_bytes + (planes.count - 1) * planes.in_step;
  if (bytes > kCache) return;
  const char* data = static_cast<const char*>(src.data);
  for (int64_t i = 0; i < bytes; i += kLine) static_cast<void>(*static_cast<const volatile char*>(data + i));
}

template <int D>
void rows(const WarpSource<D>& src, void* out, const int64_t (&size)[D], DType in_type, DType out_type, Interp interp, const void* map,
          MapBlock<D> block, bool moves, const WarpPlanes& planes) {
  if (src.channels == 0) return;
  // Rows that only move are read in order anyway.
  if (!moves) touch(src, item_bytes(in_type), planes);
  RowSampler<D> sample(src, in_type, out_type, interp, planes);
  Coordinates<D> coords;
  char* dst = static_cast<char*>(out);
  int64_t count = 1;
  for (int d = 1; d < D; ++d) count *= size[d];
  sample.write(planes.count * count * size[0] * sample.pixel_bytes());
  for (int64_t row = 0; row < count; ++row) {
    Point<D> first;
    // Pixel centers: maps work on pixel-corner coordinates.
    for (int64_t d = 1, rest = row; d < D; rest /= size[d], ++d) first.at[d] = static_cast<float>(rest % size[d]) + 0.5f;
    for (int64_t x = 0, n = 0; x < size[0]; x += n, dst += n * sample.pixel_bytes()) {
      first.at[0] = static_cast<float>(x) + 0.5f;
      if (moves) {
        block(map, first, 1, coords);
        // A single point of the map decides where the whole row comes from.
        if ((n = sample.moved_from(coords.point(0), size[0] - x, dst)) > 0) continue;
      }
      n = std::min(kBlock, size[0] - x);
      block(map, first, n, coords);
      if (!sample.moved(coords, n, dst)) sample(coords, n, dst);
    }
  }
}

}  // namespace

void warp_rows(const WarpSource<2>& src, void* out, const int64_t (&size)[2], DType in_type, DType out_type, Interp interp, const void* map,
               MapBlock<2> block, bool moves, const WarpPlanes& planes) {
  rows(src, out, size, in_type, out_type, interp, map, block, moves, planes);
}

void warp_rows(const WarpSource<3>& src, void* out, const int64_t (&size)[3], DType in_type, DType out_type, Interp interp, const void* map,
               MapBlock<3> block, bool moves, const WarpPlanes& planes) {
  rows(src, out, size, in_type, out_type, interp, map, block, moves, planes);
}

}  // namespace ndd::warp
