// SPDX-License-Identifier: Apache-2.0
#include "ndd/python_interface.h"

#include <utility>

namespace ndd::detail {
namespace {

// Function-local static variables, because records are created during static initialization, in unspecified order across files.
std::string& functions() {
  static std::string lines;
  return lines;
}

std::string& enumerations() {
  static std::string lines;
  return lines;
}

}  // namespace

void record_function(const char* name, Gil gil, std::string types) {
  functions() += std::string(name) + (gil == Gil::keep ? " keep " : " release ") + std::move(types) + '\n';
}

void record_enumeration(const char* name, const char* enumerators) { enumerations() += std::string(name) + ' ' + enumerators + '\n'; }

}  // namespace ndd::detail

// Only the prototypes of these two functions are written in Python. One line per record: name, keep or release, type letters of the result and the
// arguments.
NDD_EXTERN const char* ndd_recorded_functions() { return ndd::detail::functions().c_str(); }
// The name and the enumerators as written in the source: "reflect_101, wrap, constant = 7".
NDD_EXTERN const char* ndd_recorded_enumerations() { return ndd::detail::enumerations().c_str(); }
