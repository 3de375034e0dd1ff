// SPDX-License-Identifier: Apache-2.0
// transforms.crop, rotation, scale, shear and translation: an affine map from a few numbers, composed with the input if there is one; and
// transforms.combine. Matrices are (dims, dims + 1), up to six dimensions, one for each sample or frame. Products are in double and rounded once.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/kernel.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#endif

namespace ndd::transforms_kernels {
namespace {

constexpr int kMaxDims = 6;

struct Affine {
  int32_t dims;
  // Row r: the linear part, and the shift in column `dims`.
  double m[kMaxDims][kMaxDims + 1];

  static Affine identity(int64_t n) {
    Affine result{};
    result.dims = static_cast<int32_t>(n);
    for (int64_t d = 0; d < n; ++d) result.m[d][d] = 1.0;
    return result;
  }
};

NDD_HD Affine load_affine(const void* data, DType dtype, int32_t dims) {
  Affine result{};
  result.dims = dims;
  for (int32_t r = 0; r < dims; ++r)
    for (int32_t c = 0; c <= dims; ++c) result.m[r][c] = load_element(data, dtype, r * (dims + 1) + c);
  return result;
}

// The map that applies `inner`, then `outer`.
NDD_HD Affine compose(const Affine& outer, const Affine& inner) {
  Affine result{};
  const int32_t n = result.dims = outer.dims;
  for (int32_t r = 0; r < n; ++r) {
    for (int32_t c = 0; c <= n; ++c) {
      // The last column is the shift: outer's own, and inner's as outer maps it.
      double sum = c == n ? outer.m[r][n] : 0.0;
      for (int32_t k = 0; k < n; ++k) sum += outer.m[r][k] * inner.m[k][c];
      result.m[r][c] = sum;
    }
  }
  return result;
}

// out = the composition of `count` maps in memory, applied in order, followed by `own`; the whole order is inverted if `reversed`.
struct AffineChain {
  Affine own;
  const void* const* parts;
  int64_t count;
  float* out;
  DType dtype;
  bool reversed;
};

NDD_HD void run_chain(const AffineChain& chain) {
  Affine result = chain.own;
  // From the last part to the first. `result` is all that follows; reversed, `own` comes first and what is composed before it is the outer map.
  for (int64_t k = chain.count; k-- > 0;) {
    const Affine part = load_affine(chain.parts[k], chain.dtype, chain.own.dims);
    result = chain.reversed ? compose(part, result) : compose(result, part);
  }
  for (int32_t r = 0; r < result.dims; ++r)
    for (int32_t c = 0; c <= result.dims; ++c) chain.out[r * (result.dims + 1) + c] = static_cast<float>(result.m[r][c]);
}

#ifdef __CUDACC__
__global__ void run_chains(const __grid_constant__ TableRows<AffineChain> chains, int64_t count) {
  const int64_t n = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (n < count) run_chain(chains[n]);
}
#endif

// Composes the inputs with the map of frame f of sample i, an identity that change(map, i, f) turns into it. Inputs and output are (dims, dims + 1) or
// (frames, dims, dims + 1); the inputs have one type.
template <class Change>
void compose_affine(const char* op, const std::vector<Samples>& inputs, const Samples& out, bool reversed, const Change& change) {
  for (const Samples& in : inputs)
    if (in.dtype() != inputs[0].dtype() || in.ndim() < 2 || in.ndim() > 3 || in.size() != out.size())
      fail(Error::Value, op, ": the inputs must have matrices of one type for each sample of the output");
  if (out.dtype() != DType::float32 || out.ndim() < 2 || out.ndim() > 3) fail(Error::Type, op, ": the output must have matrices of float32");
  for (int64_t i = 0; i < (out.dense() ? std::min<int64_t>(out.size(), 1) : out.size()); ++i)
    if (const int64_t* shape = out.shape(i) + out.ndim() - 2; shape[0] < 1 || shape[0] > kMaxDims || shape[1] != shape[0] + 1)
      fail(Error::Value, op, ": sample ", i, " of the output must have 1 to ", kMaxDims, " rows and one column more");
  const auto chains = [=](int64_t i, std::vector<AffineChain>& batch, std::vector<const void*>& parts) {
    const int64_t frames = out.ndim() == 3 ? out.shape(i)[0] : 1, dims = out.shape(i)[out.ndim() - 2], volume = dims * (dims + 1);
    for (int64_t f = 0; f < frames; ++f) {
      for (const Samples& in : inputs) {
        const int64_t input_frames = in.ndim() == 3 ? in.shape(i)[0] : 1;
        if (in.volume(i) != input_frames * volume)
          fail(Error::Value, op, ": sample ", i, ": the inputs have matrices of another size than the output");
        // One matrix may stand for all frames.
        if (input_frames != 1 && input_frames < frames) fail(op, ": sample ", i, ": the inputs have ", input_frames, " and ", frames, " frames");
        parts.push_back(static_cast<const char*>(in.data(i)) + (input_frames > 1 ? f : 0) * volume * in.item_bytes());
      }
      Affine own = Affine::identity(dims);
      change(own, i, f);
      batch.push_back({own, nullptr, static_cast<int64_t>(inputs.size()), static_cast<float*>(out.data(i)) + f * volume,
                       inputs.empty() ? DType::float32 : inputs[0].dtype(), reversed});
    }
  };
#ifdef __CUDACC__
  if (out.values().is_cuda()) {
    std::vector<AffineChain> batch;
    std::vector<const void*> parts;
    for (int64_t i = 0; i < out.size(); ++i) chains(i, batch, parts);
    if (batch.empty()) return;
    // A table must not be empty.
    parts.push_back(nullptr);
    const CudaTable<const void*> part_table(parts);
    // The parts are addressed once their array no longer moves.
    for (size_t n = 0; n < batch.size(); ++n) batch[n].parts = part_table.data() + n * inputs.size();
    const KernelTable<AffineChain> table(batch);
    const int64_t count = static_cast<int64_t>(batch.size());
    run_chains<<<static_cast<unsigned>((count + 63) / 64), 64, 0, current_cuda_stream()>>>(table.rows(), count);
    return check_launch(op);
  }
#endif
  launch_cpu(op, out.size(), 200.0, {}, [=](int64_t i) {
    std::vector<AffineChain> batch;
    std::vector<const void*> parts;
    chains(i, batch, parts);
    for (size_t n = 0; n < batch.size(); ++n) {
      batch[n].parts = parts.data() + n * inputs.size();
      run_chain(batch[n]);
    }
  });
}

// The arguments of a transform, in order; a missing one reads as 0. `frames` and `single` have a bit for each: it has values for every frame, it has one
// number where others have one for each of `elements`.
class Numbers {
 public:
  Numbers(std::vector<MaybeTensor> arguments, int64_t frames, int64_t single) : frames_(frames), single_(single) {
    for (const MaybeTensor& argument : arguments) arguments_.push_back(argument ? std::make_shared<Args<float>>(*argument) : nullptr);
  }

