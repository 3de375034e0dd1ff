// SPDX-License-Identifier: Apache-2.0
// Images are resampled in tiles: bytes to bytes by byte_tile.cuh, other types to floats by float_tile.cuh. Everything else, such as volumes and
// filters too large for a tile, goes by one pass for each axis that changes, the innermost first unless height_first says otherwise, with one output
// element per thread. Bytes of images are rounded to bytes between the passes, as on the CPU; those of volumes once, at the end.
#include "ndd/resample/torch_rule.h"

#include <algorithm>
#include <memory>

#include "ndd/cuda.h"
#include "ndd/elementwise/elements.cuh"
#include "ndd/resample/byte_tile.cuh"
#include "ndd/resample/float_tile.cuh"
#include "ndd/resample/table.h"
#include "ndd/resample/two_passes.h"

namespace ndd {
namespace {

using resample_gpu::ByteSample;
using resample_gpu::ByteTable;
using resample_gpu::FloatSample;
using resample_gpu::FloatTable;
using resample_gpu::kThreads;

// Turns lines of `in_extent` runs of `inner` elements into lines of `out_extent` runs. Output line o is computed from input line (o / group) *
// group_in + o % group.
// A row of the table of a launch. Of output element x along the axis, `start[x]` is the first input element, `count[x]` the number of taps, and
// its weights begin at x * stride: `weight` for floats, `whole_weight` for bytes, in units of 2^-precision.
struct Pass {
  const void* in;
  void* out;
  const int32_t *start, *count;
  const float* weight;
  const int32_t* whole_weight;
  int64_t lines, group, group_in, in_extent, out_extent, inner, stride;
  int32_t precision;
  bool copies;
};

// Index is 32 bits wide if it can count all elements of a pass: 64-bit divisions take four times as long. Sums of bytes are integers or floats.
template <class Index>
__global__ void __launch_bounds__(kThreads)
    pass_kernel(const __grid_constant__ TableRows<Pass> passes, int64_t count, DType in, DType out, bool in_integers) {
  for (int64_t n = blockIdx.y; n < count; n += gridDim.y) {
    const Pass pass = passes[n];
    const auto inner = static_cast<Index>(pass.inner), line = static_cast<Index>(pass.out_extent) * inner, group = static_cast<Index>(pass.group);
    const int64_t total = pass.lines * pass.out_extent * pass.inner;
    for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < total; e += int64_t{gridDim.x} * kThreads) {
      // e counts [line][output][inner]; find the three indices, and where the line begins in the input.
      const Index place = static_cast<Index>(e), o = place / line, rest = place - o * line, x = rest / inner, c = rest - x * inner;
      const Index turn = group == 1 ? o : o / group;
      const int64_t source = int64_t{turn} * pass.group_in + (o - turn * group);
      const int64_t first = (source * pass.in_extent + pass.start[x]) * pass.inner + c;
      const int32_t taps = pass.count[x];
      // One tap of weight 1: no arithmetic, so any type is copied exactly.
      if (pass.copies && in == out) {
        copy_element(pass.in, first, pass.out, e, in);
      } else if (in_integers) {
        const auto* const from = static_cast<const uint8_t*>(pass.in) + first;
        int32_t sum = pass.precision > 0 ? 1 << (pass.precision - 1) : 0;
        for (int32_t k = 0; k < taps; ++k) sum += pass.whole_weight[x * pass.stride + k] * from[k * pass.inner];
        static_cast<uint8_t*>(pass.out)[e] = rounded_level(sum, pass.precision);
      } else {
        float sum = 0.0f;
        for (int32_t k = 0; k < taps; ++k) sum += pass.weight[x * pass.stride + k] * load_element(pass.in, in, first + k * pass.inner);
        store_element(sum, pass.out, out, e);
      }
    }
  }
}

// The tables of an axis in one device buffer; pointers into it are offsets until it is uploaded.
// `numbers` has the starts of an axis and then its counts; weights and whole weights are indexed alike.
struct Tables {
  std::vector<int32_t> numbers;
  std::vector<float> weights;
  std::vector<int32_t> whole_weights;
};

// Whether an axis is more than the identity.
bool changes(const AxisTable& table) {
  if (table.most != 1 || table.axis.in != table.axis.out) return true;
  for (int64_t i = 0; i < table.axis.out; ++i)
    if (table.start[i] != i) return true;
  return false;
}

bool is_image(const ResampleJob& job) { return job.axes[0].in == 1 && job.axes[0].out == 1; }

// The tables of the previous sample, reused if they are the same: in a batch of equal images they are computed and uploaded once.
struct Placed {
  Axis axis{};
  int64_t shift = 0, numbers = -1, weights = 0;
};

// A pass whose pointers into buffers are still offsets: the buffers are allocated when all sizes are known.
struct Planned {
  Pass pass;
  int64_t numbers, weights;
  int64_t from, to;  // in bytes from the start of the intermediate buffer; -1 for the job's own memory
};

// The passes of a batch, which are planned for one job after another and launched together.
class Passes {
 public:
  // Bytes of images stay bytes between the passes, because both rules round there. Everything else becomes float, unless pixels are only copied.
  Passes(DType in, DType out, bool images, bool only_copies)
      : in_(in), out_(out), in_integers_(images && in == DType::uint8 && out == DType::uint8),
        between_(only_copies || in_integers_ ? in : DType::float32) {}

