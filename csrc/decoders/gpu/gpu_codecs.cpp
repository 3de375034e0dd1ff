// SPDX-License-Identifier: Apache-2.0
// A GPU decoder gets a file only if its result is that of the CPU's, within one level for lossy JPEG: baseline and complete progressive JPEGs of one
// or three channels, gray lossless ones of more than 8 bits, and TIFFs that leave no choice.
#include "decoders/gpu/gpu_codecs.h"

#include "decoders/jpeg/markers.h"
#include "decoders/jpeg/scans.h"
#include "decoders/tiff/tiff_image.h"

#include <algorithm>

namespace ndd {
namespace {

GpuCodec jpeg_codec_of(const EncodedImage& file, const ImageHeader& header) {
  const JpegFrame frame = first_frame(file);
  if (frame.marker == kLossless) {
    // nvJPEG decodes gray ones, to 16 bits. Those of 8 bits are decoded by the CPU.
    return header.channels == 1 && frame.bits > 8 && frame.bits <= 16 ? GpuCodec::lossless_jpeg : GpuCodec::none;
  }
  const bool has_colors = header.dtype == DType::uint8 && !header.is_cmyk && (header.channels == 1 || header.channels == 3);
  // libjpeg smooths a progressive image that lacks scans, and nvJPEG does not.
  const bool has_kind = frame.marker == kBaseline || (frame.marker == kProgressive && !lacks_scans(file));
  if (!has_colors || !has_kind) return GpuCodec::none;
  // The CPU reports the error.
  return has_too_many_scans(file, static_cast<double>(header.height) * static_cast<double>(header.width)) ? GpuCodec::none : GpuCodec::jpeg;
}

// Whether libtiff would decode the whole file, so nothing is left to a parser's guess. Many writers of gray images leave out the number of samples,
// which one_page_tiff() adds.
bool is_plain(const EncodedImage& file, const TiffImage& image) {
  if (image.route != TiffRoute::pieces || image.samples != 1 || image.tags.has(kTiffSamples)) return image.route == TiffRoute::whole_file;
  const std::vector<uint8_t> copy = one_page_tiff(file);
  return read_tiff_image({copy.data(), copy.size()}).route == TiffRoute::whole_file;
}

// Gray or RGB of 8 or 16 bits, and not compressed as JPEG, which rounds.
bool suits_tiff(const EncodedImage& file, const ImageHeader& header) {
  constexpr size_t kMaxBytes = size_t{1} << 31;  // one_page_tiff() must not exceed the offsets of a TIFF
  if (file.size > kMaxBytes || (header.dtype != DType::uint8 && header.dtype != DType::uint16)) return false;
  const TiffImage image = read_tiff_image(file);
  return image.kind == TiffSampleKind::whole && (image.compression == 1 || is_byte_compression(image.compression)) &&
         (image.predictor == 1 || image.predictor == 2) && image.samples == image.color_channels() &&
         (image.colors == TiffColors::gray || image.colors == TiffColors::rgb) && is_plain(file, image);
}

}  // namespace

GpuCodec gpu_codec_of(const EncodedImage& file, const ImageHeader& header) {
  if (header.codec == "jpeg") return jpeg_codec_of(file, header);
  if (header.codec == "tiff" && suits_tiff(file, header)) return GpuCodec::tiff;
  return GpuCodec::none;
}

bool suits_hardware(const EncodedImage& file) { return first_frame(file).marker == kBaseline; }

DecodeSteps whole_image_steps(GpuCodec codec, const EncodedImage& file, const ImageHeader& header) {
  DecodeSteps steps{};
  // Planar gray is what the codecs decode to without a conversion of their own.
  if (header.channels == 1) steps.format = {NVIMGCODEC_SAMPLEFORMAT_P_Y, NVIMGCODEC_COLORSPEC_GRAY, 1};
  else if (header.channels == 3) steps.format = {NVIMGCODEC_SAMPLEFORMAT_I_RGB, NVIMGCODEC_COLORSPEC_SRGB, 3};
  else steps.format = {NVIMGCODEC_SAMPLEFORMAT_I_UNCHANGED, NVIMGCODEC_COLORSPEC_UNCHANGED, header.channels};
  steps.samples = header.dtype;
  steps.precision = codec == GpuCodec::lossless_jpeg ? first_frame(file).bits : 8 * static_cast<int>(item_bytes(header.dtype));
  steps.stored = {header.height, header.width, header.channels};
  return steps;
}

std::vector<uint8_t> one_page_tiff(const EncodedImage& file) {
  const TiffDirectory tags(file);
  // Our kernel turns the image. A codec that does so too, or one that does not, would make its result depend on the codec.
  std::map<int, uint16_t> changed{{kTiffOrientation, 1}};
  if (!tags.has(kTiffSamples)) changed[kTiffSamples] = 1;
  return tags.with_numbers(changed);
}

bool is_same_header(const ImageHeader& header, const nvimgcodecImageInfo_t& info) {
  int channels = 0;
  bool same = info.num_planes >= 1 && info.num_planes <= NVIMGCODEC_MAX_NUM_PLANES;
  for (uint32_t i = 0; same && i < info.num_planes; ++i) {
    const auto& plane = info.plane_info[i];
    channels += static_cast<int>(plane.num_channels);
    same = plane.height == header.height && plane.width == header.width && sample_type_of(header.dtype) == plane.sample_type;
  }
  return same && channels == header.channels;
}

}  // namespace ndd

// For tests without a GPU: the number of the GpuCodec of a file, plus 100 if the JPEG engines decode it; -1 for a file whose header is rejected, and -2
// for one whose copy for the codec would have another header.
NDD_EXPORT(release, int, ndd_gpu_codec_of, (const uint8_t* data, int64_t size)) {
  using namespace ndd;
  const EncodedImage file{data, static_cast<size_t>(size)};
  try {
    ImageDecoderLease decoder;
    const ImageHeader header = decoder->read_header(file);
    const GpuCodec codec = gpu_codec_of(file, header);
    if (codec == GpuCodec::tiff) {
      const std::vector<uint8_t> copy = one_page_tiff(file);
      const ImageHeader again = decoder->read_header({copy.data(), copy.size()});
      const bool same = again.height == header.height && again.width == header.width && again.channels == header.channels;
      if (!same || again.dtype != header.dtype || again.in_pieces || !again.orientation.is_identity()) return -2;
    }
    return static_cast<int>(codec) + (codec == GpuCodec::jpeg && suits_hardware(file) ? 100 : 0);
  } catch (const std::exception&) {
    return -1;
  }
}
