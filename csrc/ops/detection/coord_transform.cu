// SPDX-License-Identifier: Apache-2.0
// coord_transform: out = M in + T for every point.
#include "ndd/args.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/kernel.h"
#include "ndd/simd.h"
#ifdef __CUDACC__
#include "ndd/launch_runs.cuh"
#endif

namespace ndd::coord_transform_kernels {
namespace {

// Elements of any type as T and back.
template <class T>
NDD_HD T load(const void* data, DType dtype, int64_t i) {
  T value{};
  for_dtype(dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    value = saturate<T>(static_cast<const In*>(data)[i]);
  });
  return value;
}

template <class T>
NDD_HD void store(T value, void* data, DType dtype, int64_t i) {
  for_dtype(dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    static_cast<Out*>(data)[i] = saturate<Out>(value);
  });
}

// The points of a sample or of a frame, in double where float32 would not hold them.
// `rows` coordinates come out and `columns` go in; points are dense.
struct PointsRun {
  const void* in;
  void* out;
  int64_t count, rows, columns;
  int64_t matrix;  // where its matrix starts: `rows` times `columns` numbers, then `rows` for the shift
};

struct PointTypes {
  DType in, out;
};

template <class T>
NDD_HD void map_point(const PointsRun& run, const PointTypes& types, const T* matrix, int64_t point) {
  const T* shift = matrix + run.rows * run.columns;
  for (int64_t r = 0; r < run.rows; ++r) {
    // The same order of additions as in map_floats().
    T sum = shift[r];
    for (int64_t c = 0; c < run.columns; ++c) sum += matrix[r * run.columns + c] * load<T>(run.in, types.in, point * run.columns + c);
    store<T>(sum, run.out, types.out, point * run.rows + r);
  }
}

// The same for float32 with compile-time dimensions, which vectorizes.
template <int R, int C>
void map_floats(const void* input, void* output, int64_t count, const float* matrix) {
  with_simd([&]() NDD_ALWAYS_INLINE {
    float m[R * C + R];
    for (int k = 0; k < R * C + R; ++k) m[k] = matrix[k];
    const float* __restrict in = static_cast<const float*>(input);
    float* __restrict out = static_cast<float*>(output);
    const int64_t n = count;
    for (int64_t p = 0; p < n; ++p) {
      for (int r = 0; r < R; ++r) {
        float sum = m[R * C + r];
        for (int c = 0; c < C; ++c) sum += m[r * C + c] * in[p * C + c];
        out[p * R + r] = sum;
      }
    }
  });
}

template <class T>
void run_points(const PointsRun& run, const PointTypes& types, const T* matrix) {
  // Points in the plane and in space, as nearly all are.
  if constexpr (sizeof(T) == sizeof(float)) {
    if (types.in == DType::float32 && types.out == DType::float32 && run.rows == run.columns) {
      if (run.rows == 2) return map_floats<2, 2>(run.in, run.out, run.count, matrix);
      if (run.rows == 3) return map_floats<3, 3>(run.in, run.out, run.count, matrix);
    }
  }
  for (int64_t p = 0; p < run.count; ++p) map_point<T>(run, types, matrix, p);
}

#ifdef __CUDACC__
template <class T>
__global__ void run_points_gpu(const __grid_constant__ TableRows<PointsRun> runs, int64_t count, PointTypes types,
                               const __grid_constant__ TableRows<T> matrices) {
  for (int64_t k = blockIdx.y; k < count; k += gridDim.y) {
    const PointsRun run = runs[k];
    for (int64_t p = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; p < run.count; p += int64_t{gridDim.x} * blockDim.x)
      map_point<T>(run, types, matrices.data() + run.matrix, p);
  }
}
#endif

// The linear part and the shift, from one argument or from two. Each may have values for a number of frames.
// The arguments are MT, or M and T: a matrix of `rows` x (`columns` + 1), or its parts. Missing ones are the identity and no shift.
class Matrices {
 public:
  Matrices(const MaybeTensor& m, const MaybeTensor& mt, const MaybeTensor& t, int64_t m_frames, int64_t mt_frames, int64_t t_frames)
      : m_(m, m_frames), mt_(mt, mt_frames), t_(t, t_frames) {}

  // For how many frames there are values, 1 where they hold for all.
  int64_t frames() const {
    // The fewest, because an argument with values for frames needs one for each frame of the output.
    int64_t fewest = 1;
    for (const Numbers* argument : {&m_, &mt_, &t_})
      if (argument->frames > 1) fewest = fewest > 1 ? std::min(fewest, argument->frames) : argument->frames;
    return fewest;
  }