  // Plans a pass for each axis that changes.
  void add(const ResampleJob& job) {
    const AxisTable* table[3];
    for (int a = 0; a < 3; ++a) table[a] = &axis_table(a, job.axes[a]);
    // The order matters for bytes, which are rounded in between.
    const bool swapped = is_image(job) && changes(*table[1]) && changes(*table[2]) && height_first(*table[1], *table[2]);
    // Axes: depth 0, height 1, width 2.
    const int order[3] = {swapped ? 1 : 2, swapped ? 2 : 1, 0};
    int last = 0;  // the last pass that changes something, or the first if none does
    for (int n = 0; n < 3; ++n)
      if (changes(*table[order[n]])) last = n;
    const AxisSpan read(*table[1]);  // the rows that the height pass reads
    const int64_t rows = read.last - read.first;
    int64_t from = -1, extents[3] = {job.axes[0].in, job.axes[1].in, job.axes[2].in};
    bool cropped = false;
    for (int n = 0; n <= last; ++n) {
      const int a = order[n];
      const AxisTable& t = *table[a];
      // Only the last pass has to run even if it changes nothing: it writes the output.
      if (!changes(t) && n != last) continue;
      Planned p = plan(job, t, a, extents);
      int64_t shift = 0;
      // The width pass skips rows that the height pass does not read; the height's starts are shifted accordingly.
      if (n == 0 && a == 2 && last > 0 && rows < extents[1]) {
        p.pass.lines = p.pass.lines / extents[1] * rows;
        p.pass.group = rows;
        p.pass.group_in = extents[1];
        p.pass.in = static_cast<const char*>(job.in) + read.first * extents[2] * p.pass.inner * item_bytes(in_);
        extents[1] = rows;
        cropped = true;
      } else if (a == 1 && cropped) {
        shift = read.first;
      }
      const Placed& there = place(a, t, shift);
      p.numbers = there.numbers;
      p.weights = there.weights;
      p.from = from;
      p.to = -1;
      if (n != last) {
        // The next pass reads what this one writes.
        p.to = from = memory_;
        // Intermediate results start at multiples of 256 bytes, like allocations.
        memory_ += (p.pass.lines * p.pass.out_extent * p.pass.inner * item_bytes(between_) + 255) / 256 * 256;
      }
      rounds_[n].push_back(p);
      extents[a] = t.axis.out;
    }
  }

  void launch(const char* op) {
    const CudaTable<int32_t> numbers(tables_.numbers);
    const CudaTable<float> weights(tables_.weights);
    const CudaTable<int32_t> whole_weights(tables_.whole_weights);
    const CudaBuffer buffer(memory_);
    char* const mixed = static_cast<char*>(buffer.data());
    for (auto& round : rounds_) {
      for (Planned& p : round) {
        p.pass.start = numbers.data() + p.numbers;
        p.pass.count = p.pass.start + p.pass.out_extent;
        p.pass.weight = weights.data() + p.weights;
        p.pass.whole_weight = whole_weights.data() + p.weights;
        if (p.from >= 0) p.pass.in = mixed + p.from;
        if (p.to >= 0) p.pass.out = mixed + p.to;
      }
      // Passes that read the input and those that read intermediate results, those that write the output and those that write intermediate results,
      // have different types and need separate launches.
      for (const bool from_input : {true, false})
        for (const bool to_output : {true, false}) launch_round(round, from_input, to_output);
    }
    check_launch(op);
  }

