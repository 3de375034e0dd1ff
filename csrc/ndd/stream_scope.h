// SPDX-License-Identifier: Apache-2.0
// CUDA streams for code that has none of CUDA's headers.
#pragma once

namespace ndd {

// Makes a CUDA stream torch's current one, and its device the current device, until the end of the scope.
class StreamScope {
 public:
  StreamScope(void* stream, int device);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

  // Makes the stream wait for the work that is on another one of the device so far.
  void wait_for(void* other) const;

 private:
  void *guard_ = nullptr, *stream_;
};

}  // namespace ndd
