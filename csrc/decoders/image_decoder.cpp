// SPDX-License-Identifier: Apache-2.0
// Two parsers read each header: ours (headers/) and nvImageCodec's. An image is decoded only where they agree, because the memory has the size of one
// and the codec writes the size of the other. The ways to decode (State::decode_*) differ only in how samples get into memory; orientation, colors
// and type are converted by the same steps after them.
#include "decoders/image_decoder.h"

#include "decoders/bmp_image.h"
#include "decoders/codecs/captured_output.h"
#include "decoders/codecs/codec_instance.h"
#include "decoders/codecs/codec_output.h"
#include "decoders/codecs/nvimgcodec_library.h"
#include "decoders/decoded_pixels.h"
#include "decoders/file_kind.h"
#include "decoders/gpu/device_images.h"
#include "decoders/headers/file_header.h"
#include "decoders/jpeg/area.h"
#include "decoders/jpeg/libjpeg.h"
#include "decoders/jpeg/scans.h"
#include "decoders/raw_image.h"
#include "decoders/tiff/pieces.h"
#include "ndd/error.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

namespace ndd {
namespace {

// OpenCV's limit. A damaged header easily claims more.
constexpr int64_t kMaxPixels = static_cast<int64_t>(1) << 30;

// `peek`: the file may be incomplete. `size`: complete, but only the size is needed, so no file is rewritten. `pixels`: nvImageCodec
// opens the file, rewritten if necessary, to decode it.
enum class ReadFor { peek, size, pixels };

// The header as nvImageCodec would describe it, for files that only our parser reads.
ImageHeader header_of(const FileHeader& own) {
  ImageHeader header{};
  header.height = own.height;
  header.width = own.width;
  header.channels = own.channels;
  header.dtype = own.dtype;
  header.codec = own.codec;
  if (own.orientation) header.orientation = *own.orientation;
  return header;
}

const char* describe(nvimgcodecStatus_t status) {
  switch (status) {
    case NVIMGCODEC_STATUS_BAD_CODESTREAM: return "the file is damaged";
    case NVIMGCODEC_STATUS_CODESTREAM_UNSUPPORTED: return "not an image of a supported format";
    case NVIMGCODEC_STATUS_ALLOCATOR_FAILURE: return "out of memory";
    default: return "cannot read the image header";
  }
}

// Distinguishes damaged images from unsupported ones, which the status does not always do.
std::string describe_failure(nvimgcodecProcessingStatus_t status, const ImageHeader& header) {
  if (!header.unusual.empty()) return "no CPU decoder for " + header.unusual;
  if (status == NVIMGCODEC_PROCESSING_STATUS_IMAGE_CORRUPTED || status == NVIMGCODEC_PROCESSING_STATUS_FAIL) return "the image data are damaged";
  return "no CPU decoder for this kind of image";
}

DType dtype_of(nvimgcodecSampleDataType_t type) {
  switch (type) {
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8: return DType::uint8;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16: return DType::uint16;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT32: return DType::uint32;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT32: return DType::float32;
    default: codec_error("no CPU decoder for images with this sample type");
  }
}

// Throws Error unless nvImageCodec's parser has read the same header as ours.
void check_same(const ImageHeader& header, const FileHeader& own) {
  const auto text = [](int64_t height, int64_t width, int channels, DType dtype) {
    return std::to_string(height) + "x" + std::to_string(width) + "x" + std::to_string(channels) + " samples of " +
           std::to_string(item_bytes(dtype)) + " bytes";
  };
  const bool same = own.codec && header.codec == own.codec && header.height == own.height && header.width == own.width &&
                    header.channels == own.channels && header.dtype == own.dtype;
  if (!same) {
    codec_error("its header can be read in two ways: " + text(own.height, own.width, own.channels, own.dtype) + " or " +
                text(header.height, header.width, header.channels, header.dtype));
  }
}

[[noreturn]] void reject_format(const EncodedImage& file) {
  codec_error("not an image of a supported format (JPEG, PNG, TIFF, BMP, PNM, WebP, JPEG 2000, GIF, AVIF, HEIC)" + other_kind(file.data, file.size));
}

// Whether our own parser suffices. It does for the size of most JPEGs: 64 headers take 20 us, with nvImageCodec's parser 70 us, on the
// calling thread. Both must agree before nvImageCodec decodes the file.
bool is_enough(const FileHeader& own, ReadFor use) {
  const std::string codec = own.codec;
  if (codec == "bmp" || own.in_pieces) return true;
  if (use == ReadFor::pixels) return false;
  const bool plain_jpeg = codec == "jpeg" && own.unusual.empty() && (own.channels == 1 || own.channels == 3);
  return plain_jpeg || own.by_opencv || (codec == "pnm" && own.needs_rewriting) || (own.orientation && codec != "jpeg" && use == ReadFor::peek);
}

// Rejects an implausible size before the output is allocated. Blank WebPs and some compressions of TIFF have no bound on the ratio:
// max_pixels limits them.
void check_size(const FileHeader& own, const EncodedImage& file, bool complete) {
  const bool sane = own.height > 0 && own.width > 0 && own.channels > 0 && own.height <= kMaxPixels / own.width;
  if (!sane || (complete && own.min_bytes > static_cast<double>(file.size))) {
    codec_error("the header promises " + std::to_string(own.height) + "x" + std::to_string(own.width) + " pixels, which a file of " +
                std::to_string(file.size) + " bytes cannot hold");
  }
}

}  // namespace

ImageType image_type_from_name(const std::string& name) {
  if (name == "RGB") return ImageType::rgb;
  if (name == "BGR") return ImageType::bgr;
  if (name == "GRAY") return ImageType::gray;
  if (name == "YCbCr") return ImageType::ycbcr;
  if (name == "ANY_DATA") return ImageType::any;
  fail(Error::Value, "decoders.image: output_type must be RGB, BGR, GRAY, YCbCr or ANY_DATA, got ", name);
}

namespace {

bool is_jpeg2000(const EncodedImage& image) {
  static constexpr uint8_t kFile[12] = {0, 0, 0, 12, 'j', 'P', ' ', ' ', 13, 10, 0x87, 10};
  static constexpr uint8_t kCodestream[4] = {0xff, 0x4f, 0xff, 0x51};
  // The library's parser accepts a file with the first eight bytes of the signature box, so they must be recognized here.
  return (image.size >= 8 && !std::memcmp(image.data, kFile, 8)) || (image.size >= 4 && !std::memcmp(image.data, kCodestream, 4));
}

bool begins_with(const EncodedImage& image, size_t at, std::string_view mark) {
  return image.size >= at + mark.size() && !std::memcmp(image.data + at, mark.data(), mark.size());
}

}  // namespace

const char* format_decoded_by_python(const EncodedImage& image) {
  if (is_jpeg2000(image)) return "JPEG 2000";
  if (begins_with(image, 0, "GIF87a") || begins_with(image, 0, "GIF89a")) return "GIF";
  if (begins_with(image, 4, "ftypavif") || begins_with(image, 4, "ftypavis")) return "AVIF";
  if (begins_with(image, 4, "ftyphei") || begins_with(image, 4, "ftyphev")) return "HEIC";
  // AVIF or HEIC, which their lists of brands tell (torch_ndd/decoders/_heif_header.py).
  for (const char* brand : {"ftypmif1", "ftypmif2", "ftypmsf1"}) {
    if (begins_with(image, 4, brand)) return "HEIF";
  }
  return nullptr;
}

// Whether libjpeg can decode it at a fraction of its size.
bool can_be_scaled(const ImageHeader& header) {
  const bool known = header.codec == "jpeg" && header.unusual.empty() && header.dtype == DType::uint8;
  return known && (header.channels == 1 || header.channels == 3 || header.channels == 4) && has_libjpeg();
}

// The shape of the output: scaled, oriented, cut out, and with the channels of the output type.
ImageShape decoded_shape(const ImageHeader& header, const DecodeOptions& options) {
  ImageShape shape{scaled_extent(header.height, options.eighths), scaled_extent(header.width, options.eighths), 3};
  // The window refers to the displayed image, so the orientation comes first.
  if (options.adjust_orientation && header.orientation.swaps_axes()) std::swap(shape.height, shape.width);
  if (options.window) {
    const CropWindow& w = *options.window;
    // Compared without sums, which could overflow.
    if (w.y < 0 || w.x < 0 || w.height < 1 || w.width < 1 || w.height > shape.height - w.y || w.width > shape.width - w.x) {
      fail(Error::Value, "the window y=", w.y, " x=", w.x, " height=", w.height, " width=", w.width, " does not lie inside the image of height ",
           shape.height, " and width ", shape.width);
    }
    shape.height = w.height;
    shape.width = w.width;
  }
  if (options.type != ImageType::any && !header.unknown_colors.empty()) {
    fail("no conversion to colors or gray from ", header.unknown_colors, "; output_type=types.ANY_DATA gives the samples as they are");
  }
  if (options.type == ImageType::gray) shape.channels = 1;
  if (options.type == ImageType::any) shape.channels = header.channels;
  return shape;
}

namespace {

// An instance of nvImageCodec with some of its extensions, and its objects for one thread. Creating them takes longer than decoding a small
// image, so they are kept.
struct Codec {
  explicit Codec(const std::vector<nvimgcodecExtensionModuleEntryFunc_t>& extensions) : instance(extensions) {}
  ~Codec() {
    if (window) library.CodeStreamDestroy(window);
    if (stream) library.CodeStreamDestroy(stream);
    if (image) library.ImageDestroy(image);
    for (auto decoder : decoders) {
      if (decoder) library.DecoderDestroy(decoder);
    }
  }
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  nvimgcodecDecoder_t decoder(bool fast_idct);
  nvimgcodecStatus_t open_stream(const EncodedImage& encoded, nvimgcodecImageInfo_t& info);
  void decode(const ImageHeader& header, const DecodeSteps& steps, bool fast_idct, void* out);