 private:
  // A pass along axis a of a job whose axes have these extents by now, from the job's input to its output.
  Planned plan(const ResampleJob& job, const AxisTable& t, int a, const int64_t (&extents)[3]) const {
    Planned p{};
    p.pass.in = job.in;
    p.pass.out = job.out;
    p.pass.in_extent = extents[a];
    p.pass.out_extent = t.axis.out;
    p.pass.stride = t.stride;
    p.pass.precision = t.precision;
    p.pass.copies = t.most == 1;
    // Lines along the axis: all axes in front of it count them, those after it are its elements.
    p.pass.lines = job.outer;
    for (int b = 0; b < a; ++b) p.pass.lines *= extents[b];
    p.pass.inner = job.channels;
    for (int b = a + 1; b < 3; ++b) p.pass.inner *= extents[b];
    p.pass.group = p.pass.group_in = 1;
    return p;
  }

  // Stores the tables of axis a with starts that are `shift` less, unless the job before has the same.
  const Placed& place(int a, const AxisTable& t, int64_t shift) {
    Placed& there = placed_[a];
    if (there.numbers < 0 || there.shift != shift || !same_axis(there.axis, t.axis)) {
      there = {t.axis, shift, static_cast<int64_t>(tables_.numbers.size()), static_cast<int64_t>(tables_.weights.size())};
      for (int64_t i = 0; i < t.axis.out; ++i) tables_.numbers.push_back(static_cast<int32_t>(t.start[i] - shift));
      tables_.numbers.insert(tables_.numbers.end(), t.count.begin(), t.count.end());
      tables_.weights.insert(tables_.weights.end(), t.weight.begin(), t.weight.end());
      for (size_t k = 0; k < t.weight16.size(); ++k) tables_.whole_weights.push_back(t.whole_weight(static_cast<int64_t>(k)));
    }
    return there;
  }

  void launch_round(const std::vector<Planned>& round, bool from_input, bool to_output) const {
    std::vector<Pass> passes;
    int64_t most = 0;
    for (const Planned& p : round) {
      if ((p.from < 0) != from_input || (p.to < 0) != to_output) continue;
      most = std::max(most, p.pass.lines * p.pass.out_extent * p.pass.inner);
      passes.push_back(p.pass);
    }
    if (passes.empty() || most == 0) return;
    const KernelTable<Pass> table(passes);
    const auto count = static_cast<int64_t>(passes.size());
    const dim3 grid = batch_grid(most, kThreads, count, 1 << 20);
    // Numbers of 32 bits where they suffice, because a 64-bit division takes many instructions.
    const auto kernel = most < int64_t{1} << 31 ? pass_kernel<uint32_t> : pass_kernel<int64_t>;
    kernel<<<grid, kThreads, 0, current_cuda_stream()>>>(table.rows(), count, from_input ? in_ : between_, to_output ? out_ : between_, in_integers_);
  }

  DType in_, out_;
  bool in_integers_;
  DType between_;
  Tables tables_;
  // A round waits for the one before by the order of the stream; its passes, of all samples, are independent of each other.
  std::vector<Planned> rounds_[3];  // usually width, height, depth
  int64_t memory_ = 0;              // of intermediate results
  Placed placed_[3];
};

// The shared memory of a block of byte_kernel or float_kernel: four of them fit in a multiprocessor, or two where no tile needs less.
constexpr int64_t kSharedBytes = 56 << 10, kMaxSharedBytes = 96 << 10;

// Chooses the tile: as large as fits, but no larger than the image needs. Returns the shared memory of a block, 0 if no tile fits.
int64_t choose_tile(ByteSample& s, const ByteTable& vertical, const ByteTable& horizontal, int channels, int parts) {
  for (const int64_t limit : {kSharedBytes, kMaxSharedBytes}) {
    // High tiles first: rows next to each other share most of their mixed source rows.
    for (int rows = 2; rows >= 0; --rows) {
      for (int columns = 3; columns >= 0; --columns) {
        // A tile twice as wide pays only if the image is wider than the narrower one.
        const bool is_needed = columns == 0 || s.horizontal.out > 4 << columns;
        if (!is_needed || horizontal.words[columns] > resample_gpu::kStagePitch) continue;
        const int64_t bytes = s.cut(3 + columns, 8 << rows, vertical.words[rows], channels, parts);
        if (bytes <= limit && s.tiles < 1 << 30) return bytes;
      }
    }
  }
  return 0;
}

template <int kChannels, bool kFine>
void launch_tiles(const char* op, const std::vector<ByteSample>& samples, int64_t bytes, const int32_t* numbers, bool normalized, DType type) {
  using resample_gpu::byte_kernel;
  if (bytes > 48 << 10)
    check_cuda(cudaFuncSetAttribute(byte_kernel<kChannels, kFine>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMaxSharedBytes)),
               op);
  int64_t tiles = 0, planes = 0;
  for (const ByteSample& s : samples) {
    tiles = std::max<int64_t>(tiles, s.tiles);
    planes = std::max(planes, s.planes);
  }
  const KernelTable<ByteSample> table(samples);
  const auto count = static_cast<int64_t>(samples.size());
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(std::min<int64_t>(count, 65535)),
                  static_cast<unsigned>(std::min<int64_t>(planes, 65535)));
  byte_kernel<kChannels, kFine>
      <<<grid, kThreads, static_cast<size_t>(bytes), current_cuda_stream()>>>(table.rows(), count, numbers, normalized, type);
}

