// SPDX-License-Identifier: Apache-2.0
// Handles that a KeyboardInterrupt must not leak: see owned.cpp.
#pragma once

namespace ndd {

// The handle returned by this thread's latest call, until Python owns it. If an interrupt (Ctrl-C) comes in between, the next call releases it.
extern thread_local void* unowned_call;

// Whether the draft of a plan (repeat.cpp) or a queue of launches (launches.cpp) waits for this thread's next kernel call.
extern thread_local bool plan_waits, launch_waits;

// Discards the draft of a plan whose kernel call never came because of an interrupt.
void forget_plan();

}  // namespace ndd
