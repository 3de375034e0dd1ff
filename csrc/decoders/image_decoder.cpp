// SPDX-License-Identifier: Apache-2.0
#include "decoders/image_decoder.h"

#include "decoders/captured_output.h"
#include "decoders/decoded_pixels.h"
#include "decoders/nvimgcodec_library.h"
#include "decoders/raw_image.h"
#include "decoders/reclaimed_arrays.h"
#include "decoders/webp_exif.h"
#include "ndd/error.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace ndd {
namespace {

// OpenCV refuses larger images as well, and a damaged header easily promises more.
constexpr int64_t kMaxPixels = int64_t(1) << 30;

[[noreturn]] void fail(std::string reason, std::string details = {}) {
  while (!details.empty() && (details.back() == '\n' || details.back() == ' ')) details.pop_back();
  for (char& c : details) {
    if (c == '\n') c = ';';
    if (c < ' ' || c > '~') c = '?';  // libpng quotes the damaged bytes
  }
  throw Error(Error::Runtime, details.empty() ? reason : reason + " (" + details + ")");
}

const char* describe(nvimgcodecStatus_t status) {
  switch (status) {
    case NVIMGCODEC_STATUS_BAD_CODESTREAM: return "the file is damaged";
    case NVIMGCODEC_STATUS_CODESTREAM_UNSUPPORTED: return "not an image of a supported format";
    case NVIMGCODEC_STATUS_ALLOCATOR_FAILURE: return "out of memory";
    default: return "cannot read the image header";
  }
}

// Also tells the image it got wrong from the image it cannot do: the first bit only says that it failed.
const char* describe_failure(nvimgcodecProcessingStatus_t status) {
  if (status == NVIMGCODEC_PROCESSING_STATUS_IMAGE_CORRUPTED || status == NVIMGCODEC_PROCESSING_STATUS_FAIL) return "the image data are damaged";
  return "no CPU decoder for this kind of image";
}

DType dtype_of(nvimgcodecSampleDataType_t type) {
  switch (type) {
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8: return DType::uint8;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16: return DType::uint16;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_UINT32: return DType::uint32;
    case NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT32: return DType::float32;
    default: fail("no CPU decoder for images with this sample type");
  }
}

nvimgcodecSampleDataType_t sample_type_of(DType dtype) {
  switch (dtype) {
    case DType::uint8: return NVIMGCODEC_SAMPLE_DATA_TYPE_UINT8;
    case DType::uint16: return NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16;
    case DType::uint32: return NVIMGCODEC_SAMPLE_DATA_TYPE_UINT32;
    default: return NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT32;
  }
}

// Bits of a pixel of a PNG: the header's bytes 24 and 25 are the bits of a sample and what samples a pixel has.
int png_bits(const EncodedImage& file) {
  if (file.size < 26) return 1;
  const int type = file.data[25];
  return std::max<int>(file.data[24], 1) * (type == 2 ? 3 : type == 4 ? 2 : type == 6 ? 4 : 1);
}

// Whether all chunks of a PNG, each with its length in front, lie inside of the file. OpenCV fills memory of the promised length with zeros before it
// reads a chunk: 4 GB and 2 s for 128 bytes. A file without its end is refused by it too.
bool png_chunks_fit(const EncodedImage& file) {
  for (size_t at = 8; at + 12 <= file.size;) {
    const uint8_t* p = file.data + at;
    const size_t length = size_t(p[0]) << 24 | size_t(p[1]) << 16 | size_t(p[2]) << 8 | size_t(p[3]);
    if (length > file.size - at - 12) return false;
    if (!std::memcmp(p + 4, "IEND", 4)) return true;
    at += 12 + length;
  }
  return true;
}

// Whether a file of this size can hold so many pixels, so that a damaged size is refused before the output is allocated. JPEG: Huffman coding
// spends a bit at least on each 8x8 block, which covers up to 16x16 pixels where luma is subsampled, so 2048 pixels a byte. PNG: deflate
// shrinks at most 1032-fold. PNM: a pixel has a bit at least. A blank TIFF or WebP has no such bound.
bool can_hold(const ImageHeader& header, const EncodedImage& file) {
  const double pixels = double(header.height) * double(header.width);
  const double size = double(file.size);
  if (header.codec == "jpeg") return pixels <= 2048 * size;
  if (header.codec == "png") return pixels * png_bits(file) <= 8 * 1032 * size;
  if (header.codec == "pnm") return pixels <= 8 * size;
  return true;
}

// What the codec is asked for. Everything else is done on the decoded samples.
struct CodecOutput {
  nvimgcodecSampleFormat_t format;
  nvimgcodecColorSpec_t color;
  int channels;
};

CodecOutput codec_output(const ImageHeader& header, ImageType type) {
  const CodecOutput rgb{NVIMGCODEC_SAMPLEFORMAT_I_RGB, NVIMGCODEC_COLORSPEC_SRGB, 3};
  const CodecOutput gray{NVIMGCODEC_SAMPLEFORMAT_I_Y, NVIMGCODEC_COLORSPEC_GRAY, 1};
  switch (type) {
    case ImageType::rgb:
    case ImageType::ycbcr: return rgb;
    case ImageType::bgr: return {NVIMGCODEC_SAMPLEFORMAT_I_BGR, NVIMGCODEC_COLORSPEC_SRGB, 3};
    case ImageType::gray: return header.is_cmyk ? rgb : gray;
    case ImageType::any: break;
  }
  // Not "unchanged": for a grayscale JPEG the library then writes three channels into a buffer of one.
  if (header.channels == 1) return gray;
  if (header.channels == 3) return rgb;
  // Asked for RGBA, the TIFF decoder multiplies the colours by alpha.
  if (header.codec == "tiff") return {NVIMGCODEC_SAMPLEFORMAT_I_UNCHANGED, NVIMGCODEC_COLORSPEC_UNCHANGED, header.channels};
  // Gray and alpha are picked out of RGBA.
  const bool has_alpha = header.channels == 2 || header.channels == 4;
  if (has_alpha && !header.is_cmyk) return {NVIMGCODEC_SAMPLEFORMAT_I_RGBA, NVIMGCODEC_COLORSPEC_SRGB, 4};
  fail("output_type=ANY_DATA is not supported for " + std::string(header.is_cmyk ? "CMYK" : "multi-channel") + " images of this format");
}

}  // namespace

