// SPDX-License-Identifier: Apache-2.0
// Handles that a KeyboardInterrupt must not leak: see owned.cpp.
#pragma once

namespace ndd {

// The handle returned by this thread's latest call, until Python owns it. If an interrupt (Ctrl-C) comes in between, the next call releases it.
extern thread_local void* unowned_call;

// Discards the draft of a plan (repeat.cpp) whose kernel call never came because of an interrupt.
void forget_plan();

}  // namespace ndd
