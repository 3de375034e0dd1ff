// SPDX-License-Identifier: Apache-2.0
// The memory that device code may use, and checks of how it does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ndd_emulator {

// `written`: it holds values from the start.
void add_memory(const void* begin, size_t bytes, bool written);
void remove_memory(const void* begin);
// Of memory that a copy or memset of the host fills.
void host_wrote(const void* begin, size_t bytes);
bool is_device_memory(const void* begin, size_t bytes);

// Accesses are compared within a launch: those of one interval, which is what a block does between two barriers, have no order among threads, and
// those of different blocks never have.
void begin_launch();
void begin_block();
void begin_interval();
// A warp's barrier orders what its lanes do, but not what other warps do.
void begin_epoch(int warp);
// The thread that runs, with its stack; -1 outside of device code.
void set_thread(int thread, const void* stack, size_t stack_bytes);

// Between these two the calling thread of the host is in a kernel's launcher. The second returns what that did wrong, or null.
void begin_call();
const char* end_call();

}  // namespace ndd_emulator
