// SPDX-License-Identifier: Apache-2.0
// The kernels of the image decoders with device="gpu": files in host memory, pixels on the GPU.
//
// Baseline JPEGs go to the hardware engine, which has a thread of its own (jpeg_engine.h), and to CUDA, on the CPU threads of the context; both take them
// from one queue (waiting_images.h). The threads give other files to the GPU's codecs too (gpu_codecs.h). What is left, and what the codecs reject, is
// decoded by the CPU to pinned memory and uploaded. Each decoder has its own stream, and the stream of the call waits for it. The tasks run on the CPU
// stream, so the call returns immediately.
#include "decoders/gpu/device_images.h"
#include "decoders/gpu/gpu_codecs.h"
#include "decoders/image_samples.h"

#ifdef USE_CUDA

#include "decoders/gpu/gpu_decoder.h"
#include "decoders/gpu/gpu_pixels.h"
#include "decoders/gpu/jpeg_engine.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/stream/scheduler.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace ndd {
namespace {

// DALI's default. With it, the engine and the threads divide the images as they go, so the decoder of an image, and the last bits of its pixels,
// may differ from run to run. Any other value is used as it is, which makes runs reproducible.
constexpr double kDefaultHardwareLoad = 0.65;

bool suits_engine(const EncodedImage& file, const ImageHeader& header) {
  return suits_hardware(file) && gpu_codec_of(file, header) == GpuCodec::jpeg;
}

// nvImageCodec 0.9.0 is reported to fail or crash on some GPUs when it decodes regions. With TORCH_NDD_GPU_REGIONS=0 JPEGs are decoded whole.
bool decodes_regions() {
  static const bool allowed = [] {
    const char* text = std::getenv("TORCH_NDD_GPU_REGIONS");
    return !text || std::strcmp(text, "0") != 0;
  }();
  return allowed;
}

// Chooses the share of a batch that the user gives to the engine.
std::vector<int64_t> choose_for_engine(const Samples& files, ImageType type, double load) {
  const auto wanted = static_cast<size_t>(std::lround(load * static_cast<double>(files.size())));
  std::vector<int64_t> chosen;
  ImageDecoderLease decoder;
  int channels = 0;
  for (int64_t i = 0; i < files.size() && chosen.size() < wanted; ++i) {
    try {
      const ImageHeader header = decoder->read_header(encoded_image(files, i));
      if (!suits_engine(encoded_image(files, i), header)) continue;
      // The hardware decodes one format per call; only ImageType::any has several.
      if (type == ImageType::any && channels != 0 && channels != header.channels) continue;
      channels = header.channels;
    } catch (const std::exception&) {
      continue;  // its task reports the error
    }
    chosen.push_back(i);
  }
  return chosen;
}

class GpuCall final : public EngineBatch {
 public:
  GpuCall(GpuDecoders& decoders, const Tensor& input, const Samples& files, const Samples& images, const MaybeTensor& windows, const Reasons& reasons,
          const std::string& op, const DecodeOptions& options, const std::string& gpu_options, double load, int64_t done)
      : EngineBatch(files.size(), is_tuned(load) || !decoders.has_hardware ? std::vector<int64_t>() : choose_for_engine(files, options.type, load),
                    !is_tuned(load) || !decoders.has_hardware),
        input_(input), files_(files), images_(images), windows_(windows), reasons_(reasons), op_(op), whole_(options), gpu_options_(gpu_options),
        decoders_(decoders), stream_(current_cuda_stream()), done_(reinterpret_cast<cudaEvent_t>(done)), tuned_(is_tuned(load)),
        to_start_(files.size()), to_end_(files.size()) {
    check_cuda(cudaEventCreateWithFlags(&begin_, cudaEventDisableTiming | cudaEventBlockingSync), op.c_str());
    check_cuda(cudaEventRecord(begin_, stream_), op.c_str());
  }
  ~GpuCall() {
    decoders_.queue.remove(*this);
    cudaEventDestroy(begin_);
  }

