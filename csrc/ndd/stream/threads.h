// SPDX-License-Identifier: Apache-2.0
// Starting threads that the system may refuse because a process or memory limit has been reached. The work is then left to the existing threads, or
// at least to the caller that waits for it.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

namespace ndd {

class ThreadStarter {
 public:
  // Starts a thread that runs `work`. Returns nullopt if the system refuses, and for a second after that: trying again takes longer than the work
  // would. `running` and `wanted` are numbers of threads, which Python reports in a warning, once.
  std::optional<std::thread> start(std::function<void()> work, int running, int wanted);

 private:
  std::chrono::steady_clock::time_point not_before_{};
};

}  // namespace ndd
