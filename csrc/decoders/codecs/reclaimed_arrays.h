// SPDX-License-Identifier: Apache-2.0
// nvImageCodec 0.9's JPEG extension decodes into an array of its own and loses it when the image data turn out damaged: 560 kB for each
// such 500x375 image (jpeg_extension.md). Arrays that it has not deleted when a decoding has failed are deleted here.
#pragma once

namespace ndd {

// Watches the arrays of this thread while it lives.
class ReclaimArrays {
 public:
  ReclaimArrays();
  ~ReclaimArrays();
  ReclaimArrays(const ReclaimArrays&) = delete;
  ReclaimArrays& operator=(const ReclaimArrays&) = delete;

  // Only behind a decoding that has failed: what another one keeps may be in use.
  void free_lost();
};

// Lets `new[]` and `delete[]` of one loaded library, and of no other, take part in that.
void reclaim_arrays_of(const void* address_in_library);

}  // namespace ndd
