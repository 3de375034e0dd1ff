// SPDX-License-Identifier: Apache-2.0
// Threads that the system may refuse: the refusal is kept for a warning, and the work for the threads that exist.
#include "ndd/stream/threads.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

#include "ndd/python_interface.h"

namespace ndd {
namespace {

// Running and wanted threads when the system first refused one: (running << 32) + wanted. 0 if it never has.
std::atomic<uint64_t> refused{0};

}  // namespace

std::optional<std::thread> ThreadStarter::start(std::function<void()> work, int running, int wanted) {
  const auto now = std::chrono::steady_clock::now();
  if (now < not_before_) return std::nullopt;
  try {
    // Passed as a std::function: std::thread of a lambda would export a symbol with our namespace in its name.
    return std::thread(std::move(work));
  } catch (const std::exception&) {  // std::system_error, or std::bad_alloc
    not_before_ = now + std::chrono::seconds(1);
    uint64_t none = 0;
    refused.compare_exchange_strong(none, static_cast<uint64_t>(running) << 32 | static_cast<uint32_t>(wanted));
    return std::nullopt;
  }
}

}  // namespace ndd

// torch_ndd/_core/process/workers.py checks this after every wait.
NDD_EXPORT(keep, const std::atomic<uint64_t>*, ndd_refused_threads, ()) { return &ndd::refused; }