// As above. Returns 0 if no tile fits.
int64_t choose_tile(FloatSample& s, const FloatTable& vertical) {
  for (const int64_t limit : {kSharedBytes, kMaxSharedBytes}) {
    for (int rows = 2; rows >= 0; --rows) {
      for (int columns = 3; columns >= 0; --columns) {
        if (columns > 0 && s.horizontal.out <= 4 << columns) continue;
        const int64_t bytes = s.cut(8 << columns, 8 << rows, vertical.elements[rows]);
        if (bytes <= limit && s.tiles < 1 << 30) return bytes;
      }
    }
  }
  return 0;
}

// Images whose sums are floats; returns the jobs that no tile holds.
// A job goes to the tiles if its height and width are resampled and the rows of a tile follow each other; the passes below take all others.
std::vector<ResampleJob> launch_float_tiles(const char* op, const std::vector<ResampleJob>& jobs) {
  using resample_gpu::float_kernel;
  const DType in = jobs[0].in_type, out = jobs[0].out_type;
  if (!resample_gpu::is_normal_type(out) || !(in == DType::uint8 || in == DType::float16 || in == DType::float32)) return jobs;
  std::vector<ResampleJob> others;
  std::vector<FloatSample> samples;
  std::vector<int32_t> numbers;
  std::vector<float> weights;
  // Samples of one shape share tables.
  Axis placed[2] = {};
  FloatTable tables[2];
  int64_t most_bytes = 0, tiles = 0, planes = 0;
  for (const ResampleJob& job : jobs) {
    const AxisTable &v = axis_table(1, job.axes[1]), &h = axis_table(2, job.axes[2]);
    // Nearest pixels are only moved.
    if (!is_image(job) || (v.most <= 1 && h.most <= 1) || height_first(v, h) || std::max(h.axis.in, h.axis.out) * job.channels > INT32_MAX) {
      others.push_back(job);
      continue;
    }
    const AxisTable* const axes[2] = {&v, &h};
    for (int a = 0; a < 2; ++a) {
      // The images of a batch usually become equally large: their tables are stored once.
      if (tables[a].axis.most > 0 && same_axis(placed[a], axes[a]->axis)) continue;
      placed[a] = axes[a]->axis;
      tables[a].append(*axes[a], numbers, weights);
    }
    FloatSample s{job.in, job.out, job.outer, tables[0].axis, tables[1].axis, static_cast<int32_t>(job.channels)};
    // A tile reads consecutive rows, so the starts must not decrease.
    const int64_t bytes = tables[0].in_order ? choose_tile(s, tables[0]) : 0;
    if (bytes == 0) {
      others.push_back(job);
      continue;
    }
    samples.push_back(s);
    most_bytes = std::max(most_bytes, bytes);
    tiles = std::max<int64_t>(tiles, s.tiles);
    planes = std::max(planes, s.planes);
  }
  // Tables are uploaded only if a kernel reads them.
  if (samples.empty()) return others;
  const CudaTable<int32_t> number_table(numbers);
  const CudaTable<float> weight_table(weights);
  const KernelTable<FloatSample> table(samples);
  const auto count = static_cast<int64_t>(samples.size());
  const auto kernel = in == DType::uint8 ? float_kernel<uint8_t> : in == DType::float16 ? float_kernel<Half> : float_kernel<float>;
  if (most_bytes > 48 << 10)
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMaxSharedBytes)), op);
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(std::min<int64_t>(count, 65535)),
                  static_cast<unsigned>(std::min<int64_t>(planes, 65535)));
  kernel<<<grid, kThreads, static_cast<size_t>(most_bytes), current_cuda_stream()>>>(table.rows(), count, number_table.data(), weight_table.data(),
                                                                                     out);
  check_launch(op);
  return others;
}

}  // namespace