ImageType image_type_from_name(const std::string& name) {
  if (name == "RGB") return ImageType::rgb;
  if (name == "BGR") return ImageType::bgr;
  if (name == "GRAY") return ImageType::gray;
  if (name == "YCbCr") return ImageType::ycbcr;
  if (name == "ANY_DATA") return ImageType::any;
  throw Error(Error::Value, "decoders.image: output_type must be RGB, BGR, GRAY, YCbCr or ANY_DATA, got " + name);
}

bool is_jpeg2000(const EncodedImage& image) {
  static constexpr uint8_t kFile[12] = {0, 0, 0, 12, 'j', 'P', ' ', ' ', 13, 10, 0x87, 10};
  static constexpr uint8_t kCodestream[4] = {0xff, 0x4f, 0xff, 0x51};
  // Eight bytes of the box are enough for the library's parser, so they are enough here.
  return (image.size >= 8 && !std::memcmp(image.data, kFile, 8)) || (image.size >= 4 && !std::memcmp(image.data, kCodestream, 4));
}

ImageShape decoded_shape(const ImageHeader& header, const DecodeOptions& options) {
  ImageShape shape{header.height, header.width, 3};
  if (options.adjust_orientation && header.orientation.swaps_axes()) std::swap(shape.height, shape.width);
  if (options.window) {
    const CropWindow& w = *options.window;
    if (w.y < 0 || w.x < 0 || w.height < 1 || w.width < 1 || w.height > shape.height - w.y || w.width > shape.width - w.x) {
      throw Error(Error::Value, "the window y=" + std::to_string(w.y) + " x=" + std::to_string(w.x) + " height=" + std::to_string(w.height) +
                                    " width=" + std::to_string(w.width) + " does not lie inside the image of height " +
                                    std::to_string(shape.height) + " and width " + std::to_string(shape.width));
    }
    shape.height = w.height;
    shape.width = w.width;
  }
  if (options.type == ImageType::gray) shape.channels = 1;
  if (options.type == ImageType::any) shape.channels = header.channels;
  return shape;
}

struct ImageDecoder::State {
  const NvimgcodecLibrary& library = nvimgcodec();
  nvimgcodecInstance_t instance = nullptr;
  nvimgcodecDecoder_t decoders[2] = {};  // with the accurate and with the fast inverse DCT
  // The library fills an existing object again instead of allocating another.
  nvimgcodecCodeStream_t stream = nullptr;
  nvimgcodecCodeStream_t window = nullptr;
  nvimgcodecImage_t image = nullptr;
  std::vector<uint8_t> rewritten;          // the file, where the parser needs another one
  std::vector<uint8_t> samples, oriented;  // kept between images

