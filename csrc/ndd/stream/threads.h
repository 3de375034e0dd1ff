// SPDX-License-Identifier: Apache-2.0
// Threads that the system may refuse: a limit of processes or of memory has been reached. What they were to do, those that there are do, and at least
// whoever waits for it.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

namespace ndd {

class ThreadStarter {
 public:
  // A thread that runs `work`; none where the system refuses one, and for a second afterwards: asking takes longer than the work would.
  // `running` threads work already, `wanted` would be right: what Python warns of, once.
  std::optional<std::thread> start(std::function<void()> work, int running, int wanted);

 private:
  std::chrono::steady_clock::time_point not_before_{};
};

}  // namespace ndd
