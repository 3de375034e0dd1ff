// SPDX-License-Identifier: Apache-2.0
// An instance of nvImageCodec and its decoders, which work on the calling thread.
#pragma once

#include "decoders/codecs/nvimgcodec_library.h"

#include <string>
#include <vector>

namespace ndd {

// The device of a decoder. The allocators are for a GPU: both or none.
struct CodecBackend {
  nvimgcodecBackendKind_t kind = NVIMGCODEC_BACKEND_KIND_CPU_ONLY;
  int device = NVIMGCODEC_DEVICE_CPU_ONLY;
  nvimgcodecDeviceAllocator_t* device_memory = nullptr;
  nvimgcodecPinnedAllocator_t* pinned_memory = nullptr;
};

class CodecInstance {
 public:
  explicit CodecInstance(const std::vector<nvimgcodecExtensionModuleEntryFunc_t>& extensions);
  ~CodecInstance();
  CodecInstance(const CodecInstance&) = delete;
  CodecInstance& operator=(const CodecInstance&) = delete;

  nvimgcodecInstance_t handle() const { return handle_; }
  // Returns null if the library has no such decoder.
  nvimgcodecDecoder_t make_decoder(const CodecBackend& backend, const std::string& options) const;

 private:
  const NvimgcodecLibrary& library_;
  nvimgcodecInstance_t handle_ = nullptr;
};

// Decodes images and returns the status of each.
std::vector<nvimgcodecProcessingStatus_t> decode_images(nvimgcodecDecoder_t decoder, const std::vector<nvimgcodecCodeStream_t>& files,
                                                        const std::vector<nvimgcodecImage_t>& images);

}  // namespace ndd
