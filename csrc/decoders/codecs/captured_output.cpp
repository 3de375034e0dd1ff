// SPDX-License-Identifier: Apache-2.0
// Each library has its own reference to `stderr` or std::cerr, which is redirected for it alone (redirected_symbol.cpp): to a stream that looks up
// which thread writes. Threads that capture nothing write through to the real one.
#include "decoders/codecs/captured_output.h"

#include "decoders/codecs/redirected_symbol.h"
#include "ndd/python_interface.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <streambuf>

namespace ndd {
namespace {

// Where the output of this thread goes; null: to the real stderr.
thread_local std::string* captured = nullptr;

// Bytes per image. A damaged TIFF can print a line for each strip; the first few name the problem.
constexpr size_t kMaxCaptured = 1000;

// What write callbacks return: the number of bytes that were taken.
size_t capture_or_print(const char* text, size_t size) {
  if (!capture_message(text, size) && write(STDERR_FILENO, text, size) < 0) return 0;
  return size;
}

struct CapturingBuffer : std::streambuf {
  int_type overflow(int_type c) override {
    const char character = static_cast<char>(c);
    if (c != traits_type::eof()) capture_or_print(&character, 1);
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    return std::streamsize(capture_or_print(text, static_cast<size_t>(size)));
  }
};

#if defined(__GLIBC__)
// The stream that replaces `stderr` in the captured libraries.
FILE* capturing_file = [] {
  cookie_io_functions_t io{};
  io.write = [](void*, const char* text, size_t size) { return ssize_t(capture_or_print(text, size)); };
  FILE* opened = fopencookie(nullptr, "w", io);
  if (opened) setvbuf(opened, nullptr, _IONBF, 0);  // with a buffer, the messages of several threads would mix
  return opened;
}();
#else
FILE* capturing_file = nullptr;
#endif

}  // namespace

CaptureOutput::CaptureOutput(std::string& text) : outer_(captured) { captured = &text; }
CaptureOutput::~CaptureOutput() { captured = outer_; }

bool capture_message(const char* text, size_t size) {
  if (!captured) return false;
  // min() twice, because the text may be longer already: it belongs to the caller.
  captured->append(text, std::min(size, kMaxCaptured - std::min(kMaxCaptured, captured->size())));
  return true;
}

bool has_captured() { return captured && !captured->empty(); }

bool capture_output_of(const void* address_in_library) {
  static auto* stream = new std::ostream(new CapturingBuffer);  // never destroyed: other static destructors may still print
  // `stderr` is a variable that libraries import by name; `_ZSt4cerr` is the mangled name of std::cerr.
  const bool c = capturing_file && redirect_symbol(address_in_library, "stderr", &capturing_file);
  const bool cpp = redirect_symbol(address_in_library, "_ZSt4cerr", stream);
  return c || cpp;
}

bool discard_output_of(const void* address_in_library) {
#if defined(__GLIBC__)
  static FILE* nowhere = [] {
    cookie_io_functions_t io{};
    io.write = [](void*, const char*, size_t size) { return ssize_t(size); };
    return fopencookie(nullptr, "w", io);
  }();
  return nowhere && redirect_symbol(address_in_library, "stderr", &nowhere);
#else
  static_cast<void>(address_in_library);
  return false;
#endif
}

}  // namespace ndd

// Called by Python with the path of a library that is already loaded, and one of its symbols. Returns whether its output is discarded.
NDD_EXPORT(release, bool, ndd_discard_output_of, (const char* library, const char* symbol)) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  const void* address = handle ? dlsym(handle, symbol) : nullptr;
  return address && ndd::discard_output_of(address);
}
