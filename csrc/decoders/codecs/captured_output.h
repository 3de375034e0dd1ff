// SPDX-License-Identifier: Apache-2.0
// Captures what libjpeg, libpng, libtiff and OpenCV print about a damaged image: it becomes part of the exception instead of going to the terminal.
#pragma once

#include <string>

namespace ndd {

// Appends to `text`, during its lifetime, what captured libraries print on this thread.
class CaptureOutput {
 public:
  explicit CaptureOutput(std::string& text);
  ~CaptureOutput();
  CaptureOutput(const CaptureOutput&) = delete;
  CaptureOutput& operator=(const CaptureOutput&) = delete;

 private:
  std::string* outer_;
};

// Appends a message to the text that this thread captures. Returns false if it captures none.
bool capture_message(const char* text, size_t size);

// Whether this thread has captured a message.
bool has_captured();

// Redirects `stderr` and `std::cerr` of one loaded library, and of no other, to the capturing stream, which writes to the real stderr while
// no CaptureOutput is active. Returns false if the library imports neither.
bool capture_output_of(const void* address_in_library);

// Discards what a loaded library prints to `stderr`. Returns false if it does not import it.
bool discard_output_of(const void* address_in_library);

}  // namespace ndd
