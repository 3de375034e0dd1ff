// SPDX-License-Identifier: Apache-2.0
// Gives one loaded library another meaning of a symbol that it imports; no other library in the process notices.
#pragma once

namespace ndd {

// `address_in_library` is any function or variable of the library. False where the library does not import the symbol.
bool redirect_symbol(const void* address_in_library, const char* symbol, void* replacement);

}  // namespace ndd
