// SPDX-License-Identifier: Apache-2.0
// The codec is asked for the region and the channels, and for the colors where its conversion is the one that we want. Exceptions are listed in
// codec_output().
#include "decoders/codecs/codec_output.h"

#include "ndd/error.h"

#include <utility>

namespace ndd {

nvimgcodecSampleDataType_t sample_type_of(DType dtype) {
  switch (dtype) {
    case DType::uint8: return NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8;
    case DType::uint16: return NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16;
    case DType::uint32: return NVIMGCODEC_SAMPLE_DATA_TYPE_UINT32;
    default: return NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT32;
  }
}

namespace {

CodecOutput codec_output(const ImageHeader& header, ImageType type) {
  const CodecOutput rgb{NVIMGCODEC_SAMPLEFORMAT_I_RGB, NVIMGCODEC_COLORSPEC_SRGB, 3};
  const CodecOutput gray{NVIMGCODEC_SAMPLEFORMAT_I_Y, NVIMGCODEC_COLORSPEC_GRAY, 1};
  if (header.in_pieces) {  // decode_tiff_pieces() delivers all channels, or the colors as RGB
    const int channels = type == ImageType::any ? header.channels : header.color_channels;
    return {NVIMGCODEC_SAMPLEFORMAT_I_UNCHANGED, NVIMGCODEC_COLORSPEC_UNCHANGED, channels};
  }
  // For gray and alpha, the TIFF decoder reads beyond the pixels if another number of channels is requested.
  if (header.codec == "tiff" && header.channels == 2) return {NVIMGCODEC_SAMPLEFORMAT_I_UNCHANGED, NVIMGCODEC_COLORSPEC_UNCHANGED, 2};
  // libjpeg does not convert the colors of lossless files.
  if (header.codec == "jpeg" && header.channels == 1 && !header.unusual.empty()) return gray;
  switch (type) {
    case ImageType::rgb:
    case ImageType::ycbcr: return rgb;
    case ImageType::bgr: return {NVIMGCODEC_SAMPLEFORMAT_I_BGR, NVIMGCODEC_COLORSPEC_SRGB, 3};
    // For CMYK, and where libpng would convert in linear light, RGB is requested and converted to gray here.
    case ImageType::gray: return header.is_cmyk || (header.gamma && header.channels >= 3) ? rgb : gray;
    case ImageType::any: break;
  }
  // Not "unchanged": for a grayscale JPEG the library would write three channels into a buffer for one.
  if (header.channels == 1) return gray;
  if (header.channels == 3) return rgb;
  // With RGBA the TIFF decoder would multiply the colors by alpha.
  if (header.codec == "tiff") return {NVIMGCODEC_SAMPLEFORMAT_I_UNCHANGED, NVIMGCODEC_COLORSPEC_UNCHANGED, header.channels};
  // Gray and alpha are extracted from RGBA.
  const bool has_alpha = header.channels == 2 || header.channels == 4;
  if (has_alpha && !header.is_cmyk) return {NVIMGCODEC_SAMPLEFORMAT_I_RGBA, NVIMGCODEC_COLORSPEC_SRGB, 4};
  codec_error("output_type=ANY_DATA is not supported for " + std::string(header.is_cmyk ? "CMYK" : "multi-channel") + " images of this format");
}

}  // namespace

void codec_error(std::string reason, std::string details) {
  while (!details.empty() && (details.back() == '\n' || details.back() == ' ')) details.pop_back();
  for (char& c : details) {
    if (c == '\n') c = ';';
    if (c < ' ' || c > '~') c = '?';  // messages quote damaged bytes, which must not reach a terminal
  }
  fail(details.empty() ? reason : reason + " (" + details + ")");
}

// Only plans the steps: nothing is decoded here.
DecodeSteps decode_steps(const ImageHeader& header, const DecodeOptions& options, const ImageShape& shape, DType out_dtype) {
  DecodeSteps steps{};
  steps.format = codec_output(header, options.type);
  steps.samples = header.dtype;
  steps.orientation = options.adjust_orientation ? header.orientation : Orientation{};
  // `shape` is that of the displayed image.
  const bool swapped = steps.orientation.swaps_axes();
  steps.stored = {swapped ? shape.width : shape.height, swapped ? shape.height : shape.width, steps.format.channels};
  if (options.window) {
    steps.part = stored_window(steps.orientation, *options.window, swapped ? header.width : header.height, swapped ? header.height : header.width);
  }
  // YCbCr is computed from RGB, and pieces deliver RGB only.
  const bool other_order = options.type == ImageType::ycbcr || (header.in_pieces && options.type == ImageType::bgr);
  steps.ordered = steps.format.channels == shape.channels && !other_order;
  steps.convert = !steps.ordered || header.dtype != out_dtype;
  return steps;
}

nvimgcodecImageInfo_t codec_image(const DecodeSteps& steps, void* data, nvimgcodecImageBufferKind_t kind) {
  auto info = nvimgcodec_struct<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  info.sample_format = steps.format.format;
  info.color_spec = steps.format.color;
  info.orientation = nvimgcodec_struct<nvimgcodecOrientation_t>(NVIMGCODEC_STRUCTURE_TYPE_ORIENTATION);
  info.num_planes = 1;
  auto& plane = info.plane_info[0];
  plane = nvimgcodec_struct<nvimgcodecImagePlaneInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_PLANE_INFO);
  plane.height = static_cast<uint32_t>(steps.stored.height);
  plane.width = static_cast<uint32_t>(steps.stored.width);
  plane.num_channels = static_cast<uint32_t>(steps.stored.channels);
  plane.row_stride = static_cast<size_t>(steps.stored.width) * static_cast<size_t>(steps.stored.channels) * item_bytes(steps.samples);
  plane.sample_type = sample_type_of(steps.samples);
  plane.precision = static_cast<uint8_t>(steps.precision);
  info.buffer = data;
  info.buffer_kind = kind;
  return info;
}

nvimgcodecStatus_t view_part(const NvimgcodecLibrary& library, nvimgcodecCodeStream_t stream, const CropWindow& part, nvimgcodecCodeStream_t* view) {
  auto window = nvimgcodec_struct<nvimgcodecCodeStreamView_t>(NVIMGCODEC_STRUCTURE_TYPE_CODE_STREAM_VIEW);
  window.region = nvimgcodec_struct<nvimgcodecRegion_t>(NVIMGCODEC_STRUCTURE_TYPE_REGION);
  window.region.ndim = 2;
  window.region.start[0] = static_cast<int>(part.y);
  window.region.start[1] = static_cast<int>(part.x);
  window.region.end[0] = static_cast<int>(part.y + part.height);
  window.region.end[1] = static_cast<int>(part.x + part.width);
  return library.CodeStreamGetSubCodeStream(stream, view, &window);
}

}  // namespace ndd
