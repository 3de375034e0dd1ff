// SPDX-License-Identifier: Apache-2.0
// io.file.read: files whose paths are data.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "ndd/error.h"
#include "ndd/kernel.h"
#include "ndd/samples.h"
#include "ndd/stream/stream.h"

namespace ndd {
namespace {

class OpenFile {
 public:
  OpenFile(const Samples& paths, int64_t i, std::string op)
      : op_(std::move(op)), number_(i), path_(static_cast<const char*>(paths.data(i)), static_cast<size_t>(paths.volume(i))) {
    if (const size_t zero = path_.find('\0'); zero != std::string::npos) {
      path_.resize(zero);
      refuse("there is a zero byte behind this in its path");
    }
    // Without O_NONBLOCK opening a named pipe waits for a writer.
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) refuse(std::generic_category().message(errno));
    struct stat status;
    if (::fstat(descriptor_, &status) != 0) refuse(std::generic_category().message(errno));
    if (S_ISDIR(status.st_mode)) refuse("it is a folder");
    if (!S_ISREG(status.st_mode)) refuse("not a regular file");
    size_ = status.st_size;
  }

  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { close(); }

  int64_t size() const { return size_; }

  void read(char* out, int64_t length) {
    if (size_ != length) refuse("its size changed after the call");
    for (int64_t done = 0; done < length;) {
      const ssize_t got = ::pread(descriptor_, out + done, static_cast<size_t>(length - done), done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse(std::generic_category().message(errno));
      if (got == 0) refuse("it became shorter while it was read");
      done += got;
    }
  }

 private:
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  [[noreturn]] void refuse(const std::string& reason) {
    close();  // a constructor that throws has no destructor
    fail(op_, ": sample ", number_, ": \"", path_, "\" cannot be read: ", reason);
  }

  std::string op_;
  int64_t number_;
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

void file_sizes(const Tensor& input, const MaybeTensor& input_shapes, std::string op, const Tensor& out) {
  const Samples paths(input, input_shapes);
  auto* sizes = static_cast<int64_t*>(out.data_ptr());
  for (int64_t i = 0; i < paths.size(); ++i) sizes[i] = OpenFile(paths, i, op).size();
}

void read_files(const Tensor& input, const MaybeTensor& input_shapes, std::string op, const Tensor& out, const MaybeTensor& out_shapes) {
  const Samples paths(input, input_shapes), contents(out, out_shapes);
  const double cost = 10'000 + 0.1 * contents.mean_volume();  // opening, and 10 GB/s from the page cache
  launch_cpu(op, paths.size(), cost, {input, out},
             [=](int64_t i) { OpenFile(paths, i, op).read(static_cast<char*>(contents.data(i)), contents.volume(i)); });
}

}  // namespace

NDD_KERNEL(file_sizes, CPU, file_sizes)
NDD_KERNEL(io_file_read, CPU, read_files)

}  // namespace ndd
