// SPDX-License-Identifier: Apache-2.0
// lookup_table: the default is stored as an extra entry after the table, so a key outside the table costs no branch.
#include <algorithm>
#include <memory>
#include <vector>

#include "ndd/args.h"
#include "ndd/elementwise/lut.h"
#include "ndd/elementwise/saturate.h"
#include "ndd/elementwise/streaming.h"
#include "ndd/kernel.h"
#ifdef __CUDACC__
#include "ndd/cuda.h"
#include "ndd/elementwise/batch_tiles.cuh"
#include "ndd/elementwise/tiles.cuh"
#include "ndd/elementwise/vectors.cuh"
#endif

namespace ndd::lookup_table_kernels {
namespace {

// A VGA image of uint8 takes 0.1 ms to float32, 30 us to uint8; other keys take longer.
constexpr double kNanosecondsPerElement = 0.2;
constexpr int64_t kRow = 1024;  // of 4-byte entries a VGA image takes 93 us, in rows of 4096 107, of 512 300

// Whether elements of the type can be keys: all integers.
template <class T>
inline constexpr bool is_key = !is_floating<T>;

// The index of a key in a table of `size` entries. Keys outside of it get the default, which is stored behind the last entry: no branch is needed.
template <class In>
NDD_HD int32_t entry_of(In key, int32_t size) {
  if constexpr (std::is_signed_v<In>) {
    if (key < 0) return size;
  }
  return static_cast<uint64_t>(key) < static_cast<uint64_t>(size) ? static_cast<int32_t>(key) : size;
}

struct Entries {
  std::vector<char> bytes;  // of the output's type; the last one is the default
  int32_t size;
  DType dtype;
};

std::shared_ptr<const Entries> entries_of(const Tensor& values, double default_value, DType dtype, bool of_bytes) {
  const Args<float> table_values(values);
  const int64_t size = table_values.cols();
  auto entries = std::make_shared<Entries>();
  // Bytes get a table of all 256 levels, so loops need no comparison.
  entries->size = static_cast<int32_t>(of_bytes ? std::max<int64_t>(size, kLevels) : size);
  entries->dtype = dtype;
  entries->bytes.resize((entries->size + 1) * item_bytes(dtype));
  for_dtype(dtype, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    Out* to = reinterpret_cast<Out*>(entries->bytes.data());
    std::fill(to, to + entries->size + 1, saturate<Out>(static_cast<float>(default_value)));
    for (int64_t k = 0; k < size; ++k) to[k] = saturate<Out>(table_values(0, k));
  });
  return entries;
}

// Bytes have vectorized loops over tables of 256 entries; other keys are compared with the size of the table.
void look_up_run(const void* from, DType in, int64_t n, const Entries& entries, void* to) {
  for_bytes(item_bytes(entries.dtype), [&](auto out_tag) {
    using Out = typename decltype(out_tag)::type;
    const Out* table = reinterpret_cast<const Out*>(entries.bytes.data());
    Out* dst = static_cast<Out*>(to);
    if (in == DType::uint8) {
      const uint8_t* src = static_cast<const uint8_t*>(from);
      if constexpr (sizeof(Out) == 1) return map_levels(src, n, 1, table, dst);
      else return map_levels_to(src, n, table, dst);
    }
    for_dtype(in, [&](auto in_tag) {
      using In = typename decltype(in_tag)::type;
      if constexpr (is_key<In>)
        for (int64_t i = 0; i < n; ++i) dst[i] = table[entry_of(static_cast<const In*>(from)[i], entries.size)];
    });
  });
}

// The same, with stores that bypass the caches.
void stream_run(const char* from, DType in, int64_t n, const Entries& entries, char* to) {
  const int64_t bytes = item_bytes(entries.dtype);
  alignas(64) char row[kRow * 8];
  for (int64_t begin = 0; begin < n; begin += kRow) {
    const int64_t count = std::min(kRow, n - begin);
    look_up_run(from + begin * item_bytes(in), in, count, entries, row);
    stream_copy(to + begin * bytes, row, count * bytes);
  }
  stream_fence();
}

#ifdef __CUDACC__
constexpr int64_t kSharedBytes = 8192;  // of a table: 2047 entries of float32
constexpr int kResident = 4;  // blocks of a multiprocessor, as in pointwise.h

// Small tables are copied to shared memory, where the 32 lanes of a warp find their entries in 2 to 4 wavefronts; of the first-level cache each would take
// one for every line of the table.
__global__ void __launch_bounds__(tiles::kThreads, kResident)
    look_up_gpu(const void* from, DType in, int64_t n, const __grid_constant__ TableRows<char> entries, int32_t size, int64_t bytes, void* to) {
  __shared__ uint64_t shared[kSharedBytes / sizeof(uint64_t)];
  const char* const table = entries.data();
  const int64_t table_bytes = (int64_t{size} + 1) * bytes;
  const bool small = table_bytes <= kSharedBytes;
  // All threads copy a part; the barrier is outside of any condition.
  for (int64_t k = threadIdx.x; small && k < table_bytes; k += tiles::kThreads) reinterpret_cast<char*>(shared)[k] = table[k];
  __syncthreads();
  if (in == DType::uint8 && bytes == 1 && small) {  // the table has all levels
    const auto* const levels = reinterpret_cast<const uint8_t*>(shared);
    return map_vectors(static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to), n, blockIdx.x, gridDim.x,
                       [&](uint8_t key) { return levels[key]; });
  }
  tiles::for_each<2>(to, bytes, n, [&](auto at) {
    constexpr int rows = decltype(at)::kRows, width = decltype(at)::kElements;
    // First the places in the table, in the type of the keys, then the entries in the type of the output.
    int32_t entry[rows][width];
    tiles::load(from, in, at, entry, [&](auto key) {
      if constexpr (is_key<decltype(key)>) return entry_of(key, size);
      else return size;
    });
    for_bytes(bytes, [&](auto tag) {
      using Out = typename decltype(tag)::type;
      const auto* const global = reinterpret_cast<const Out*>(table);
      const auto* const copied = reinterpret_cast<const Out*>(shared);
      Out found[rows][width];
#pragma unroll
      for (int g = 0; g < rows; ++g)
#pragma unroll
        for (int k = 0; k < width; ++k) found[g][k] = small ? copied[entry[g][k]] : global[entry[g][k]];
      tiles::store_of<Out>(found, to, at, [](auto, Out value) { return value; });
    });
  });
}
#endif