  // One of as many tasks as there are images.
  void run() {
    struct End {
      GpuCall& call;
      // Also after an exception: what was issued must end before the memory is reused.
      ~End() { call.end_task(); }
    } end{*this};
    // The engine begins with the first task, when everything that the call reads is there.
    std::call_once(offered_, [this] { decoders_.queue.add(*this); });
    const bool is_last = --to_start_ == 0;
    std::vector<int64_t> images;
    do {
      images = decoders_.queue.take_for_thread(*this, scheduler().default_pool()->limit, is_last);
      const Taken taken{decoders_.queue, static_cast<int64_t>(images.size())};
      decode(images);
    } while (is_last && !images.empty());
  }

  std::vector<int64_t> decode_by_engine(GpuDecoder& decoder, const std::vector<int64_t>& samples) noexcept override {
    std::vector<int64_t> refused;
    try {
      issue_to_engine(decoder, samples, refused);
    } catch (const std::exception&) {
      return samples;  // the threads report the error
    }
    return refused;
  }

  Tensor files() const override { return input_; }

 private:
  struct Image {
    std::vector<uint8_t> rewritten;  // what the codec gets in place of the file, if anything
    GpuJob job;
    std::optional<CudaBuffer> stored;  // the codec's samples, if they are not the output
    DevicePixels pixels;  // the steps that remain then
  };

  // Images that a thread decodes in its scope, even if one of them fails.
  struct Taken {
    ImageQueue& queue;
    int64_t images;
    ~Taken() { queue.report_decoded(images); }
  };

  static bool is_tuned(double load) { return load == kDefaultHardwareLoad; }

  void end_task() {
    if (--to_end_ == 0 && done_) cudaEventRecord(done_, stream_);  // an error of the device is reported by its next user
  }

  // What the codec is asked for, and what finish_pixels() does with its samples on the GPU: cutting, turning, colors, type.
  Image prepare(int64_t i, const ImageHeader& header, GpuCodec codec) const {
    const EncodedImage file = encoded_image(files_, i);
    const DecodeOptions options = options_of(whole_, windows_, i);
    const ImageShape shape = shape_of(images_, i);
    // What follows the codec does not depend on who cuts the window out.
    const DecodeSteps steps = decode_steps(header, options, shape, images_.dtype());
    Image image{{}, {file, header, steps, images_.data(i)}, {}, {}};
    if (codec == GpuCodec::tiff) image.rewritten = one_page_tiff(file);
    // The caller could change its file between our check and the codec's reading, but not this copy.
    if (codec == GpuCodec::lossless_jpeg) image.rewritten.assign(file.data, file.data + file.size);
    DecodeSteps& requested = image.job.steps;
    // The codec decodes whole images, and the window is cut out afterward.
    const bool cuts = steps.part && (!converts_colors(codec) || !decodes_regions());
    // Such codecs decode whole images in the colors of the file; everything else is left to finish_pixels().
    if (!converts_colors(codec)) {
      requested = whole_image_steps(codec, file, header);
    } else if (cuts) {
      requested.part.reset();
      requested.stored = {header.height, header.width, requested.format.channels};
    }
    // The codec can write to the output itself only if no step is left.
    const bool same_colors = converts_colors(codec) ? steps.ordered : options.type == ImageType::any || keeps_channels(options.type, header.channels);
    const bool same_samples = requested.samples == images_.dtype() && requested.precision % 8 == 0;
    if (!cuts && !steps.orient() && same_colors && same_samples) return image;
    image.stored.emplace(requested.stored.height * requested.stored.width * requested.stored.channels *
                         static_cast<int64_t>(item_bytes(requested.samples)));
    image.job.samples = image.stored->data();
    const int bits = requested.precision ? requested.precision : 8;
    image.pixels = {image.job.samples,
                    requested.samples,
                    bits,
                    requested.format.channels,
                    requested.stored.width,
                    cuts ? steps.part->y : 0,
                    cuts ? steps.part->x : 0,
                    steps.orientation,
                    same_colors ? ImageType::any : options.type,
                    shape.height,
                    shape.width,
                    static_cast<int>(shape.channels),
                    images_.data(i),
                    images_.dtype()};
    return image;
  }

