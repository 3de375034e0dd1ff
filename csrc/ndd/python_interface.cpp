// SPDX-License-Identifier: Apache-2.0
#include "ndd/python_interface.h"

#include <utility>

namespace ndd::detail {
namespace {

// Functions of their own, because records are made while the library is loaded, in no order.
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

// The only two functions whose prototypes Python knows by itself. One line a record: name, keep or release, letters of the result and the arguments.
NDD_EXTERN const char* ndd_recorded_functions() { return ndd::detail::functions().c_str(); }
// Name and enumerators as they are written: "reflect_101, wrap, constant = 7".
NDD_EXTERN const char* ndd_recorded_enumerations() { return ndd::detail::enumerations().c_str(); }