  State() {
    auto messenger = nvimgcodec_struct<nvimgcodecDebugMessengerDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_DEBUG_MESSENGER_DESC);
    messenger.message_severity = NVIMGCODEC_DEBUG_MESSAGE_SEVERITY_DEFAULT;
    messenger.message_category = NVIMGCODEC_DEBUG_MESSAGE_CATEGORY_ALL;
    messenger.user_callback = [](nvimgcodecDebugMessageSeverity_t, nvimgcodecDebugMessageCategory_t, const nvimgcodecDebugMessageData_t* data, void*) {
      capture_message(data->message, std::strlen(data->message));
      capture_message("\n", 1);
      return 1;
    };
    auto create = nvimgcodec_struct<nvimgcodecInstanceCreateInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
    create.load_builtin_modules = 1;  // the parsers
    create.create_debug_messenger = 1;
    create.debug_messenger_desc = &messenger;
    if (library.InstanceCreate(&instance, &create) != NVIMGCODEC_STATUS_SUCCESS) fail("nvImageCodec cannot be initialised");
    for (auto entry : library.extensions) {
      auto description = nvimgcodec_struct<nvimgcodecExtensionDesc_t>(NVIMGCODEC_STRUCTURE_TYPE_EXTENSION_DESC);
      nvimgcodecExtension_t extension = nullptr;
      if (entry(&description) != NVIMGCODEC_STATUS_SUCCESS || library.ExtensionCreate(instance, &extension, &description) != NVIMGCODEC_STATUS_SUCCESS) {
        library.InstanceDestroy(instance);
        fail("nvImageCodec refuses one of its own extensions");
      }
    }
  }

  ~State() {
    if (window) library.CodeStreamDestroy(window);
    if (stream) library.CodeStreamDestroy(stream);
    if (image) library.ImageDestroy(image);
    for (auto decoder : decoders) {
      if (decoder) library.DecoderDestroy(decoder);
    }
    library.InstanceDestroy(instance);
  }

  nvimgcodecDecoder_t decoder(bool fast_idct);
  nvimgcodecStatus_t open_stream(const EncodedImage& encoded, nvimgcodecImageInfo_t& info);
  ImageHeader parse(const EncodedImage& encoded);
  void decode_samples(const std::optional<CropWindow>& part, bool fast_idct, const CodecOutput& format, DType dtype, const ImageShape& shape, void* out);
};

