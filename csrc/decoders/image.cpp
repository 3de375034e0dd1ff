// SPDX-License-Identifier: Apache-2.0
// decoders.image and decoders.image_random_crop on the CPU.
#include "decoders/image_decoder.h"
#include "decoders/nvimgcodec_library.h"
#include "ndd/args.h"
#include "ndd/error.h"
#include "ndd/kernel.h"
#include "ndd/samples.h"
#include "ndd/stream.h"

#include <sstream>

namespace ndd {
namespace {

EncodedImage encoded_image(const Samples& files, int64_t i) {
  return {static_cast<const uint8_t*>(files.data(i)), size_t(files.volume(i))};
}

// The line of `sources`, the names of the files, that belongs to sample i.
std::string source_of(const std::string& sources, int64_t i) {
  size_t begin = 0;
  for (; i > 0 && begin < sources.size(); --i) {
    const size_t end = sources.find('\n', begin);
    begin = end == std::string::npos ? sources.size() : end + 1;
  }
  return sources.substr(begin, sources.find('\n', begin) - begin);
}

// Runs `work` and names the operator, the sample and its file in whatever it throws.
template <class F>
void for_sample(const std::string& op, const std::string& sources, int64_t i, F work) {
  try {
    work();
  } catch (const Error& error) {
    const std::string source = source_of(sources, i);
    throw Error(error.kind(), op + ": sample " + std::to_string(i) + (source.empty() ? "" : " (" + source + ")") + ": " + error.what());
  }
}

// Fills `out` (N, 4) with height, width, channels and whether the sample is JPEG 2000, whose size this does not read. Reading a JPEG header
// takes 0.8 us, so it is read again for the decoding.
void image_shapes(const Tensor& input, const MaybeTensor& input_shapes, std::string op, std::string sources, std::string output_type,
                  bool adjust_orientation, const Tensor& out) {
  const Samples files(input, input_shapes);
  const DecodeOptions options{image_type_from_name(output_type), adjust_orientation, false, {}};
  auto* row = out.mutable_data_ptr<int64_t>();
  ImageDecoderLease decoder;
  for (int64_t i = 0; i < files.size(); ++i, row += 4) {
    for_sample(op, sources, i, [&] {
      const EncodedImage file = encoded_image(files, i);
      if (is_jpeg2000(file)) {
        row[0] = row[1] = row[2] = 0;
        row[3] = 1;
        return;
      }
      const ImageShape shape = decoded_shape(decoder->read_header(file), options);
      row[0] = shape.height;
      row[1] = shape.width;
      row[2] = shape.channels;
      row[3] = 0;
    });
  }
}

// `windows` (N, 4): y, x, height, width in the image as delivered.
void decode_image(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& windows, std::string op, std::string sources,
                  std::string output_type, bool adjust_orientation, bool fast_idct, const Tensor& out, const MaybeTensor& out_shapes) {
  const Samples files(input, input_shapes), images(out, out_shapes);
  const DecodeOptions whole{image_type_from_name(output_type), adjust_orientation, fast_idct, {}};
  constexpr double kNanosecondsPerByte = 10;  // of output; 500 us for 500x375 RGB from JPEG
  const double cost = files.size() ? kNanosecondsPerByte * double(images.volume(0)) : 0;
  launch_cpu(op, files.size(), cost, {input, out}, [=](int64_t i) {
    for_sample(op, sources, i, [&] {
      DecodeOptions options = whole;
      if (windows) {
        const Args<int64_t> window(*windows);
        options.window = CropWindow{window(i, 0), window(i, 1), window(i, 2), window(i, 3)};
      }
      ImageDecoderLease decoder;
      const int64_t* shape = images.shape(i);
      decoder->decode(encoded_image(files, i), options, {shape[0], shape[1], shape[2]}, images.data(i), images.dtype());
    });
  });
}

}  // namespace

NDD_KERNEL(image_shapes, CPU, image_shapes)
NDD_KERNEL(decoders_image, CPU, decode_image)
NDD_KERNEL(decoders_image_random_crop, CPU, decode_image)

}  // namespace ndd

// Called through ctypes before the first decoding. `extensions` are paths, one a line. Returns the reason of a failure, or null.
extern "C" __attribute__((visibility("default"))) const char* ndd_load_image_codecs(const char* library, const char* extensions) {
  static std::string reason;
  try {
    std::vector<std::string> paths;
    std::istringstream lines(extensions);
    for (std::string line; std::getline(lines, line);) paths.push_back(line);
    ndd::load_nvimgcodec(library, paths);
    return nullptr;
  } catch (const std::exception& error) {
    reason = error.what();
    return reason.c_str();
  }
}
