// SPDX-License-Identifier: Apache-2.0
// What is requested of a codec, and which steps remain for the samples that it delivers; the same for the CPU and the GPU.
#pragma once

#include "decoders/codecs/nvimgcodec_library.h"
#include "decoders/image_decoder.h"

#include <optional>
#include <string>

namespace ndd {

// Throws Error. `details` is the captured output of a codec.
[[noreturn]] void codec_error(std::string reason, std::string details = {});

nvimgcodecSampleDataType_t sample_type_of(DType dtype);

struct CodecOutput {
  nvimgcodecSampleFormat_t format;
  nvimgcodecColorSpec_t color;
  int channels;
};

// Decode `part` of the stored image to `stored` pixels of `format`, orient them, and convert them to the channels and type of the output.
// Often the last two steps are not needed.
struct DecodeSteps {
  CodecOutput format;
  DType samples;                    // type delivered by the codec
  int precision;                    // bits of a sample, or 0 for all of its type
  ImageShape stored;                // extents of the part as stored, with the codec's channels
  std::optional<CropWindow> part;   // in the stored image
  Orientation orientation;
  bool ordered;                     // the codec delivers the channels of the output
  bool convert;

  bool orient() const { return !orientation.is_identity(); }
  bool whole() const { return !convert && !orient(); }  // the codec writes the output itself
};

DecodeSteps decode_steps(const ImageHeader& header, const DecodeOptions& options, const ImageShape& shape, DType out_dtype);

// Describes the memory that the codec fills: dense rows.
nvimgcodecImageInfo_t codec_image(const DecodeSteps& steps, void* data, nvimgcodecImageBufferKind_t kind);

// Creates a view of a code stream, to decode `part` only. `view` is null, or an existing view to be reused.
nvimgcodecStatus_t view_part(const NvimgcodecLibrary& library, nvimgcodecCodeStream_t stream, const CropWindow& part, nvimgcodecCodeStream_t* view);

}  // namespace ndd