std::vector<size_t> launch_byte_tiles(const char* op, const std::vector<ResampleJob>& jobs, const resample_gpu::Normalization* normalizations,
                                      DType type) {
  constexpr int kMaxChannels = 4, kKinds = 2 * kMaxChannels;  // by the channels, with one part of the weights or two
  // The samples of one kernel, and the shared memory that the largest of their tiles needs.
  struct Kind {
    std::vector<ByteSample> samples;
    int64_t bytes = 0;
  };
  std::vector<size_t> others;
  Kind kinds[kKinds];
  // Places in the numbers of the last tables: samples of one shape share them.
  std::vector<int32_t> numbers;
  Axis placed[2] = {};
  ByteTable tables[2];
  for (size_t k = 0; k < jobs.size(); ++k) {
    const ResampleJob& job = jobs[k];
    const AxisTable &v = axis_table(1, job.axes[1]), &h = axis_table(2, job.axes[2]);
    const int64_t channels = job.channels, row = h.axis.in * channels;
    // Tiles begin with the width. Nearest pixels are only moved.
    if (!is_image(job) || channels < 1 || channels > kMaxChannels || (v.most == 1 && h.most == 1) || height_first(v, h) || row > INT32_MAX) {
      others.push_back(k);
      continue;
    }
    const AxisTable* const axes[2] = {&v, &h};
    for (int a = 0; a < 2; ++a) {
      if (tables[a].steps > 0 && same_axis(placed[a], axes[a]->axis)) continue;
      placed[a] = axes[a]->axis;
      tables[a].append(*axes[a], numbers);
    }
    ByteSample s{};
    s.in = static_cast<const uint8_t*>(job.in);
    s.out = job.out;
    s.planes = job.outer;
    s.in_pitch = row;
    s.in_plane = row * v.axis.in;
    for (int a = 0; a < 2; ++a)
      (a == 0 ? s.vertical : s.horizontal) = {
          tables[a].starts, tables[a].weights, static_cast<int32_t>(axes[a]->axis.in), static_cast<int32_t>(axes[a]->axis.out),
          tables[a].steps,  axes[a]->precision};
    const int parts = v.fine() ? 2 : 1;
    const int64_t bytes = choose_tile(s, tables[0], tables[1], static_cast<int>(channels), parts);
    if (bytes == 0) {
      others.push_back(k);
      continue;
    }
    if (normalizations != nullptr) s.normalization = normalizations[k];
    // One launch for each kernel that the batch needs: channels and parts are template parameters.
    Kind& kind = kinds[2 * (channels - 1) + parts - 1];
    kind.samples.push_back(s);
    kind.bytes = std::max(kind.bytes, bytes);
  }
  if (others.size() == jobs.size()) return others;
  const CudaTable<int32_t> table(numbers);
  for (int n = 0; n < kKinds; ++n) {
    if (kinds[n].samples.empty()) continue;
    constexpr decltype(&launch_tiles<1, false>) kLaunch[kKinds] = {launch_tiles<1, false>, launch_tiles<1, true>,  launch_tiles<2, false>,
                                                                   launch_tiles<2, true>,  launch_tiles<3, false>, launch_tiles<3, true>,
                                                                   launch_tiles<4, false>, launch_tiles<4, true>};
    kLaunch[n](op, kinds[n].samples, kinds[n].bytes, table.data(), normalizations != nullptr, type);
  }
  check_launch(op);
  return others;
}

void launch_by_torch_rule(const char* op, const std::vector<ResampleJob>& all_jobs) {
  if (all_jobs.empty()) return;
  std::vector<ResampleJob> jobs;
  if (all_jobs[0].in_type == DType::uint8 && all_jobs[0].out_type == DType::uint8) {
    for (const size_t k : launch_byte_tiles(op, all_jobs, nullptr, DType::uint8)) jobs.push_back(all_jobs[k]);
    if (jobs.empty()) return;
  } else {
    jobs = launch_float_tiles(op, all_jobs);
    if (jobs.empty()) return;
  }
  const DType in = jobs[0].in_type, out = jobs[0].out_type;
  const auto volumes = std::stable_partition(jobs.begin(), jobs.end(), is_image);
  for (const bool images : {true, false}) {
    const std::vector<ResampleJob> chosen(images ? jobs.begin() : volumes, images ? volumes : jobs.end());
    if (chosen.empty()) continue;
    bool only_copies = in == out;
    for (const ResampleJob& job : chosen)
      for (int a = 0; a < 3; ++a) only_copies = only_copies && axis_table(a, job.axes[a]).most <= 1;
    Passes passes(in, out, images, only_copies);
    for (const ResampleJob& job : chosen) passes.add(job);
    passes.launch(op);
  }
}

}  // namespace ndd
