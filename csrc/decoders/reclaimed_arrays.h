// SPDX-License-Identifier: Apache-2.0
// nvImageCodec 0.9's JPEG extension decodes into an array of its own and loses it when the image data turn out damaged: 560 kB for each
// such 500x375 image. Arrays that it has not deleted when the decoding ends are deleted here.
#pragma once

namespace ndd {

class ReclaimArrays {
 public:
  ReclaimArrays();
  ~ReclaimArrays();
  ReclaimArrays(const ReclaimArrays&) = delete;
  ReclaimArrays& operator=(const ReclaimArrays&) = delete;
};

// Lets `new[]` and `delete[]` of one loaded library, and of no other, take part in that.
void reclaim_arrays_of(const void* address_in_library);

}  // namespace ndd