// values[k] is the entry of key k.
void lookup_table(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& values, double default_value, const Tensor& output,
                  const MaybeTensor& output_shapes) {
  const Samples in(input, input_shapes), out(output, output_shapes);
  check_outputs("lookup_table", out, in);
  const auto entries = entries_of(values, default_value, out.dtype(), in.dtype() == DType::uint8);
#ifdef __CUDACC__
  if (input.is_cuda()) {
    // A packed buffer may be longer than its samples.
    const int64_t n = std::min(input.numel(), output.numel());
    if (n == 0) return;
    const unsigned blocks = resident_blocks(batch_tiles(n, tiles::elements<2>, 1), kResident);
    const KernelTable<char> table(entries->bytes);
    look_up_gpu<<<blocks, tiles::kThreads, 0, current_cuda_stream()>>>(input.data_ptr(), in.dtype(), n, table.rows(), entries->size, out.item_bytes(),
                                                                       output.data_ptr());
    return check_launch("lookup_table");
  }
#endif
  const bool streamed = out.item_bytes() > 1 && exceeds_caches(output.numel() * out.item_bytes());
  launch_cpu("lookup_table", in.size(), kNanosecondsPerElement * in.mean_volume(), {}, [=](int64_t i) {
    const char* from = static_cast<const char*>(in.data(i));
    if (streamed) stream_run(from, in.dtype(), in.volume(i), *entries, static_cast<char*>(out.data(i)));
    else look_up_run(from, in.dtype(), in.volume(i), *entries, out.data(i));
  });
}

}  // namespace
}  // namespace ndd::lookup_table_kernels
NDD_KERNELS(lookup_table, ndd::lookup_table_kernels::lookup_table)