  bool has(int k) const { return arguments_[k] != nullptr; }

  double operator()(int k, int64_t i, int64_t f, int64_t d, int64_t elements) const {
    if (!has(k)) return 0.0;
    const Args<float>& argument = *arguments_[k];
    // A number for each element, or one for all; then the last frame's values stand for all frames after it.
    const int64_t count = single_ >> k & 1 ? 1 : elements, last = argument.cols() / count - 1;
    return argument(i, (frames_ >> k & 1 ? std::min(f, last) * count : 0) + (count == 1 ? 0 : d));
  }

 private:
  std::vector<std::shared_ptr<const Args<float>>> arguments_;
  int64_t frames_, single_;
};

// The linear map about a center: x -> m (x - c) + c.
void set_center(Affine& map, const Numbers& numbers, int k, int64_t i, int64_t f) {
  const int32_t n = map.dims;
  for (int32_t r = 0; r < n; ++r) {
    map.m[r][n] = numbers(k, i, f, r, n);
    for (int32_t c = 0; c < n; ++c) map.m[r][n] -= map.m[r][c] * numbers(k, i, f, c, n);
  }
}

// The input, if there is one.
std::vector<Samples> inputs_of(const MaybeTensor& input, const MaybeTensor& shapes) {
  return input ? std::vector<Samples>{Samples(*input, shapes)} : std::vector<Samples>{};
}

void translation(const MaybeTensor& input, const MaybeTensor& input_shapes, const Tensor& offset, int64_t frames, int64_t single, bool reverse_order,
                 const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples out(output, output_shapes);
  const Numbers numbers({offset}, frames, single);
  compose_affine("transforms.translation", inputs_of(input, input_shapes), out, reverse_order, [=](Affine& map, int64_t i, int64_t f) {
    for (int32_t d = 0; d < map.dims; ++d) map.m[d][map.dims] = numbers(0, i, f, d, map.dims);
  });
}

void scale(const MaybeTensor& input, const MaybeTensor& input_shapes, const Tensor& scale, const MaybeTensor& center, int64_t frames, int64_t single,
           bool reverse_order, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples out(output, output_shapes);
  const Numbers numbers({scale, center}, frames, single);
  compose_affine("transforms.scale", inputs_of(input, input_shapes), out, reverse_order, [=](Affine& map, int64_t i, int64_t f) {
    for (int32_t d = 0; d < map.dims; ++d) map.m[d][d] = numbers(0, i, f, d, map.dims);
    set_center(map, numbers, 1, i, f);
  });
}

// Right-handed about an axis; without one in the plane, from the first axis to the second.
void rotation(const MaybeTensor& input, const MaybeTensor& input_shapes, const Tensor& angle, const MaybeTensor& axis, const MaybeTensor& center,
              int64_t frames, int64_t single, bool reverse_order, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples out(output, output_shapes);
  const Numbers numbers({angle, axis, center}, frames, single);
  compose_affine("transforms.rotation", inputs_of(input, input_shapes), out, reverse_order, [=](Affine& map, int64_t i, int64_t f) {
    const double radians = numbers(0, i, f, 0, 1) * (M_PI / 180.0), c = std::cos(radians), s = std::sin(radians);
    if (!numbers.has(1)) {
      map.m[0][0] = map.m[1][1] = c;
      map.m[0][1] = -s;
      map.m[1][0] = s;
    } else {
      double a[3];
      for (int d = 0; d < 3; ++d) a[d] = numbers(1, i, f, d, 3);
      const double length = std::sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2]);
      if (!(length > 0.0) || !std::isfinite(length)) fail("transforms.rotation: axis must be finite and not zero, sample ", i);
      for (double& component : a) component /= length;
      // Rodrigues' formula: cos * I + (1 - cos) * a a^T + sin * [a]x
      for (int r = 0; r < 3; ++r) {
        for (int k = 0; k < 3; ++k) map.m[r][k] = (1.0 - c) * a[r] * a[k] + (r == k ? c : 0.0);
        // The matrix of the cross product with a.
        map.m[r][(r + 1) % 3] -= s * a[(r + 2) % 3];
        map.m[r][(r + 2) % 3] += s * a[(r + 1) % 3];
      }
    }
    set_center(map, numbers, 2, i, f);
  });
}