  // The remaining steps of an image that lies in GPU memory, which are all that there is to do.
  void finish_device_image(int64_t i, const DeviceImage& image, cudaStream_t stream) const {
    const ImageHeader header = header_of_device_image(image);
    const ImageShape shape = shape_of(images_, i);
    const DecodeOptions options = options_of(whole_, windows_, i);
    const CropWindow part = options.window.value_or(CropWindow{0, 0, image.height, image.width});
    const bool same_colors = options.type == ImageType::any || keeps_channels(options.type, header.channels);
    finish_pixels(
        {image.data, header.dtype, static_cast<int>(image.bits), header.channels, image.width, part.y, part.x, Orientation{},
         same_colors ? ImageType::any : options.type, shape.height, shape.width, static_cast<int>(shape.channels), images_.data(i), images_.dtype()},
        stream);
  }

  // Turns a copy that differs from the bytes that were checked into an empty file, which every codec refuses.
  static void check_copy(ImageDecoder& decoder, GpuJob& job, GpuCodec codec) {
    try {
      const ImageHeader now = decoder.read_header(job.file), &then = job.header;
      const bool same = now.height == then.height && now.width == then.width && now.channels == then.channels && now.dtype == then.dtype;
      if (same && gpu_codec_of(job.file, now) == codec) return;
    } catch (const std::exception&) {
      // the CPU reports the error
    }
    job.file = {};
  }

  static bool keeps_channels(ImageType type, int channels) {
    return (type == ImageType::gray && channels == 1) || (type == ImageType::rgb && channels == 3);
  }

  static void finish(const Image& image, cudaStream_t stream) {
    if (image.stored) finish_pixels(image.pixels, stream);
  }

  void check_shape(int64_t i, const ImageHeader& header) const {
    const ImageShape now = decoded_shape(header, options_of(whole_, windows_, i)), then = shape_of(images_, i);
    if (now.height != then.height || now.width != then.width || now.channels != then.channels)
      codec_error("the encoded image changed after the call");
  }

  void issue_to_engine(GpuDecoder& decoder, const std::vector<int64_t>& samples, std::vector<int64_t>& refused) {
    if (!decoder.available(gpu_options_)) {
      decoders_.has_hardware = false;
      // Threads decode them with CUDA instead.
      refused = samples;
      return;
    }
    std::vector<Image> images;
    std::vector<GpuJob> jobs;
    std::vector<int64_t> prepared;
    int channels = 0;
    {
      ImageDecoderLease cpu;
      for (const int64_t i : samples) {
        try {
          const ImageHeader header = cpu->read_header(encoded_image(files_, i));
          check_shape(i, header);
          // The hardware decodes one format per call; only ImageType::any has several.
          if (suits_engine(encoded_image(files_, i), header) && (whole_.type != ImageType::any || channels == 0 || channels == header.channels)) {
            channels = header.channels;
            images.push_back(prepare(i, header, GpuCodec::jpeg));
            jobs.push_back(images.back().job);
            prepared.push_back(i);
            continue;
          }
        } catch (const std::exception&) {
          // its thread reports the error
        }
        refused.push_back(i);
      }
    }
    if (jobs.empty()) return;
    // nvJPEG's hardware engine ignores its stream and writes immediately, although kernels queued before the call may still use the memory of the
    // output. (Memory of this decoder is unused: the engine's thread has waited for its previous group.)
    check_cuda(cudaEventSynchronize(begin_), op_.c_str());
    const Join join(decoder, stream_);
    const std::vector<char> issued = decoder.issue(GpuCodec::jpeg, jobs, gpu_options_);
    for (size_t k = 0; k < prepared.size(); ++k) {
      if (issued[k]) {
        finish(images[k], decoder.stream());
        ++decoders_.counts.hardware;
      } else {
        refused.push_back(prepared[k]);
        ++decoders_.counts.refused;
      }
    }
  }

