// SPDX-License-Identifier: Apache-2.0
// The extensions belong to an instance and not to the process, so files for libtiff cannot reach OpenCV.
#include "decoders/codecs/codec_instance.h"

#include "decoders/codecs/captured_output.h"
#include "decoders/codecs/codec_output.h"
#include "decoders/codecs/reclaimed_arrays.h"

#include <algorithm>
#include <cstring>

namespace ndd {
namespace {

// An executor that works on the calling thread. The library's own pool starts a thread even for one image; the calling thread saves the
// hand-over, and works after a fork.
nvimgcodecStatus_t schedule(void*, int, int sample, void* context, void (*task)(int, int, void*)) {
  task(0, sample, context);
  return NVIMGCODEC_STATUS_SUCCESS;
}

// Since schedule() has finished each task when it returns, run() and wait() have nothing to do.
nvimgcodecExecutorDesc_t* calling_thread() {
  static nvimgcodecExecutorDesc_t executor = [] {
    auto description = nvimgcodec_struct<nvimgcodecExecutorDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_EXECUTOR_DESC);
    description.schedule = schedule;
    description.run = [](void*, int) { return NVIMGCODEC_STATUS_SUCCESS; };
    description.wait = [](void*, int) { return NVIMGCODEC_STATUS_SUCCESS; };
    description.getNumThreads = [](void*) { return 1; };
    return description;
  }();
  return &executor;
}

}  // namespace

CodecInstance::CodecInstance(const std::vector<nvimgcodecExtensionModuleEntryFunc_t>& extensions) : library_(nvimgcodec()) {
  auto messenger = nvimgcodec_struct<nvimgcodecDebugMessengerDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_DEBUG_MESSENGER_DESC);
  messenger.message_severity = NVIMGCODEC_DEBUG_MESSAGE_SEVERITY_DEFAULT;
  messenger.message_category = NVIMGCODEC_DEBUG_MESSAGE_CATEGORY_ALL;
  // Called on the thread that decodes, so the message belongs to its image.
  messenger.user_callback = [](nvimgcodecDebugMessageSeverity_t, nvimgcodecDebugMessageCategory_t, const nvimgcodecDebugMessageData_t* data, void*) {
    capture_message(data->message, std::strlen(data->message));
    capture_message("\n", 1);
    return 1;
  };
  auto create = nvimgcodec_struct<nvimgcodecInstanceCreateInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  create.load_builtin_modules = 1;  // the parsers
  create.create_debug_messenger = 1;
  create.debug_messenger_desc = &messenger;
  if (library_.InstanceCreate(&handle_, &create) != NVIMGCODEC_STATUS_SUCCESS) codec_error("nvImageCodec cannot be initialized");
  for (auto entry : extensions) {
    auto description = nvimgcodec_struct<nvimgcodecExtensionDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_EXTENSION_DESC);
    nvimgcodecExtension_t extension = nullptr;
    if (entry(&description) != NVIMGCODEC_STATUS_SUCCESS ||
        library_.ExtensionCreate(handle_, &extension, &description) != NVIMGCODEC_STATUS_SUCCESS) {
      library_.InstanceDestroy(handle_);
      codec_error("nvImageCodec rejects one of its own extensions");
    }
  }
}

CodecInstance::~CodecInstance() { library_.InstanceDestroy(handle_); }

nvimgcodecDecoder_t CodecInstance::make_decoder(const CodecBackend& where, const std::string& options) const {
  auto backend = nvimgcodec_struct<nvimgcodecBackend_t>(NVIMGCODEC_STRUCTURE_TYPE_BACKEND);
  backend.kind = where.kind;
  backend.params = nvimgcodec_struct<nvimgcodecBackendParams_t>(NVIMGCODEC_STRUCTURE_TYPE_BACKEND_PARAMS);
  // The hint does not matter: there is a single backend.
  backend.params.load_hint = 1;
  backend.params.load_hint_policy = NVIMGCODEC_LOAD_HINT_POLICY_IGNORE;
  auto execution = nvimgcodec_struct<nvimgcodecExecutionParams_t>(NVIMGCODEC_STRUCTURE_TYPE_EXECUTION_PARAMS);
  execution.device_allocator = where.device_memory;
  execution.pinned_allocator = where.pinned_memory;
  // Parallelism is over samples: each thread of ours has a decoder of its own.
  execution.max_num_cpu_threads = 1;
  execution.executor = calling_thread();
  execution.device_id = where.device;
  execution.num_backends = 1;
  execution.backends = &backend;
  nvimgcodecDecoder_t decoder = nullptr;
  if (library_.DecoderCreate(handle_, &decoder, &execution, options.c_str()) != NVIMGCODEC_STATUS_SUCCESS) return nullptr;
  return decoder;
}

std::vector<nvimgcodecProcessingStatus_t> decode_images(nvimgcodecDecoder_t decoder, const std::vector<nvimgcodecCodeStream_t>& files,
                                                        const std::vector<nvimgcodecImage_t>& images) {
  const NvimgcodecLibrary& library = nvimgcodec();
  std::vector<nvimgcodecProcessingStatus_t> outcomes(files.size(), NVIMGCODEC_PROCESSING_STATUS_FAIL);
  auto params = nvimgcodec_struct<nvimgcodecDecodeParams_t>(NVIMGCODEC_STRUCTURE_TYPE_DECODE_PARAMS);
  nvimgcodecFuture_t future = nullptr;
  ReclaimArrays arrays;
  // Outcomes stay failures unless the library fills them.
  const auto status = library.DecoderDecode(decoder, files.data(), images.data(), static_cast<int>(files.size()), &params, &future);
  if (future) {
    size_t count = outcomes.size();
    library.FutureWaitForAll(future);
    library.FutureGetProcessingStatus(future, outcomes.data(), &count);
    library.FutureDestroy(future);
  }
  if (status != NVIMGCODEC_STATUS_SUCCESS) outcomes.assign(files.size(), NVIMGCODEC_PROCESSING_STATUS_FAIL);
  // If OpenCV decodes an image on which libjpeg-turbo failed, the outcome is a success; a captured message shows that libjpeg-turbo may have leaked.
  const bool whole = std::all_of(outcomes.begin(), outcomes.end(), [](auto outcome) { return outcome == NVIMGCODEC_PROCESSING_STATUS_SUCCESS; });
  if (!whole || has_captured()) arrays.free_lost();
  return outcomes;
}

}  // namespace ndd
