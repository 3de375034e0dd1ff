// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "decoders/encoded_image.h"

#include <string>

namespace ndd {

// What a file is that is none of the formats we decode, by its first bytes: "a GIF image"; empty where that is unknown.
std::string name_other_format(const EncodedImage& file);

}  // namespace ndd
