// SPDX-License-Identifier: Apache-2.0
// An extension of nvImageCodec with one decoder, in the place of nvJPEG's lossless decoder, nvTIFF or nvJPEG2000: a function of the test decides what it
// accepts, and decodes it. Compiled with FAKE_CODEC, nvImageCodec's name of the format.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <nvimgcodec.h>

namespace {

// What the decoder was asked for; the test's function fills `pixels`. See tests/decoders/test_gpu_engines.py.
struct Request {
  const uint8_t* file;
  int64_t file_bytes, height, width, channels, row_bytes;
  int32_t type, format, color, precision, has_region, is_decoding;  // 0: may it be decoded?
  void* pixels;
};

// Returns 0 to accept, or to have decoded.
using Answer = int (*)(const Request*);
Answer answer = nullptr;

int ask(const nvimgcodecImageDesc_t* image, const nvimgcodecCodeStreamDesc_t* file, bool is_decoding) {
  if (!answer) return 1;
  nvimgcodecImageInfo_t info{NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO, sizeof(nvimgcodecImageInfo_t), nullptr};
  image->getImageInfo(image->instance, &info);
  nvimgcodecCodeStreamInfo_t stream{NVIMGCODEC_STRUCTURE_TYPE_CODE_STREAM_INFO, sizeof(nvimgcodecCodeStreamInfo_t), nullptr};
  file->getCodeStreamInfo(file->instance, &stream);
  size_t bytes = 0;
  void* data = nullptr;
  file->io_stream->size(file->io_stream->instance, &bytes);
  file->io_stream->map(file->io_stream->instance, &data, 0, bytes);
  const auto& plane = info.plane_info[0];
  const Request request{static_cast<const uint8_t*>(data),
                        static_cast<int64_t>(bytes),
                        plane.height,
                        plane.width,
                        plane.num_channels,
                        static_cast<int64_t>(plane.row_stride),
                        plane.sample_type,
                        info.sample_format,
                        info.color_spec,
                        plane.precision,
                        stream.code_stream_view && stream.code_stream_view->region.ndim != 0,
                        is_decoding,
                        info.buffer};
  return answer(&request);
}

nvimgcodecStatus_t create(void*, nvimgcodecDecoder_t* decoder, const nvimgcodecExecutionParams_t*, const char*) {
  *decoder = reinterpret_cast<nvimgcodecDecoder_t>(new char);
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecStatus_t destroy(nvimgcodecDecoder_t decoder) {
  delete reinterpret_cast<char*>(decoder);
  return NVIMGCODEC_STATUS_SUCCESS;
}

nvimgcodecProcessingStatus_t can_decode(nvimgcodecDecoder_t, const nvimgcodecImageDesc_t* image, const nvimgcodecCodeStreamDesc_t* file,
                                        const nvimgcodecDecodeParams_t*, int) {
  nvimgcodecImageInfo_t info{NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO, sizeof(nvimgcodecImageInfo_t), nullptr};
  file->getImageInfo(file->instance, &info);
  // The decoder for lossless JPEG shares its instance with those of other JPEGs.
  const bool is_other_jpeg = !std::strcmp(FAKE_CODEC, "jpeg") && info.plane_info[0].sample_type != NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16;
  return is_other_jpeg || ask(image, file, false) ? NVIMGCODEC_PROCESSING_STATUS_CODEC_UNSUPPORTED : NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
}

nvimgcodecStatus_t decode(nvimgcodecDecoder_t, const nvimgcodecImageDesc_t* image, const nvimgcodecCodeStreamDesc_t* file,
                          const nvimgcodecDecodeParams_t*, int) {
  const bool failed = ask(image, file, true) != 0;
  image->imageReady(image->instance, failed ? NVIMGCODEC_PROCESSING_STATUS_FAIL : NVIMGCODEC_PROCESSING_STATUS_SUCCESS);
  return failed ? NVIMGCODEC_STATUS_EXECUTION_FAILED : NVIMGCODEC_STATUS_SUCCESS;
}

const nvimgcodecDecoderDesc_t decoder{NVIMGCODEC_STRUCTURE_TYPE_DECODER_DESC,
                                      sizeof(nvimgcodecDecoderDesc_t),
                                      nullptr,
                                      nullptr,
                                      "fake_decoder",
                                      FAKE_CODEC,
                                      NVIMGCODEC_BACKEND_KIND_CPU_ONLY,
                                      create,
                                      destroy,
                                      nullptr,
                                      can_decode,
                                      decode,
                                      nullptr,
                                      nullptr};

nvimgcodecStatus_t create_extension(void*, nvimgcodecExtension_t* extension, const nvimgcodecFrameworkDesc_t* framework) {
  *extension = reinterpret_cast<nvimgcodecExtension_t>(const_cast<nvimgcodecDecoderDesc_t*>(&decoder));
  return framework->registerDecoder(framework->instance, &decoder, NVIMGCODEC_PRIORITY_HIGHEST);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void fake_codec_answer(Answer function) { answer = function; }

extern "C" __attribute__((visibility("default"))) nvimgcodecStatus_t nvimgcodecExtensionModuleEntry(nvimgcodecExtensionDesc_t* extension) {
  extension->struct_type = NVIMGCODEC_STRUCTURE_TYPE_EXTENSION_DESC;
  extension->struct_size = sizeof(nvimgcodecExtensionDesc_t);
  extension->instance = nullptr;
  extension->id = "fake_" FAKE_CODEC "_extension";
  extension->version = 1;
  extension->ext_api_version = NVIMGCODEC_VER;
  extension->create = create_extension;
  extension->destroy = [](nvimgcodecExtension_t) { return NVIMGCODEC_STATUS_SUCCESS; };
  return NVIMGCODEC_STATUS_SUCCESS;
}
