// SPDX-License-Identifier: Apache-2.0
// Redirects a symbol that one loaded library imports, without effect on other libraries of the process.
#pragma once

namespace ndd {

// `address_in_library` is any function or variable of the library. Returns false if the library does not import the symbol.
bool redirect_symbol(const void* address_in_library, const char* symbol, void* replacement);

}  // namespace ndd
