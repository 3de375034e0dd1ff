// SPDX-License-Identifier: Apache-2.0
// What a codec is asked for, and what remains to be done on the samples that it delivers: the same for the CPU and the GPU.
#pragma once

#include "decoders/image_decoder.h"
#include "decoders/codecs/nvimgcodec_library.h"

#include <optional>
#include <string>

namespace ndd {

// `details` are what a codec has printed.
[[noreturn]] void codec_error(std::string reason, std::string details = {});

struct CodecOutput {
  nvimgcodecSampleFormat_t format;
  nvimgcodecColorSpec_t color;
  int channels;
};

// Decode `part` of the stored image to `stored` pixels of `format`, turn them to `shape`, convert them to the output's channels and type. The last two
// steps are often none.
struct DecodeSteps {
  CodecOutput format;
  DType samples;                    // type that the codec delivers
  ImageShape stored;                // extents of the part as stored, with the codec's channels
  std::optional<CropWindow> part;   // in the stored image
  Orientation orientation;
  bool ordered;                     // the codec has done the channels
  bool convert;

  bool orient() const { return !orientation.none(); }
  bool whole() const { return !convert && !orient(); }  // the codec's samples are the output
};

DecodeSteps decode_steps(const ImageHeader& header, const DecodeOptions& options, const ImageShape& shape, DType out_dtype);

// The image in memory that the codec is to fill: dense rows.
nvimgcodecImageInfo_t codec_image(const DecodeSteps& steps, void* data, nvimgcodecImageBufferKind_t kind);

// A stream of the same file of which only `part` is decoded; `view` is null or one to be filled again.
nvimgcodecStatus_t view_part(const NvimgcodecLibrary& library, nvimgcodecCodeStream_t stream, const CropWindow& part, nvimgcodecCodeStream_t* view);

}  // namespace ndd
