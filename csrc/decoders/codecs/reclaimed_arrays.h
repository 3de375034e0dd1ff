// SPDX-License-Identifier: Apache-2.0
// nvImageCodec 0.9's JPEG extension decodes to its own array and leaks it if the image data are damaged: 560 kB for each such 500x375 image
// (jpeg_extension.md). Arrays that it has not deleted after a failed decoding are deleted here.
#pragma once

namespace ndd {

// Records the arrays of this thread during its lifetime.
class ReclaimArrays {
 public:
  ReclaimArrays();
  ~ReclaimArrays();
  ReclaimArrays(const ReclaimArrays&) = delete;
  ReclaimArrays& operator=(const ReclaimArrays&) = delete;

  // Deletes the recorded arrays. Only to be called after a failed decoding: a successful one may keep arrays that are still in use.
  void free_lost();
};

// Redirects `new[]` and `delete[]` of one loaded library, and of no other, to the recording functions.
void reclaim_arrays_of(const void* address_in_library);

}  // namespace ndd
