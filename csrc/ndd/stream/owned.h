// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ndd {

// The handle of the latest call of this thread, until Python owns it. One that an interruption came before is released at the next call.
extern thread_local void* unowned_call;

// Forgets the plan (repeat.cpp) that an interruption has left without its kernel.
void forget_plan();

}  // namespace ndd
