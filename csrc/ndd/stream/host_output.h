// SPDX-License-Identifier: Apache-2.0
// Outputs of a few numbers, such as crop windows. They are computed on the host even when they go to a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndd/stream/stream.h"

namespace ndd {

// Declared here as well as in cuda.h, which would pull CUDA's headers into C++ files.
void upload(void* to, const void* from, size_t bytes, const char* what);

// Runs work(i, data) for i in [0, tasks), where `data` is the start of the output. `inputs` are kept alive until the work has finished.
template <class T, class Work>
static void compute_on_host(const std::string& op, int64_t tasks, double nanoseconds, const std::vector<Tensor>& inputs, const Tensor& output,
                            Work work) {
#ifdef NDD_CUDA
  if (output.is_cuda()) {
    if (output.numel() == 0) return;
    std::vector<T> values(output.numel());
    for (int64_t i = 0; i < tasks; ++i) work(i, values.data());
    upload(output.data_ptr(), values.data(), values.size() * sizeof(T), op.c_str());
    return;
  }
#endif
  launch_cpu(op, tasks, nanoseconds, inputs, [=, out = Tensor(output)](int64_t i) { work(i, static_cast<T*>(out.data_ptr())); });
}

}  // namespace ndd