namespace {

// The library's own pool has a thread even for one image; work that stays on the caller's thread saves the hand-over and survives a fork.
nvimgcodecStatus_t schedule(void*, int, int sample, void* context, void (*task)(int, int, void*)) {
  task(0, sample, context);
  return NVIMGCODEC_STATUS_SUCCESS;
}

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

nvimgcodecDecoder_t ImageDecoder::State::decoder(bool fast_idct) {
  auto& decoder = decoders[fast_idct];
  if (decoder) return decoder;
  auto backend = nvimgcodec_struct<nvimgcodecBackend_t>(NVIMGCODEC_STRUCTURE_TYPE_BACKEND);
  backend.kind = NVIMGCODEC_BACKEND_KIND_CPU_ONLY;
  backend.params = nvimgcodec_struct<nvimgcodecBackendParams_t>(NVIMGCODEC_STRUCTURE_TYPE_BACKEND_PARAMS);
  backend.params.load_hint = 1;
  backend.params.load_hint_policy = NVIMGCODEC_LOAD_HINT_POLICY_IGNORE;
  auto execution = nvimgcodec_struct<nvimgcodecExecutionParams_t>(NVIMGCODEC_STRUCTURE_TYPE_EXECUTION_PARAMS);
  execution.max_num_cpu_threads = 1;
  execution.executor = calling_thread();
  execution.device_id = NVIMGCODEC_DEVICE_CPU_ONLY;
  execution.num_backends = 1;
  execution.backends = &backend;
  // Smooth chroma upsampling always: DALI's CPU decoder has no other, its `jpeg_fancy_upsampling` speaks of the GPU.
  const char* options = fast_idct ? ":fancy_upsampling=1 :fast_idct=1" : ":fancy_upsampling=1 :fast_idct=0";
  if (library.DecoderCreate(instance, &decoder, &execution, options) != NVIMGCODEC_STATUS_SUCCESS) fail("nvImageCodec has no CPU decoder");
  return decoder;
}

nvimgcodecStatus_t ImageDecoder::State::open_stream(const EncodedImage& encoded, nvimgcodecImageInfo_t& info) {
  const auto status = library.CodeStreamCreateFromHostMem(instance, &stream, encoded.data, encoded.size, nullptr);
  return status == NVIMGCODEC_STATUS_SUCCESS ? library.CodeStreamGetImageInfo(stream, &info) : status;
}

ImageHeader ImageDecoder::State::parse(const EncodedImage& encoded) {
  if (encoded.size == 0) fail("the file is empty");
  if (is_raw_image(encoded)) return read_raw_header(encoded);
  if (is_jpeg2000(encoded)) fail("JPEG 2000 data were not decoded by the caller");
  std::string messages;
  CaptureOutput capture(messages);
  auto info = nvimgcodec_struct<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  auto status = open_stream(encoded, info);
  if (status != NVIMGCODEC_STATUS_SUCCESS && is_webp_with_exif(encoded)) {
    rewritten = without_padding(encoded);
    status = open_stream({rewritten.data(), rewritten.size()}, info);
    const auto orientation = info.orientation;
    rewritten = without_exif(encoded);
    if (status == NVIMGCODEC_STATUS_SUCCESS) status = open_stream({rewritten.data(), rewritten.size()}, info);
    info.orientation = orientation;
  }
  if (status != NVIMGCODEC_STATUS_SUCCESS) fail(describe(status), messages);
  if (info.num_planes < 1 || info.num_planes > NVIMGCODEC_MAX_NUM_PLANES) fail("the file is damaged", messages);

  ImageHeader header{};
  header.height = info.plane_info[0].height;
  header.width = info.plane_info[0].width;
  for (uint32_t i = 0; i < info.num_planes; ++i) header.channels += int(info.plane_info[i].num_channels);
  header.orientation = {(info.orientation.rotated % 360 + 360) % 360, info.orientation.flip_x != 0, info.orientation.flip_y != 0};
  header.is_cmyk = info.color_spec == NVIMGCODEC_COLORSPEC_CMYK || info.color_spec == NVIMGCODEC_COLORSPEC_YCCK;
  header.codec = info.codec_name;
  header.dtype = dtype_of(info.plane_info[0].sample_type);
  if (header.codec == "jpeg2k") fail("JPEG 2000 data were not decoded by the caller");
  if (header.codec == "png" && !png_chunks_fit(encoded)) fail("the file is damaged (a chunk is longer than the file)", messages);
  if (header.height < 1 || header.width < 1 || header.channels < 1 || header.height > kMaxPixels / header.width || !can_hold(header, encoded)) {
    fail("the header promises " + std::to_string(header.height) + "x" + std::to_string(header.width) + " pixels, which a file of " +
         std::to_string(encoded.size) + " bytes cannot hold");
  }
  return header;
}

void ImageDecoder::State::decode_samples(const std::optional<CropWindow>& part, bool fast_idct, const CodecOutput& format, DType dtype,
                                         const ImageShape& shape, void* out) {
  std::string messages;
  CaptureOutput capture(messages);
  auto source = stream;
  if (part) {
    auto view = nvimgcodec_struct<nvimgcodecCodeStreamView_t>(NVIMGCODEC_STRUCTURE_TYPE_CODE_STREAM_VIEW);
    view.region = nvimgcodec_struct<nvimgcodecRegion_t>(NVIMGCODEC_STRUCTURE_TYPE_REGION);
    view.region.ndim = 2;
    view.region.start[0] = int(part->y);
    view.region.start[1] = int(part->x);
    view.region.end[0] = int(part->y + part->height);
    view.region.end[1] = int(part->x + part->width);
    const auto status = library.CodeStreamGetSubCodeStream(stream, &window, &view);
    if (status != NVIMGCODEC_STATUS_SUCCESS) fail("cannot decode a region of this image", messages);
    source = window;
  }
  auto target = nvimgcodec_struct<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
  target.sample_format = format.format;
  target.color_spec = format.color;
  target.orientation = nvimgcodec_struct<nvimgcodecOrientation_t>(NVIMGCODEC_STRUCTURE_TYPE_ORIENTATION);
  target.num_planes = 1;
  auto& plane = target.plane_info[0];
  plane = nvimgcodec_struct<nvimgcodecImagePlaneInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_PLANE_INFO);
  plane.height = uint32_t(shape.height);
  plane.width = uint32_t(shape.width);
  plane.num_channels = uint32_t(format.channels);
  plane.row_stride = size_t(shape.width) * size_t(format.channels) * item_bytes(dtype);
  plane.sample_type = sample_type_of(dtype);
  target.buffer = out;
  target.buffer_kind = NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_HOST;
  if (library.ImageCreate(instance, &image, &target) != NVIMGCODEC_STATUS_SUCCESS) fail("nvImageCodec refuses the output image", messages);

