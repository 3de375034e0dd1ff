// SPDX-License-Identifier: Apache-2.0
// The kernels of io.file.read: files whose paths are data.
#include <exception>
#include <string>

#include "ndd/error.h"
#include "ndd/host_numbers.h"
#include "ndd/kernel.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"
#include "readers/open_files.h"

namespace ndd {
namespace {

// Calls work(file) with file `i` of a batch of paths; errors name the operator, the sample and the path.
template <class F>
void with_file(const std::string& op, const Samples& paths, int64_t i, F work) {
  std::string path(static_cast<const char*>(paths.data(i)), static_cast<size_t>(paths.volume(i)));
  try {
    // The system would open the file whose name ends at the zero byte.
    if (const size_t zero = path.find('\0'); zero != std::string::npos) {
      path.resize(zero);
      fail("there is a zero byte behind this in its path");
    }
    work(OpenFile(path));
  } catch (const std::exception& error) {
    fail(op, ": sample ", i, ": \"", path, "\" cannot be read: ", error.what());
  }
}

// Called when the output is allocated; read_files() on the CPU stream later checks that the size is the same.
void file_sizes(const Tensor& input, const MaybeTensor& input_shapes, std::string op, const Tensor& out) {
  const Samples paths(input, input_shapes);
  int64_t* const sizes = host_numbers<int64_t>(op, "the table of sizes", out, paths.size());
  for (int64_t i = 0; i < paths.size(); ++i) with_file(op, paths, i, [&](const OpenFile& file) { sizes[i] = file.size(); });
}

void read_files(const Tensor& input, const MaybeTensor& input_shapes, std::string op, const Tensor& out, const MaybeTensor& out_shapes) {
  const Samples paths(input, input_shapes), contents(out, out_shapes);
  if (contents.size() != paths.size() || contents.item_bytes() != 1)
    fail(Error::Value, op, ": the output must have bytes for each of ", paths.size(), " files");
  const double cost = 10'000 + 0.1 * contents.mean_volume();  // opening, and 10 GB/s from the page cache
  launch_cpu(op, paths.size(), cost, {input, out}, [=](int64_t i) {
    with_file(op, paths, i, [&](const OpenFile& file) {
      // The output was allocated for the size at the call.
      if (file.size() != contents.volume(i)) fail("its size changed after the call");
      file.read(static_cast<char*>(contents.data(i)), 0, file.size());
    });
  });
}

}  // namespace

NDD_KERNEL(file_sizes, CPU, file_sizes)
NDD_KERNEL(io_file_read, CPU, read_files)

}  // namespace ndd