  template <class T>
  void fill(int64_t sample, int64_t frame, int64_t rows, int64_t columns, std::vector<T>& numbers) const {
    const size_t first = numbers.size();
    numbers.resize(first + rows * (columns + 1), T(0));
    T *out = numbers.data() + first, *shift = out + rows * columns;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        T& to = out[r * columns + c];
        // A row of MT is a row of M and its shift; a single number of M is a multiple of the identity, which also stands for an M that is missing.
        if (mt_.values) to = static_cast<T>(mt_(sample, frame, r * (columns + 1) + c));
        else if (m_.values && m_.count() > 1) to = static_cast<T>(m_(sample, frame, r * columns + c));
        else if (r == c) to = m_.values ? static_cast<T>(m_(sample, frame, 0)) : T(1);
      }
      if (mt_.values) shift[r] = static_cast<T>(mt_(sample, frame, r * (columns + 1) + columns));
      else if (t_.values) shift[r] = static_cast<T>(t_(sample, frame, t_.count() == 1 ? 0 : r));
    }
  }

 private:
  struct Numbers {
    std::optional<Args<double>> values;
    int64_t frames;

    Numbers(const MaybeTensor& tensor, int64_t frames) : frames(frames) {
      if (tensor) values.emplace(*tensor);
    }
    // Numbers for one frame.
    int64_t count() const { return values->cols() / std::max<int64_t>(1, frames); }
    double operator()(int64_t sample, int64_t frame, int64_t k) const { return (*values)(sample, (frames > 1 ? frame * count() : 0) + k); }
  };

  Numbers m_, mt_, t_;
};

template <class T>
void transform(const Samples& in, const Samples& out, const Matrices& matrices, bool frames) {
  const PointTypes types{in.dtype(), out.dtype()};
  // Without frames in the input the output may have some: all of one sample's points for each.
  const bool repeated = out.ndim() > in.ndim();
  const auto visit = [=](int64_t i, auto each) {
    // One run for each frame, because each has a matrix of its own; without frames one for the sample.
    const int64_t count = frames ? out.shape(i)[0] : 1, rows = out.shape(i)[out.ndim() - 1], columns = in.shape(i)[in.ndim() - 1];
    const int64_t points = columns > 0 && count > 0 ? in.volume(i) / columns / (repeated ? 1 : count) : 0;
    for (int64_t f = 0; f < count && points > 0; ++f) {
      const int64_t from = (repeated ? 0 : f * points * columns) * in.item_bytes(), to = f * points * rows * out.item_bytes();
      each(PointsRun{static_cast<const char*>(in.data(i)) + from, static_cast<char*>(out.data(i)) + to, points, rows, columns, 0}, f);
    }
  };
#ifdef __CUDACC__
  if (in.values().is_cuda()) {
    std::vector<PointsRun> runs;
    // The matrices of all frames in one table; each run has the place of its own.
    std::vector<T> numbers;
    for (int64_t i = 0; i < in.size(); ++i) {
      visit(i, [&](PointsRun run, int64_t f) {
        run.matrix = static_cast<int64_t>(numbers.size());
        matrices.fill(i, f, run.rows, run.columns, numbers);
        runs.push_back(run);
      });
    }
    const KernelTable<T> values(numbers);
    return launch_runs("coord_transform", runs, &PointsRun::count, 128, [&](dim3 grid, const auto& rows, int64_t count) {
      run_points_gpu<T><<<grid, 128, 0, current_cuda_stream()>>>(rows, count, types, values.rows());
    });
  }
#endif
  launch_cpu("coord_transform", in.size(), 1.0 * in.mean_volume(), {}, [=](int64_t i) {
    std::vector<T> matrix;
    visit(i, [&](const PointsRun& run, int64_t f) {
      matrix.clear();
      matrices.fill(i, f, run.rows, run.columns, matrix);
      run_points<T>(run, types, matrix.data());
    });
  });
}

// Types whose integers float32 does not represent exactly.
bool needs_double(DType dtype) { return item_bytes(dtype) >= 4 && dtype != DType::float32; }

// `frames`: the first dimension of the output counts frames.
void coord_transform(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& m, const MaybeTensor& mt, const MaybeTensor& t,
                     int64_t m_frames, int64_t mt_frames, int64_t t_frames, bool frames, const Tensor& output, const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  const Matrices matrices(m, mt, t, m_frames, mt_frames, t_frames);
  if (in.ndim() < 1 || out.ndim() < 1 || (frames && out.ndim() < 2) || out.ndim() > in.ndim() + frames)
    fail(Error::Value, "coord_transform: points have coordinates, and the output the dimensions of the input, or frames before them");
  check_outputs("coord_transform", out, in.size(), [&](int64_t i) {
    const int64_t columns = in.shape(i)[in.ndim() - 1], copies = out.ndim() > in.ndim() ? out.shape(i)[0] : 1;
    const int64_t numbers[] = {copies, columns > 0 ? in.volume(i) / columns : 0, out.shape(i)[out.ndim() - 1]};
    return count_elements(numbers, 1, 3);
  });
  for (int64_t i = 0; i < in.size() && frames && matrices.frames() > 1; ++i)
    if (out.shape(i)[0] > matrices.frames())
      fail("coord_transform: sample ", i, " has ", out.shape(i)[0], " frames, its arguments are for ", matrices.frames());
  if (needs_double(in.dtype()) || needs_double(out.dtype())) transform<double>(in, out, matrices, frames);
  else transform<float>(in, out, matrices, frames);
}

}  // namespace
}  // namespace ndd::coord_transform_kernels
NDD_KERNELS(coord_transform, ndd::coord_transform_kernels::coord_transform)
