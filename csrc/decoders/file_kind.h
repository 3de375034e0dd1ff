// SPDX-License-Identifier: Apache-2.0
// The kind of a file by its first bytes, for errors: a file of another kind is named instead of being called damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ndd {

constexpr size_t kKindBytes = 264;  // bytes that are examined

// Returns, for example, "a WAV file"; empty for an unknown kind.
std::string file_kind(const uint8_t* data, size_t size);

// Returns, for example, ": it is a WAV file", or an empty string.
std::string other_kind(const uint8_t* data, size_t size);

}  // namespace ndd
