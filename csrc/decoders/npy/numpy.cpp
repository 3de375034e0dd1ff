// SPDX-License-Identifier: Apache-2.0
// The kernels of decoders.numpy.
#include "decoders/npy/npy_header.h"
#include "decoders/sample_errors.h"
#include "ndd/elementwise/convert.h"
#include "ndd/error.h"
#include "ndd/host_numbers.h"
#include "ndd/kernel.h"
#include "ndd/samples.h"
#include "ndd/slice/slice.h"
#include "ndd/stream/stream.h"

#include <cstring>
#include <vector>

namespace ndd {
namespace {

// Parses the header of a whole file and checks that the promised data follow. More may follow, such as a second array, as for np.load and readers.numpy.
NpyHeader npy_header(const Samples& files, int64_t i) {
  const auto* file = static_cast<const char*>(files.data(i));
  const int64_t size = files.volume(i);
  if (size == 0) fail("the file is empty");
  const auto [prefix, length] = parse_npy_prefix(file, size);
  if (length > size - prefix) fail("the header of the .npy file is damaged: it ends too early");
  NpyHeader header = parse_npy_header({file + prefix, static_cast<size_t>(length)});
  header.data = prefix + length;
  if (header.volume * header.item_bytes > size - header.data) {
    fail("the header promises ", header.volume * header.item_bytes, " bytes of data, but there are ", size - header.data);
  }
  return header;
}

// Fills `out` (N, 2 + axes) with the type, the number of dimensions and the extents of each array.
void npy_shapes(const Tensor& input, const MaybeTensor& input_shapes, std::string op, const Tensor& out) {
  const Samples files(input, input_shapes);
  const int64_t columns = out.size(1);
  if (columns < 2) fail(Error::Value, op, ": the table of shapes must have a type and a number of dimensions");
  int64_t* row = host_numbers<int64_t>(op, "the table of shapes", out, columns * files.size());
  for (int64_t i = 0; i < files.size(); ++i, row += columns) {
    // Errors are reported for their sample.
    for_sample(op, i, [&] {
      const NpyHeader header = npy_header(files, i);
      const auto ndim = static_cast<int64_t>(header.shape.size());
      // `out` has room for as many extents as tensors may have.
      if (ndim > columns - 2) fail("arrays with ", ndim, " dimensions are not supported");
      row[0] = static_cast<int64_t>(header.dtype);
      row[1] = ndim;
      std::copy(header.shape.begin(), header.shape.end(), row + 2);
    });
  }
}

// Converts an array in Fortran order to C order.
// The file holds the transposed array in C order, so this is a transposition with all axes reversed.
void to_c_order(const NpyHeader& header, const char* in, char* out) {
  const int ndim = static_cast<int>(header.shape.size());
  std::vector<int64_t> stored(header.shape.rbegin(), header.shape.rend());
  std::vector<int> order(header.shape.size());
  for (int d = 0; d < ndim; ++d) order[d] = ndim - 1 - d;
  Slice slice = window_slice(in, stored.data(), out, header.shape.data(), order.data(), ndim, [](int) { return 0; }, [](int) { return false; });
  slice.set_out_strides();
  run_slice_cpu(slice, nullptr, header.dtype, header.dtype);
}

// In up to three steps, each only if needed: swap bytes, transpose, convert. Buffers belong to the thread and are reused.
void decode_array(const NpyHeader& header, const char* data, void* out, DType out_dtype) {
  if (header.volume == 0) return;  // memcpy() must not get null pointers
  static thread_local std::vector<char> swapped, ordered;
  const auto bytes = static_cast<size_t>(header.volume * header.item_bytes);
  if (header.swapped) {
    swapped.assign(data, data + bytes);
    swap_bytes(swapped.data(), header.volume, header.item_bytes);
    data = swapped.data();
  }
  const bool converts = header.dtype != out_dtype || header.dtype == DType::boolean;  // any byte but 0 is true
  if (header.fortran_order && header.shape.size() > 1 && header.volume > 0) {
    if (converts) ordered.resize(bytes);
    char* target = converts ? ordered.data() : static_cast<char*>(out);
    to_c_order(header, data, target);
    if (!converts) return;
    data = target;
  }
  if (!converts) std::memcpy(out, data, bytes);
  else convert_run(data, header.dtype == DType::boolean ? DType::uint8 : header.dtype, header.volume, out, out_dtype);
}

void decode_numpy(const Tensor& input, const MaybeTensor& input_shapes, std::string op, const Tensor& out, const MaybeTensor& out_shapes) {
  const Samples files(input, input_shapes), arrays(out, out_shapes);
  if (arrays.size() != files.size()) fail(Error::Value, op, ": the output must have an array for each of ", files.size(), " files");
  launch_cpu(op, files.size(), 1000 + 0.3 * arrays.mean_volume(), {input, out}, [=](int64_t i) {
    for_sample(op, i, [&] {
      const NpyHeader header = npy_header(files, i);
      const int64_t* shape = arrays.shape(i);
      if (static_cast<int64_t>(header.shape.size()) != arrays.ndim() || !std::equal(header.shape.begin(), header.shape.end(), shape)) {
        fail("the file changed after the call");
      }
      decode_array(header, static_cast<const char*>(files.data(i)) + header.data, arrays.data(i), arrays.dtype());
    });
  });
}

}  // namespace

NDD_KERNEL(npy_shapes, CPU, npy_shapes)
NDD_KERNEL(decoders_numpy, CPU, decode_numpy)

}  // namespace ndd