  // Decodes images on the calling thread, with CUDA those that suit it. All are decoded even if one fails, whose error is thrown then.
  void decode(const std::vector<int64_t>& samples) {
    if (samples.empty()) return;
    GpuDecoderLease decoder(decoders_);
    const StreamScope scope(decoder->stream(), decoders_.device());
    check_cuda(cudaStreamWaitEvent(decoder->stream(), begin_, 0), op_.c_str());
    const Join join(*decoder, stream_);
    ImageDecoderLease cpu;
    std::exception_ptr error;
    const auto try_image = [&](int64_t i, auto work) {
      try {
        if (!try_sample(reasons_, op_, i, work)) clear(i, *decoder);
      } catch (const std::exception&) {
        if (!error) error = std::current_exception();
      }
    };
    // By codec, because each one takes its files in one call.
    std::vector<Image> images[kGpuCodecs];
    std::vector<int64_t> for_gpu[kGpuCodecs], for_cpu;
    // Where the GPU has work enough, this thread's images are decoded by the CPU.
    const bool uses_cuda = !tuned_ || !decoder->is_behind();
    for (const int64_t i : samples) {
      try_image(i, [&] {
        const EncodedImage file = encoded_image(files_, i);
        const ImageHeader header = cpu->read_header(file);
        check_shape(i, header);
        if (header.codec == kDeviceCodec) return finish_device_image(i, find_device_image(file), decoder->stream());
        // The CPU has no decoder for lossless JPEGs of 16 bits.
        const GpuCodec codec = gpu_codec_of(file, header);
        const auto number = static_cast<size_t>(codec);
        if (codec != GpuCodec::none && (uses_cuda || codec == GpuCodec::lossless_jpeg)) {
          images[number].push_back(prepare(i, header, codec));
          for_gpu[number].push_back(i);
        } else {
          for_cpu.push_back(i);
        }
      });
    }
    for (size_t codec = 0; codec < kGpuCodecs; ++codec) {
      if (images[codec].empty()) continue;
      std::vector<GpuJob> jobs;
      for (const Image& image : images[codec]) {
        jobs.push_back(image.job);
        if (image.rewritten.empty()) continue;
        jobs.back().file = {image.rewritten.data(), image.rewritten.size()};
        // Codecs for whole images write as much as they read in the header. It cannot change in this copy, which is checked once more.
        check_copy(*cpu.operator->(), jobs.back(), static_cast<GpuCodec>(codec));
      }
      const std::vector<char> issued = decoder->issue(static_cast<GpuCodec>(codec), jobs, gpu_options_);
      for (size_t k = 0; k < jobs.size(); ++k) {
        if (issued[k]) {
          finish(images[codec][k], decoder->stream());
          ++decoders_.counts.codecs[codec];
        } else {
          for_cpu.push_back(for_gpu[codec][k]);
          ++decoders_.counts.refused;
        }
      }
    }
    // Last, so the GPU works meanwhile.
    for (const int64_t i : for_cpu) try_image(i, [&] { decode_on_cpu(i, cpu, *decoder); });
    if (error) std::rethrow_exception(error);
  }

  // Makes an image that cannot be decoded black.
  void clear(int64_t i, GpuDecoder& decoder) const {
    check_cuda(cudaMemsetAsync(images_.data(i), 0, static_cast<size_t>(images_.volume(i)) * item_bytes(images_.dtype()), decoder.stream()),
               op_.c_str());
  }

  void decode_on_cpu(int64_t i, ImageDecoderLease& cpu, GpuDecoder& decoder) {
    const size_t bytes = static_cast<size_t>(images_.volume(i)) * item_bytes(images_.dtype());
    void* staging = decoder.staging(bytes);
    cpu->decode(encoded_image(files_, i), options_of(whole_, windows_, i), shape_of(images_, i), staging, images_.dtype());
    decoder.upload(images_.data(i), bytes);
    ++decoders_.counts.cpu;
  }

  // Makes the stream of the call wait for a decoder's work, also after an exception, because it owns the memory.
  class Join {
   public:
    Join(GpuDecoder& decoder, cudaStream_t stream) : decoder_(decoder), stream_(stream) {}
    Join(const Join&) = delete;
    Join& operator=(const Join&) = delete;
    ~Join() {
      try {
        decoder_.join(stream_);
      } catch (const std::exception&) {
        // the device is lost, which its next user reports
      }
    }

   private:
    GpuDecoder& decoder_;
    const cudaStream_t stream_;
  };

