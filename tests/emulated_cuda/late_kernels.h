// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "ndd/kernel.h"

namespace ndd::late {

// Within its scope a kernel of the late device is registered. CUDA kernels of
// the library itself are not.
struct Registering {
  Registering();
  ~Registering();
};
bool takes_the_place_of(std::string_view backend);

// The kernel to register for CUDA beside a CPU kernel.
detail::Boxed* cuda_kernel(std::string_view name, detail::Boxed* kernel, const char* const* types);

// Records the name of a function, which distinguishes copies from kernels.
void note(std::string_view name, detail::Boxed* function);

// Launches a kernel on torch's current stream; false, having done nothing, if
// it has no tensors on the device, or is a copy.
bool launch(detail::Boxed* kernel, const char* const* types, uint64_t* stack, uint64_t arguments);

}  // namespace ndd::late
