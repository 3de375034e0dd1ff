// SPDX-License-Identifier: Apache-2.0
// What a file is, by its first bytes: so that a file of another kind is called what it is, and not damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ndd {

constexpr size_t kKindBytes = 264;  // that are looked at

// Such as "a WAV file"; empty for what is not known.
std::string file_kind(const uint8_t* data, size_t size);

// ": it is a WAV file", or nothing.
std::string other_kind(const uint8_t* data, size_t size);

}  // namespace ndd
