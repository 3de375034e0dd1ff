// SPDX-License-Identifier: Apache-2.0
// Errors of decoders name the operator, the sample and its file.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <string>

#include "ndd/error.h"

namespace ndd {

// The line of `sources`, the names of the files, that belongs to sample i.
inline std::string source_of(const std::string& sources, int64_t i) {
  size_t begin = 0;
  for (; i > 0 && begin < sources.size(); --i) {
    const size_t end = sources.find('\n', begin);
    begin = end == std::string::npos ? sources.size() : end + 1;
  }
  return sources.substr(begin, sources.find('\n', begin) - begin);
}

// Runs `work` and names the operator, the sample and its file in whatever it throws.
template <class F>
void for_sample(const std::string& op, const std::string& sources, int64_t i, F work) {
  const auto named = [&](const std::exception& error) {
    const std::string source = source_of(sources, i);
    return op + ": sample " + std::to_string(i) + (source.empty() ? "" : " (" + source + ")") + ": " + error.what();
  };
  try {
    work();
  } catch (const Error& error) {
    throw Error(error.kind(), named(error));
  } catch (const std::bad_alloc& error) {
    throw Error(Error::Memory, named(error));
  } catch (const std::exception& error) {
    throw Error(Error::Runtime, named(error));
  }
}

}  // namespace ndd
