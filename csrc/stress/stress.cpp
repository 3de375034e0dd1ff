// SPDX-License-Identifier: Apache-2.0
// The program links the scheduler alone. A run that makes no progress for a while is ended with a message by the thread that watches it, because
// a deadlock would otherwise look like a slow machine.
#include "stress/stress.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "ndd/tensor.h"

// Replaces ndd/tensor.cpp, which needs torch: no tensors are used here.
ndd::Tensor::~Tensor() = default;

namespace ndd::stress {

std::function<std::string()> describe;
std::atomic<uint64_t> progress{0};

void give_up(std::string_view what) {
  std::fprintf(stderr, "stress: %.*s\n", static_cast<int>(what.size()), what.data());
  std::fflush(stderr);
  // In a thread of its own, because the lock may be what hangs.
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    std::fprintf(stderr, "stress: the lock is not released\n");
    std::abort();
  }).detach();
  if (describe) std::fprintf(stderr, "stress: %s\n", describe().c_str());
  std::abort();
}

namespace {

// Looks at `progress` from a thread of its own.
void watch(double limit) {
  std::thread([limit] {
    uint64_t seen = ~0ull;
    for (Clock::time_point since = Clock::now();;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      if (const uint64_t now = progress.load(); now != seen) {
        seen = now;
        since = Clock::now();
      } else if (Clock::now() - since > seconds(limit)) {
        give_up("a hang: nothing happens");
      }
    }
  }).detach();
}

const char* kUsage =
    "stress check --threads N --seed K --seconds S [--runs R]: random programs, with the seeds K, K + 1, ...\n"
    "stress speed --threads N --seconds S --links L [--microseconds A,B,...]: how many chunks are done in a second, of operations of 256 samples of\n"
    "  which each reads the one before, and how large a part of the time the threads work for them\n"
    "stress wake --seconds S: how long it takes to wake a thread\n"
    "  --watchdog S: gives up when nothing happens for so long\n";

// Numbers separated by commas.
std::vector<double> numbers(const std::string& text) {
  std::vector<double> found;
  for (size_t at = 0; at < text.size(); at = text.find(',', at) == std::string::npos ? text.size() : text.find(',', at) + 1) {
    found.push_back(std::strtod(text.c_str() + at, nullptr));
  }
  return found;
}

int run(int count, char** arguments) {
  std::map<std::string, std::string> options{{"--threads", "2"}, {"--seed", "1"},      {"--seconds", "1"},     {"--runs", "1"},
                                             {"--links", "1"},   {"--watchdog", "30"}, {"--microseconds", "0"}};
  const std::string mode = count > 1 ? arguments[1] : "";
  // Options come in pairs behind the mode.
  bool wrong = count % 2 != 0;
  for (int k = 2; k + 1 < count; k += 2) {
    wrong = wrong || options.count(arguments[k]) == 0;
    options[arguments[k]] = arguments[k + 1];
  }
  if (wrong || (mode != "check" && mode != "speed" && mode != "wake")) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const int threads = std::stoi(options["--threads"]);
  const double length = std::stod(options["--seconds"]);
  watch(std::stod(options["--watchdog"]));
  if (mode == "speed") {
    speed(threads, std::stoi(options["--links"]), length, numbers(options["--microseconds"]));
  } else if (mode == "wake") {
    waking(length);
  } else {
    const uint64_t first = std::stoull(options["--seed"]);
    for (uint64_t seed = first; seed < first + std::stoull(options["--runs"]); ++seed) check(threads, seed, length);
  }
  return 0;
}

}  // namespace
}  // namespace ndd::stress

int main(int count, char** arguments) { return ndd::stress::run(count, arguments); }