  auto params = nvimgcodec_struct<nvimgcodecDecodeParams_t>(NVIMGCODEC_STRUCTURE_TYPE_DECODE_PARAMS);
  nvimgcodecFuture_t future = nullptr;
  ReclaimArrays reclaim;
  const auto status = library.DecoderDecode(decoder(fast_idct), &source, &image, 1, &params, &future);
  nvimgcodecProcessingStatus_t outcome = NVIMGCODEC_PROCESSING_STATUS_FAIL;
  if (future) {
    size_t count = 1;
    library.FutureWaitForAll(future);
    library.FutureGetProcessingStatus(future, &outcome, &count);
    library.FutureDestroy(future);
  }
  if (status != NVIMGCODEC_STATUS_SUCCESS || outcome != NVIMGCODEC_PROCESSING_STATUS_SUCCESS) fail(describe_failure(outcome), messages);
}

ImageDecoder::ImageDecoder() : state_(std::make_unique<State>()) {}
ImageDecoder::~ImageDecoder() = default;

ImageHeader ImageDecoder::read_header(const EncodedImage& image) { return state_->parse(image); }

void ImageDecoder::decode(const EncodedImage& image, const DecodeOptions& options, const ImageShape& shape, void* out, DType out_dtype) {
  const ImageHeader header = state_->parse(image);
  const ImageShape expected = decoded_shape(header, options);
  if (expected.height != shape.height || expected.width != shape.width || expected.channels != shape.channels) {
    fail("the encoded image changed after the call");
  }
  if (header.codec == kRawCodec) return convert_raw_image(image, header, options, out, out_dtype);

  const Orientation orientation = options.adjust_orientation ? header.orientation : Orientation{};
  ImageShape stored = shape;
  if (orientation.swaps_axes()) std::swap(stored.height, stored.width);
  std::optional<CropWindow> part = options.window;
  if (part) {
    const bool swapped = orientation.swaps_axes();
    part = stored_window(orientation, *part, swapped ? header.width : header.height, swapped ? header.height : header.width);
  }

  // Three steps, each into the next buffer, the last one into the output: decode, orient, convert.
  const CodecOutput format = codec_output(header, options.type);
  const bool ordered = format.channels == shape.channels && options.type != ImageType::ycbcr;  // the codec has done the channels
  const bool convert = !ordered || header.dtype != out_dtype;
  const bool orient = !orientation.none();
  const size_t pixel_bytes = size_t(format.channels) * item_bytes(header.dtype);
  const size_t bytes = size_t(shape.height) * size_t(shape.width) * pixel_bytes;
  auto& samples = state_->samples;
  auto& oriented = state_->oriented;
  if (convert || orient) samples.resize(bytes);
  if (convert && orient) oriented.resize(bytes);

  void* decoded = convert || orient ? samples.data() : out;
  state_->decode_samples(part, options.fast_idct, format, header.dtype, stored, decoded);
  if (orient) {
    void* target = convert ? oriented.data() : out;
    apply_orientation(orientation, static_cast<uint8_t*>(decoded), static_cast<uint8_t*>(target), shape.height, shape.width, pixel_bytes);
    decoded = target;
  }
  if (convert) {
    convert_pixels({decoded, header.dtype, shape.height * shape.width, format.channels}, ordered ? ImageType::any : options.type,
                   int(shape.channels), out, out_dtype);
  }
  // One huge image must not cost every decoder its memory for ever.
  constexpr size_t kKeep = size_t(64) << 20;
  if (samples.size() > kKeep) std::vector<uint8_t>().swap(samples);
  if (oriented.size() > kKeep) std::vector<uint8_t>().swap(oriented);
}

}  // namespace ndd