void shear(const MaybeTensor& input, const MaybeTensor& input_shapes, const MaybeTensor& shear, const MaybeTensor& angles, const MaybeTensor& center,
           int64_t frames, int64_t single, bool reverse_order, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples out(output, output_shapes);
  const Numbers numbers({shear, angles, center}, frames, single);
  compose_affine("transforms.shear", inputs_of(input, input_shapes), out, reverse_order, [=](Affine& map, int64_t i, int64_t f) {
    const int32_t n = map.dims;
    for (int32_t r = 0; r < n; ++r) {
      for (int32_t c = 0; c < n; ++c) {
        if (r == c) continue;
        // The numbers are those off the diagonal, row by row.
        const int64_t k = r * (n - 1) + c - (c > r), count = n * (n - 1);
        map.m[r][c] = numbers.has(0) ? numbers(0, i, f, k, count) : std::tan(numbers(1, i, f, k, count) * (M_PI / 180.0));
      }
    }
    set_center(map, numbers, 2, i, f);
  });
}

void crop(const MaybeTensor& input, const MaybeTensor& input_shapes, const Tensor& from_start, const Tensor& from_end, const Tensor& to_start,
          const Tensor& to_end, bool absolute, int64_t frames, int64_t single, bool reverse_order, const Tensor& output,
          const MaybeTensor& output_shapes) {
  const Samples out(output, output_shapes);
  const Numbers numbers({from_start, from_end, to_start, to_end}, frames, single);
  compose_affine("transforms.crop", inputs_of(input, input_shapes), out, reverse_order, [=](Affine& map, int64_t i, int64_t f) {
    for (int32_t d = 0; d < map.dims; ++d) {
      double v[4];
      for (int k = 0; k < 4; ++k) v[k] = numbers(k, i, f, d, map.dims);
      for (int k = 0; k < 4 && absolute; k += 2)
        // `absolute`: the start is the smaller number.
        if (v[k] > v[k + 1]) std::swap(v[k], v[k + 1]);
      // Maps the interval from v[0] to v[1] onto that from v[2] to v[3].
      map.m[d][d] = (v[3] - v[2]) / (v[1] - v[0]);
      map.m[d][map.dims] = v[2] - map.m[d][d] * v[0];
    }
  });
}

void combine(const std::vector<Tensor>& inputs, const std::vector<Tensor>& shapes, bool reverse_order, const Tensor& output,
             const MaybeTensor& output_shapes) {
  compose_affine("transforms.combine", samples_of(inputs, shapes), Samples(output, output_shapes), reverse_order, [](Affine&, int64_t, int64_t) {});
}

}  // namespace
}  // namespace ndd::transforms_kernels
NDD_KERNELS(transforms_translation, ndd::transforms_kernels::translation)
NDD_KERNELS(transforms_scale, ndd::transforms_kernels::scale)
NDD_KERNELS(transforms_rotation, ndd::transforms_kernels::rotation)
NDD_KERNELS(transforms_shear, ndd::transforms_kernels::shear)
NDD_KERNELS(transforms_crop, ndd::transforms_kernels::crop)
NDD_KERNELS(transforms_combine, ndd::transforms_kernels::combine)