  const NvimgcodecLibrary& library = nvimgcodec();
  const CodecInstance instance;
  nvimgcodecDecoder_t decoders[2] = {};  // with the accurate and with the fast inverse DCT
  // The library reuses an existing object instead of allocating another one.
  nvimgcodecCodeStream_t stream = nullptr;
  nvimgcodecCodeStream_t window = nullptr;
  nvimgcodecImage_t image = nullptr;
};

nvimgcodecDecoder_t Codec::decoder(bool fast_idct) {
  auto& decoder = decoders[fast_idct];
  // Always interpolate chroma, as DALI's CPU decoder does; its argument `jpeg_fancy_upsampling` concerns the GPU only.
  if (!decoder) decoder = instance.make_decoder({}, fast_idct ? ":fancy_upsampling=1 :fast_idct=1" : ":fancy_upsampling=1 :fast_idct=0");
  if (!decoder) codec_error("nvImageCodec has no CPU decoder");
  return decoder;
}

nvimgcodecStatus_t Codec::open_stream(const EncodedImage& encoded, nvimgcodecImageInfo_t& info) {
  const auto status = library.CodeStreamCreateFromHostMem(instance.handle(), &stream, encoded.data, encoded.size, nullptr);
  return status == NVIMGCODEC_STATUS_SUCCESS ? library.CodeStreamGetImageInfo(stream, &info) : status;
}

void Codec::decode(const ImageHeader& header, const DecodeSteps& steps, bool fast_idct, void* out) {
  std::string messages;
  CaptureOutput capture(messages);
  // Always request a region, even for the whole image: for a region a codec writes only what was requested, and rejects one that lies
  // outside the size that it has read itself.
  const CropWindow part = steps.part ? *steps.part : CropWindow{0, 0, header.height, header.width};
  if (view_part(library, stream, part, &window) != NVIMGCODEC_STATUS_SUCCESS) codec_error("cannot decode a region of this image", messages);
  auto target = codec_image(steps, out, NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST);
  if (library.ImageCreate(instance.handle(), &image, &target) != NVIMGCODEC_STATUS_SUCCESS)
    codec_error("nvImageCodec refuses the output image", messages);

  // A batch of one: threads decode different images in parallel, each with its own decoder.
  const auto outcome = decode_images(decoder(fast_idct), {window}, {image})[0];
  if (outcome != NVIMGCODEC_PROCESSING_STATUS_SUCCESS) codec_error(describe_failure(outcome, header), messages);
}

}  // namespace

// What a decoder keeps between images. One thread uses it at a time, see ImageDecoderLease.
struct ImageDecoder::State {
  Codec all{nvimgcodec().extensions};
  // Without the OpenCV extension, to which nvImageCodec would pass what libtiff rejects, and which returns black pixels or other regions for it.
  std::unique_ptr<Codec> libtiff;
  std::vector<uint8_t> rewritten;  // see rewrite_file; must live as long as the code stream refers to it
  std::vector<uint8_t> samples, oriented;  // kept between images

