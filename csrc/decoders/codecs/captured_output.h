// SPDX-License-Identifier: Apache-2.0
// What libjpeg, libpng, libtiff and OpenCV print about a damaged image goes into the exception, not to the user's terminal.
#pragma once

#include <string>

namespace ndd {

// Text printed by this thread from a captured library lands in `text` while the object lives.
class CaptureOutput {
 public:
  explicit CaptureOutput(std::string& text);
  ~CaptureOutput();
  CaptureOutput(const CaptureOutput&) = delete;
  CaptureOutput& operator=(const CaptureOutput&) = delete;

 private:
  std::string* outer_;
};

// Adds one message to the text that this thread captures, if any; true when it was taken.
bool capture_message(const char* text, size_t size);

// Whether there is a message in the text that this thread captures.
bool has_captured();

// Lets `stderr` and `std::cerr` of one loaded library, and of no other, mean the capturing stream. Without an active CaptureOutput the
// stream writes to the real stderr. False where the library imports neither.
bool capture_output_of(const void* address_in_library);

// What a loaded library prints to `stderr` is lost. False where it does not import that.
bool discard_output_of(const void* address_in_library);

}  // namespace ndd
