// SPDX-License-Identifier: Apache-2.0
// Errors of decoders name the operator and the sample; Python adds the file of the sample (torch_ndd/_core/work/pending.py).
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <string>

#include "ndd/error.h"

namespace ndd {

// Runs `work`, and adds the operator and the sample to its exceptions.
template <class F>
void for_sample(const std::string& op, int64_t i, F work) {
  const auto named = [&](const std::exception& error) { return op + ": sample " + std::to_string(i) + ": " + error.what(); };
  try {
    work();
  } catch (const Error& error) {
    fail(error.kind(), named(error));
    // Kept apart so that Python raises MemoryError.
  } catch (const std::bad_alloc& error) {
    fail(Error::Memory, named(error));
  } catch (const std::exception& error) {
    fail(named(error));
  }
}

}  // namespace ndd
