// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "ndd/kernel.h"

namespace ndd::late {

// The kernel to register for CUDA beside a CPU kernel.
detail::Boxed* cuda_kernel(std::string_view name, detail::Boxed* kernel, const char* const* types);

// Launches a kernel on torch's current stream; false, having done nothing, if
// it has no tensors on the device.
bool launch(detail::Boxed* kernel, const char* const* types, uint64_t* stack, uint64_t arguments);

}  // namespace ndd::late
