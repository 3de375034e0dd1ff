// SPDX-License-Identifier: Apache-2.0
// The kernels of the image decoders on the CPU.
#include "decoders/cache/image_cache.h"
#include "decoders/codecs/nvimgcodec_library.h"
#include "decoders/image_samples.h"
#include "ndd/args.h"
#include "ndd/error.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/stream/stream.h"

#include <algorithm>
#include <cstring>
#include <sstream>

namespace ndd {
namespace {

// Guards against decompression bombs. Up to four channels count as one pixel, so images with more channels cannot exceed the memory
// that `max_pixels` stands for.
void check_pixels(const ImageHeader& header, int64_t max_pixels) {
  // Divisions instead of products, which could overflow.
  const int64_t planes = (header.channels + 3) / 4;
  if (header.height <= max_pixels / header.width / planes) return;
  const std::string channels = planes > 1 ? "x" + std::to_string(header.channels) + ", which count as " : " = ";
  fail("the image has ", header.height, "x", header.width, channels, header.height * header.width * planes,
       " pixels, more than max_pixels=", max_pixels,
       ", the guard against decompression bombs; pass a larger max_pixels, or set TORCH_NDD_MAX_PIXELS");
}

// Fills `shapes` (N, 3) with height, width and channels, and `kinds` (N): 1 for formats that Python decodes, whose size it reads, 2 for files
// that can be decoded at a fraction of their size, else 0. All are zero for a sample with a reason. Files may be incomplete if only the sizes
// are needed. The headers are not kept: reading that of a JPEG takes 0.8 us, and the file may change before it is decoded.
void image_shapes(const Tensor& input, const MaybeTensor& input_shapes, std::string op, std::string output_type, bool adjust_orientation,
                  int64_t max_pixels, bool complete, const MaybeTensor& errors, const Tensor& shapes, const Tensor& kinds) {
  const Samples files(input, input_shapes);
  const Reasons reasons(errors, files.size());
  check_numbers(shapes);
  check_numbers(kinds);
  if (shapes.dtype() != DType::int64 || kinds.dtype() != DType::int64 || shapes.numel() != 3 * files.size() || kinds.numel() != files.size())
    fail(Error::Value, op, ": shapes and kinds must be int64, with three numbers and one for each of ", files.size(), " files");
  const DecodeOptions options{image_type_from_name(output_type), adjust_orientation, false, {}};
  auto *row = static_cast<int64_t*>(shapes.data_ptr()), *kind = static_cast<int64_t*>(kinds.data_ptr());
  ImageDecoderLease decoder;
  int64_t values = 0;
  for (int64_t i = 0; i < files.size(); ++i, row += 3, ++kind) {
    row[0] = row[1] = row[2] = *kind = 0;
    try_sample(reasons, op, i, [&] {
      const EncodedImage file = encoded_image(files, i);
      if (format_decoded_by_python(file)) {
        *kind = 1;
        return;
      }
      const ImageHeader header = decoder->read_header(file, complete);
      check_pixels(header, max_pixels);
      const ImageShape shape = decoded_shape(header, options);
      row[0] = shape.height;
      row[1] = shape.width;
      row[2] = shape.channels;
      values += shape.height * shape.width * shape.channels;
      *kind = can_be_scaled(header) ? 2 : 0;
    });
  }
  // Headers of incomplete files are only peeked at, not decoded.
  if (complete) count_images(files.size(), values);
}

// Decodes images. `windows`: see options_of(). `cache` is the number of a cache, or 0. If there are `errors`, a sample that cannot be
// decoded becomes zeros; otherwise it fails the work. The parameters without names are for a GPU.
void decode_image(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& windows, std::string op, std::string output_type,
                  bool adjust_orientation, bool fast_idct, int64_t cache, const MaybeTensor& errors, std::string, double, int64_t, const Tensor& out,
                  const MaybeTensor& out_shapes) {
  const Samples files(input, input_shapes), images(out, out_shapes);
  check_images(op, files, images);
  const Reasons reasons(errors, files.size());
  const DecodeOptions whole{image_type_from_name(output_type), adjust_orientation, fast_idct, {}};
  constexpr double kNanosecondsPerByte = 10;  // of output; a JPEG of 500x375 takes 500 us
  const double cost = files.size() ? kNanosecondsPerByte * static_cast<double>(images.volume(0)) : 0;
  launch_cpu(op, files.size(), cost, {input, out}, [=, kept = image_cache(cache)](int64_t i) {
    const bool decoded = try_sample(reasons, op, i, [&] {
      ImageDecoderLease decoder;
      const DecodeOptions options = options_of(whole, windows, i);
      if (kept) kept->decode(*decoder.operator->(), encoded_image(files, i), options, shape_of(images, i), images.data(i), images.dtype());
      else decoder->decode(encoded_image(files, i), options, shape_of(images, i), images.data(i), images.dtype());
    });
    if (!decoded) std::memset(images.data(i), 0, static_cast<size_t>(images.volume(i)) * item_bytes(images.dtype()));
  });
}

}  // namespace

NDD_KERNEL(image_shapes, CPU, image_shapes)
NDD_KERNEL(decoders_image, CPU, decode_image)
NDD_KERNEL(decoders_image_crop, CPU, decode_image)
NDD_KERNEL(decoders_image_random_crop, CPU, decode_image)
NDD_KERNEL(decoders_image_slice, CPU, decode_image)

}  // namespace ndd

// Called by Python before the first image is decoded, and with an empty `library` before the first on a GPU. `extensions` are paths, one
// per line; `patch`: see load_nvimgcodec(). Returns the reason of a failure, or null.
NDD_EXPORT(release, const char*, ndd_load_image_codecs, (const char* library, const char* extensions, int patch)) {
  thread_local std::string reason;
  try {
    std::vector<std::string> paths;
    std::istringstream lines(extensions);
    for (std::string line; std::getline(lines, line);) paths.push_back(line);
    if (*library) ndd::load_nvimgcodec(library, paths, patch != 0);
    else ndd::load_gpu_extensions(paths);
    return nullptr;
  } catch (const std::exception& error) {
    reason = error.what();
    return reason.c_str();
  }
}

// Whether load_gpu_extensions() has loaded an extension, by name.
NDD_EXPORT(keep, int, ndd_has_gpu_extension, (const char* name)) {
  try {
    return static_cast<int>(ndd::nvimgcodec().gpu_extensions.count(name));
  } catch (const std::exception&) {
    return 0;  // no codec is loaded yet
  }
}