  const Tensor input_;
  const Samples files_, images_;
  const MaybeTensor windows_;
  const Reasons reasons_;
  const std::string op_;
  const DecodeOptions whole_;
  const std::string gpu_options_;
  GpuDecoders& decoders_;
  const cudaStream_t stream_;  // of the call
  const cudaEvent_t done_;  // recorded by the last task for Python; may be null
  cudaEvent_t begin_ = nullptr;
  const bool tuned_;
  std::once_flag offered_;
  std::atomic<int64_t> to_start_, to_end_;  // tasks
};

void decode_image_gpu(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& windows, std::string op, std::string output_type,
                      bool adjust_orientation, bool fast_idct, int64_t, const MaybeTensor& errors, std::string gpu_options, double hardware_load,
                      int64_t done, const Tensor& out, const MaybeTensor& out_shapes) {
  const Samples files(input, input_shapes), images(out, out_shapes);
  check_images(op, files, images);
  if (files.size() == 0) {
    if (done) check_cuda(cudaEventRecord(reinterpret_cast<cudaEvent_t>(done), current_cuda_stream()), op.c_str());
    return;
  }
  const DecodeOptions whole{image_type_from_name(output_type), adjust_orientation, fast_idct, {}};
  GpuDecoders& decoders = GpuDecoders::of(current_cuda_device());
  decoders.start_engine();
  const auto call =
      std::make_shared<GpuCall>(decoders, input, files, images, windows, Reasons(errors, files.size()), op, whole, gpu_options, hardware_load, done);
  constexpr double kNanosecondsPerByte = 5;  // of output, on a CPU thread; more than a chunk's worth, so each image is a task
  // As many tasks as images. A task decodes whichever images are next, not that of its number.
  launch_cpu(op, files.size(), kNanosecondsPerByte * images.mean_volume(), {input, out}, [call](int64_t) { call->run(); });
}

}  // namespace

NDD_KERNEL(decoders_image, CUDA, decode_image_gpu)
NDD_KERNEL(decoders_image_crop, CUDA, decode_image_gpu)
NDD_KERNEL(decoders_image_random_crop, CUDA, decode_image_gpu)
NDD_KERNEL(decoders_image_slice, CUDA, decode_image_gpu)

}  // namespace ndd

#endif

// Fills `counts` with the number of images that the engines of a GPU have decoded so far: hardware, the codecs from `jpeg` on, cpu; and refused.
NDD_EXPORT(release, void, ndd_gpu_decode_counts, ([[maybe_unused]] int device, int64_t* counts)) {
  std::fill(counts, counts + ndd::kGpuCodecs + 2, 0);
#ifdef USE_CUDA
  const ndd::DecodeCounts& totals = ndd::GpuDecoders::of(device).counts;
  *counts++ = totals.hardware;
  for (size_t codec = 1; codec < ndd::kGpuCodecs; ++codec) *counts++ = totals.codecs[codec];
  *counts++ = totals.cpu;
  *counts = totals.refused;
#endif
}

// Issues the decoding of a JPEG 2000 codestream on the current stream, to dense rows of samples of 1 or 2 bytes. Returns whether it was accepted. The
// caller has checked the codestream.
NDD_EXPORT(release, int, ndd_issue_jpeg2000,
           ([[maybe_unused]] const uint8_t* data, [[maybe_unused]] int64_t size, [[maybe_unused]] int64_t height, [[maybe_unused]] int64_t width,
            [[maybe_unused]] int channels, [[maybe_unused]] int bits, [[maybe_unused]] void* out)) {
#ifdef USE_CUDA
  try {
    using namespace ndd;
    ImageHeader header = header_of_device_image({out, height, width, channels, bits});
    header.codec = "jpeg2k";
    const EncodedImage file{data, static_cast<size_t>(size)};
    DecodeSteps steps = whole_image_steps(GpuCodec::jpeg2000, file, header);
    steps.precision = bits;
    GpuDecoders& decoders = GpuDecoders::of(current_cuda_device());
    const cudaStream_t stream = current_cuda_stream();
    GpuDecoderLease decoder(decoders);
    const StreamScope scope(decoder->stream(), decoders.device());
    decoder->follow(stream);
    const bool issued = decoder->issue(GpuCodec::jpeg2000, {{file, header, steps, out}}, {})[0];
    decoder->join(stream);
    ++(issued ? decoders.counts.codecs[static_cast<size_t>(GpuCodec::jpeg2000)] : decoders.counts.refused);
    return issued;
  } catch (const std::exception&) {
    return 0;  // the CPU decodes it, or reports what is wrong with the device
  }
#else
  return 0;
#endif
}
