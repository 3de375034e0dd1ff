// SPDX-License-Identifier: Apache-2.0
// The type of per-sample work that kernels hand to the CPU stream.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace ndd {

// A function object that computes sample i; several threads may call it concurrently. It is a move-only std::function without <functional>, which
// takes a quarter of the compile time of the shortest kernels.
class Work {
 public:
  Work() = default;
  template <class Given, class F = std::decay_t<Given>, std::enable_if_t<!std::is_same_v<F, Work>, int> = 0>
  Work(Given&& function)
      : function_(new F(std::forward<Given>(function))), call_([](void* f, int64_t i) { (*static_cast<F*>(f))(i); }),
        destroy_([](void* f) { delete static_cast<F*>(f); }) {}
  Work(Work&& other) noexcept : function_(std::exchange(other.function_, nullptr)), call_(other.call_), destroy_(other.destroy_) {}
  Work& operator=(Work&& other) noexcept {
    std::swap(function_, other.function_);
    std::swap(call_, other.call_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~Work() {
    if (function_ != nullptr) destroy_(function_);
  }

  void operator()(int64_t i) const { call_(function_, i); }

 private:
  void* function_ = nullptr;
  void (*call_)(void*, int64_t) = nullptr;
  void (*destroy_)(void*) = nullptr;
};

}  // namespace ndd
