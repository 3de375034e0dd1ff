// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "late_streams.h"

namespace ndd_late {

// The streams of the process, which are never destroyed.
LateStream* add_stream(int device);
LateStream& of(cudaStream_t stream);
void finish_all();

// Whether this thread must not call a function that could wait, because a graph
// is being captured and it has not exchanged its mode. The capture is then
// invalid.
bool breaks_capture();
void invalidate_captures();

}  // namespace ndd_late