  Codec& codec_of(const std::string& name, bool by_opencv);
  ImageHeader parse(const EncodedImage& encoded, ReadFor use);
  ImageHeader parse_stream(const EncodedImage& encoded, const FileHeader& own);
  void decode_samples(const EncodedImage& encoded, const ImageHeader& header, const DecodeSteps& steps, const DecodeOptions& options, void* out);
  void decode_pieces(const EncodedImage& encoded, const ImageHeader& header, const DecodeSteps& steps, bool all_channels, void* out);
  std::vector<uint8_t> decode_whole(const EncodedImage& encoded, const ImageHeader& header, DecodeSteps steps, const DecodeOptions& options);
  void decode_part_of_whole(const EncodedImage& encoded, const ImageHeader& header, const DecodeSteps& steps, const DecodeOptions& options,
                            uint8_t* out);
  void decode_scaled(const EncodedImage& encoded, const ImageHeader& header, const DecodeSteps& steps, const DecodeOptions& options, uint8_t* out);
};

Codec& ImageDecoder::State::codec_of(const std::string& name, bool by_opencv) {
  if (name != "tiff" || by_opencv) return all;
  if (!libtiff) libtiff = std::make_unique<Codec>(nvimgcodec().tiff_extensions);
  return *libtiff;
}

// The order matters: our own signatures and JPEG 2000 first, then our header check, which must succeed before nvImageCodec sees a byte.
ImageHeader ImageDecoder::State::parse(const EncodedImage& encoded, ReadFor use) {
  if (encoded.size == 0) codec_error("the file is empty");
  if (is_raw_image(encoded)) return read_raw_header(encoded);
  if (is_device_image(encoded)) return header_of_device_image(find_device_image(encoded));
  if (const char* format = format_decoded_by_python(encoded)) codec_error(format + std::string(" data were not decoded by the caller"));
  const FileHeader own = read_file_header(encoded, use != ReadFor::peek);
  if (!own.codec) reject_format(encoded);
  check_size(own, encoded, use != ReadFor::peek);
  ImageHeader header = is_enough(own, use) ? header_of(own) : parse_stream(encoded, own);
  // Trivial if the header is our own; otherwise both parsers must have found the same.
  check_same(header, own);
  if (own.orientation) header.orientation = *own.orientation;
  header.unusual = own.unusual;
  header.gamma = own.gamma;
  header.in_pieces = own.in_pieces;
  header.by_opencv = own.by_opencv;
  header.color_channels = own.color_channels;
  header.unknown_colors = own.unknown_colors;
  return header;
}

ImageHeader ImageDecoder::State::parse_stream(const EncodedImage& encoded, const FileHeader& own) {
  std::string messages;
  CaptureOutput capture(messages);
  auto info = nvimgcodec_struct<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  Codec& codec = codec_of(own.codec, own.by_opencv);
  if (own.needs_rewriting) rewritten = rewrite_file(encoded, own);
  const auto status = codec.open_stream(own.needs_rewriting ? EncodedImage{rewritten.data(), rewritten.size()} : encoded, info);
  // What our parser found unusual explains more than the library's status.
  if (status != NVIMGCODEC_STATUS_SUCCESS && !own.unusual.empty()) codec_error("no CPU decoder for " + own.unusual, messages);
  if (status != NVIMGCODEC_STATUS_SUCCESS) codec_error(describe(status), messages);
  // A damaged file can make the parser succeed without filling the planes.
  if (info.num_planes < 1 || info.num_planes > NVIMGCODEC_MAX_NUM_PLANES) {
    codec_error(own.unusual.empty() ? "the file is damaged" : "no CPU decoder for " + own.unusual, messages);
  }

  ImageHeader header{};
  header.height = info.plane_info[0].height;
  header.width = info.plane_info[0].width;
  // The number of planes was checked above: the array has NVIMGCODEC_MAX_NUM_PLANES elements.
  for (uint32_t i = 0; i < info.num_planes; ++i) header.channels += static_cast<int>(info.plane_info[i].num_channels);
  // Ours are 0, 90, 180 and 270 degrees; the remainder of a negative number would be negative.
  header.orientation = {(info.orientation.rotated % 360 + 360) % 360, info.orientation.flip_x != 0, info.orientation.flip_y != 0};
  header.is_cmyk = info.color_spec == NVIMGCODEC_COLORSPEC_CMYK || info.color_spec == NVIMGCODEC_COLORSPEC_YCCK;
  header.codec = info.codec_name;
  header.dtype = dtype_of(info.plane_info[0].sample_type);
  if (header.codec == "jpeg2k") codec_error("JPEG 2000 data were not decoded by the caller");
  return header;
}

void ImageDecoder::State::decode_samples(const EncodedImage& encoded, const ImageHeader& header, const DecodeSteps& steps,
                                         const DecodeOptions& options, void* out) {
  if (header.in_pieces) return decode_pieces(encoded, header, steps, options.type == ImageType::any, out);
  codec_of(header.codec, header.by_opencv).decode(header, steps, options.fast_idct, out);
}

void ImageDecoder::State::decode_pieces(const EncodedImage& encoded, const ImageHeader& header, const DecodeSteps& steps, bool all_channels,
                                        void* out) {
  // All offsets come from this reading of the directory, which has checked them against the file.
  const TiffImage tiff = read_tiff_image(encoded);
  const CropWindow part = steps.part ? *steps.part : CropWindow{0, 0, header.height, header.width};
  const auto decode_strips = [&](const PackedStrips& strips, int64_t first_row, int64_t rows, void* packed) {
    std::string messages;
    CaptureOutput capture(messages);
    Codec& codec = codec_of(header.codec, false);
    auto info = nvimgcodec_struct<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
    if (codec.open_stream({strips.file.data(), strips.file.size()}, info) != NVIMGCODEC_STATUS_SUCCESS)
      codec_error("the image data are damaged", messages);
    DecodeSteps strip_steps{};
    // As stored: RowUnpacker takes the samples apart.
    strip_steps.format = {NVIMGCODEC_SAMPLEFORMAT_I_UNCHANGED, NVIMGCODEC_COLORSPEC_UNCHANGED, strips.channels};
    strip_steps.samples = strips.dtype;
    strip_steps.stored = {rows, strips.width, strips.channels};
    // Only the rows that the part needs: the codec decompresses those above them, but returns no others.
    strip_steps.part = CropWindow{first_row, 0, rows, strips.width};
    codec.decode(header, strip_steps, false, packed);
  };
  decode_tiff_pieces(tiff, part, all_channels, decode_strips, out);
}

std::vector<uint8_t> ImageDecoder::State::decode_whole(const EncodedImage& encoded, const ImageHeader& header, DecodeSteps steps,
                                                       const DecodeOptions& options) {
  // The whole image, in its own type and the color format of the steps.
  steps.part.reset();
  steps.stored = {header.height, header.width, steps.format.channels};
  std::vector<uint8_t> pixels(static_cast<size_t>(header.height * header.width * steps.format.channels) * item_bytes(header.dtype));
  decode_samples(encoded, header, steps, options, pixels.data());
  return pixels;
}

// For images whose regions would differ from the same pixels of the whole image, see lacks_scans().
void ImageDecoder::State::decode_part_of_whole(const EncodedImage& encoded, const ImageHeader& header, const DecodeSteps& steps,
                                               const DecodeOptions& options, uint8_t* out) {
  const std::vector<uint8_t> pixels = decode_whole(encoded, header, steps, options);
  const CropWindow& part = *steps.part;
  const size_t pixel_bytes = static_cast<size_t>(steps.format.channels) * item_bytes(header.dtype);
  const size_t row_bytes = static_cast<size_t>(part.width) * pixel_bytes;
  for (int64_t y = 0; y < part.height; ++y)
    std::memcpy(out + static_cast<size_t>(y) * row_bytes, pixels.data() + static_cast<size_t>((part.y + y) * header.width + part.x) * pixel_bytes,
                row_bytes);
}

// If libjpeg fails, the image is decoded whole and reduced, so the same files are errors at every scale.
void ImageDecoder::State::decode_scaled(const EncodedImage& encoded, const ImageHeader& header, const DecodeSteps& steps,
                                        const DecodeOptions& options, uint8_t* out) {
  const CropWindow all{0, 0, scaled_extent(header.height, options.eighths), scaled_extent(header.width, options.eighths)};
  const CropWindow part = steps.part ? *steps.part : all;
  const JpegColors colors = steps.format.channels == 1                             ? JpegColors::gray
                            : steps.format.format == NVIMGCODEC_SAMPLEFORMAT_I_BGR ? JpegColors::bgr
                                                                                   : JpegColors::rgb;
  if (decode_scaled_jpeg({encoded, header.height, header.width, options.eighths, part, colors, options.fast_idct}, out)) return;
  const std::vector<uint8_t> pixels = decode_whole(encoded, header, steps, options);
  reduce_by_area({pixels.data(), header.height, header.width, steps.format.channels}, options.eighths, part, out);
}

ImageDecoder::ImageDecoder() : state_(std::make_unique<State>()) {}
ImageDecoder::~ImageDecoder() = default;

ImageHeader ImageDecoder::read_header(const EncodedImage& image, bool complete) {
  return state_->parse(image, complete ? ReadFor::size : ReadFor::peek);
}

void ImageDecoder::decode(const EncodedImage& image, const DecodeOptions& options, const ImageShape& shape, void* out, DType out_dtype) {
  // Parsed again, although the shapes came from a first parse: the bytes may have changed, and the code stream must refer to them.
  const ImageHeader header = state_->parse(image, ReadFor::pixels);
  const ImageShape expected = decoded_shape(header, options);
  if (expected.height != shape.height || expected.width != shape.width || expected.channels != shape.channels) {
    codec_error("the encoded image changed after the call");
  }
  if (header.codec == kDeviceCodec) codec_error("the image was decoded for a GPU");
  if (header.codec == kRawCodec) return convert_raw_image(image, header, options, out, out_dtype);
  if (header.codec == "bmp") return decode_bmp(image, header, options, out, out_dtype);

  // nvImageCodec has a limit too, but passes a file that exceeds it on to OpenCV.
  const double pixels = static_cast<double>(header.height) * static_cast<double>(header.width);
  if (header.codec == "jpeg" && has_too_many_scans(image, pixels)) reject_scans(max_scans(pixels));
  // Up to three steps, each from one buffer into the next and the last one into the output: decode, orient, convert.
  if (options.eighths < kWholeScale && !can_be_scaled(header)) codec_error("the encoded image changed after the call");
  // decode_steps() computes with the scaled image, decode_scaled() with both sizes.
  ImageHeader scaled = header;
  scaled.height = scaled_extent(header.height, options.eighths);
  scaled.width = scaled_extent(header.width, options.eighths);
  const DecodeSteps steps = decode_steps(scaled, options, shape, out_dtype);
  const bool convert = steps.convert, orient = steps.orient();
  const size_t pixel_bytes = static_cast<size_t>(steps.format.channels) * item_bytes(header.dtype);
  const size_t bytes = static_cast<size_t>(shape.height) * static_cast<size_t>(shape.width) * pixel_bytes;
  auto& samples = state_->samples;
  auto& oriented = state_->oriented;
  if (convert || orient) samples.resize(bytes);
  if (convert && orient) oriented.resize(bytes);

  void* decoded = convert || orient ? samples.data() : out;
  // Three ways to get the samples: libjpeg at a smaller scale, the whole JPEG if a region would differ, or nvImageCodec (and libtiff for pieces).
  if (options.eighths < kWholeScale) state_->decode_scaled(image, header, steps, options, static_cast<uint8_t*>(decoded));
  else if (steps.part && header.codec == "jpeg" && lacks_scans(image))
    state_->decode_part_of_whole(image, header, steps, options, static_cast<uint8_t*>(decoded));
  else state_->decode_samples(image, header, steps, options, decoded);
  if (orient) {
    void* target = convert ? oriented.data() : out;
    apply_orientation(steps.orientation, static_cast<uint8_t*>(decoded), static_cast<uint8_t*>(target), shape.height, shape.width, pixel_bytes);
    decoded = target;
  }
  if (convert) {
    convert_pixels({decoded, header.dtype, shape.height * shape.width, steps.format.channels}, steps.ordered ? ImageType::any : options.type,
                   static_cast<int>(shape.channels), out, out_dtype);
  }
  // A single huge image must not keep memory in every decoder.
  constexpr size_t kKeep = static_cast<size_t>(64) << 20;
  if (state_->rewritten.size() > kKeep) std::vector<uint8_t>().swap(state_->rewritten);
  if (samples.size() > kKeep) std::vector<uint8_t>().swap(samples);
  if (oriented.size() > kKeep) std::vector<uint8_t>().swap(oriented);
}

}  // namespace ndd
