// SPDX-License-Identifier: Apache-2.0
// The kernels of the image decoders with device="gpu": files in host memory, pixels on the GPU.
//
// Baseline JPEGs go to the hardware engines (the first part of the batch, in one task) and to CUDA (the others, one task each, on the CPU
// threads of the context); every other file, and those that the two reject, is decoded by the CPU to pinned memory and uploaded. Each
// decoder has its own stream, and the stream of the call waits for it. The tasks run on the CPU stream, so the call returns immediately.
#include "decoders/gpu/gpu_shares.h"
#include "decoders/image_samples.h"
#include "decoders/jpeg/scans.h"

#ifdef USE_CUDA

#include "decoders/gpu/gpu_decoder.h"
#include "decoders/gpu/gpu_pixels.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/stream/scheduler.h"

#include <chrono>
#include <cmath>

namespace ndd {
namespace {

// DALI's default. With it, the shares follow measured times, so that the decoder of an image, and the last bits of its pixels, may differ
// from run to run. Any other value is used as it is, which makes runs reproducible.
constexpr double kDefaultHardwareLoad = 0.65;

class GpuCall {
 public:
  GpuCall(const Samples& files, const Samples& images, const MaybeTensor& windows, const Reasons& reasons, const std::string& op,
          const DecodeOptions& options, const std::string& gpu_options, double load, int64_t done)
      : files_(files), images_(images), windows_(windows), reasons_(reasons), op_(op), whole_(options), gpu_options_(gpu_options),
        decoders_(GpuDecoders::of(current_cuda_device())), stream_(current_cuda_stream()), done_(reinterpret_cast<cudaEvent_t>(done)),
        tuned_(load == kDefaultHardwareLoad), times_(decoders_.times()), to_hardware_(files.size(), 0) {
    check_cuda(cudaEventCreateWithFlags(&begin_, cudaEventDisableTiming), op.c_str());
    check_cuda(cudaEventRecord(begin_, stream_), op.c_str());
    choose_for_hardware(tuned_ ? hardware_share(times_, scheduler().default_pool()->limit) : load);
    left_ = tasks();
  }
  ~GpuCall() { cudaEventDestroy(begin_); }

  int64_t tasks() const { return files_.size() + (hardware_count_ > 0); }

  void run(int64_t task) {
    if (hardware_count_ > 0 && task == 0) {
      decode_by_hardware();
    } else {
      const int64_t i = task - (hardware_count_ > 0);
      if (!to_hardware_[i]) decode(i);
    }
    if (--left_ == 0 && done_) check_cuda(cudaEventRecord(done_, stream_), op_.c_str());
  }

 private:
  struct Image {
    GpuJob job;
    ImageShape shape;
    std::optional<CudaBuffer> stored;  // the codec's samples, if they are not the output
  };

  bool suits_gpu(const EncodedImage& file, const ImageHeader& header) const {
    return header.codec == "jpeg" && header.dtype == DType::uint8 && !header.is_cmyk && (header.channels == 1 || header.channels == 3) &&
           is_baseline_jpeg(file);
  }

  void choose_for_hardware(double share) {
    if (!decoders_.has_hardware) return;
    auto wanted = static_cast<int64_t>(std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(files_.size())));
    ImageDecoderLease decoder;
    int channels = 0;
    for (int64_t i = 0; i < files_.size() && hardware_count_ < wanted; ++i) {
      try {
        const ImageHeader header = decoder->read_header(encoded_image(files_, i));
        if (!suits_gpu(encoded_image(files_, i), header)) continue;
        // The hardware decodes one format per call; only ImageType::any has several.
        if (whole_.type == ImageType::any && channels != 0 && channels != header.channels) continue;
        channels = header.channels;
      } catch (const std::exception&) {
        continue;  // its task reports the error
      }
      to_hardware_[i] = 1;
      ++hardware_count_;
    }
  }

  Image prepare(int64_t i, const ImageHeader& header) const {
    Image image{{encoded_image(files_, i), {}, images_.data(i)}, shape_of(images_, i), {}};
    image.job.steps = decode_steps(header, options_of(whole_, windows_, i), image.shape, images_.dtype());
    if (!image.job.steps.whole()) {
      image.stored.emplace(image.shape.height * image.shape.width * image.job.steps.format.channels);
      image.job.samples = image.stored->data();
    }
    return image;
  }

  void finish(int64_t i, const Image& image, cudaStream_t stream) const {
    const DecodeSteps& steps = image.job.steps;
    if (steps.whole()) return;
    finish_pixels({static_cast<const uint8_t*>(image.job.samples), steps.orientation, !steps.ordered, steps.format.channels, image.shape.height,
                   image.shape.width, images_.data(i), images_.dtype()},
                  stream);
  }

  void check_shape(int64_t i, const ImageHeader& header) const {
    const ImageShape now = decoded_shape(header, options_of(whole_, windows_, i)), then = shape_of(images_, i);
    if (now.height != then.height || now.width != then.width || now.channels != then.channels)
      codec_error("the encoded image changed after the call");
  }

  void decode_by_hardware() {
    std::vector<int64_t> samples;
    std::vector<char> issued;
    // nvJPEG's hardware engine ignores its stream and writes immediately, although kernels queued before the call may still use the memory
    // of the output. This thread waits for them without holding the lock, so that other calls can use the engine.
    check_cuda(cudaEventSynchronize(begin_), op_.c_str());
    decoders_.with_hardware([&](GpuDecoder& decoder) {
      const OnStream scope(decoders_.device(), decoder.stream());
      if (!decoder.available(gpu_options_)) {
        decoders_.has_hardware = false;
        for (int64_t i = 0; i < files_.size(); ++i) {
          if (to_hardware_[i]) samples.push_back(i);
        }
        issued.assign(samples.size(), 0);
        return;
      }
      std::vector<Image> images;
      std::vector<GpuJob> jobs;
      double pixels = 0;
      ImageDecoderLease cpu;
      for (int64_t i = 0; i < files_.size(); ++i) {
        if (!to_hardware_[i]) continue;
        const bool prepared = try_sample(reasons_, op_, i, [&] {
          const ImageHeader header = cpu->read_header(encoded_image(files_, i));
          check_shape(i, header);
          images.push_back(prepare(i, header));
          jobs.push_back(images.back().job);
          samples.push_back(i);
          pixels += static_cast<double>(header.height) * static_cast<double>(header.width);
        });
        if (!prepared) clear(i, decoder);
      }
      const auto begin = std::chrono::steady_clock::now();
      issued = decoder.issue(jobs, gpu_options_);
      for (size_t k = 0; k < samples.size(); ++k) {
        if (issued[k]) finish(samples[k], images[k], decoder.stream());
      }
      // Wait, because the library may read the files until then, and the measured time determines the next share.
      decoder.finish();
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
      const auto done = std::count(issued.begin(), issued.end(), 1);
      decoders_.counts.hardware += done;
      decoders_.counts.refused += static_cast<int64_t>(issued.size()) - done;
      if (done == static_cast<int64_t>(issued.size()) && done > 0) decoders_.record_time(&DecodeTimes::hardware, took.count() / pixels);
    });
    for (size_t k = 0; k < samples.size(); ++k) {
      if (!issued[k]) decode(samples[k]);
    }
  }

  void decode(int64_t i) {
    const bool decoded = try_sample(reasons_, op_, i, [&] { decode_sample(i); });
    if (decoded) return;
    GpuDecoderLease decoder(decoders_);
    const OnStream scope(decoders_.device(), decoder->stream());
    check_cuda(cudaStreamWaitEvent(decoder->stream(), begin_, 0), op_.c_str());
    clear(i, *decoder);
    decoder->join(stream_);
  }

  // Makes an image that cannot be decoded black.
  void clear(int64_t i, GpuDecoder& decoder) const {
    check_cuda(cudaMemsetAsync(images_.data(i), 0, static_cast<size_t>(images_.volume(i)) * item_bytes(images_.dtype()), decoder.stream()),
               op_.c_str());
  }

  void decode_sample(int64_t i) {
    const EncodedImage file = encoded_image(files_, i);
    ImageDecoderLease cpu;
    const ImageHeader header = cpu->read_header(file);
    check_shape(i, header);
    GpuDecoderLease decoder(decoders_);
    const OnStream scope(decoders_.device(), decoder->stream());
    check_cuda(cudaStreamWaitEvent(decoder->stream(), begin_, 0), op_.c_str());
    // Also after an exception the stream of the call must wait for the issued work, because it owns the memory.
    struct Join {
      GpuDecoder& decoder;
      cudaStream_t stream;
      ~Join() {
        try {
          decoder.join(stream);
        } catch (const std::exception&) {
          // the device is lost, which its next user reports
        }
      }
    } join{*decoder, stream_};

    const double pixels = static_cast<double>(header.height) * static_cast<double>(header.width);
    const auto begin = std::chrono::steady_clock::now();
    const auto per_pixel = [&] { return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / pixels; };
    const bool suits = suits_gpu(file, header);
    const bool to_cuda = suits && (!tuned_ || decoders_.take_cuda_turn(cuda_share(times_)));
    if (to_cuda) {
      const Image image = prepare(i, header);
      if (decoder->issue({image.job}, gpu_options_)[0]) {
        finish(i, image, decoder->stream());
        ++decoders_.counts.cuda;
        decoders_.record_time(decoder->fed_last ? &DecodeTimes::cuda_stream : &DecodeTimes::cuda_host, per_pixel());
        decoder->fed_last = true;
        return;
      }
      ++decoders_.counts.refused;
    }
    decoder->fed_last = false;
    const size_t bytes = static_cast<size_t>(images_.volume(i)) * item_bytes(images_.dtype());
    void* staging = decoder->staging(bytes);
    cpu->decode(file, options_of(whole_, windows_, i), shape_of(images_, i), staging, images_.dtype());
    decoder->upload(images_.data(i), bytes);
    ++decoders_.counts.cpu;
    if (suits && !to_cuda) decoders_.record_time(&DecodeTimes::cpu, per_pixel());
  }

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
  const DecodeTimes times_;
  std::vector<char> to_hardware_;
  int64_t hardware_count_ = 0;
  std::atomic<int64_t> left_{0};
};

void decode_image_gpu(const Tensor& input, const MaybeTensor& input_shapes, const MaybeTensor& windows, std::string op, std::string output_type,
                      bool adjust_orientation, bool fast_idct, int64_t, const MaybeTensor& errors, std::string gpu_options, double hardware_load,
                      int64_t done, const Tensor& out, const MaybeTensor& out_shapes) {
  const Samples files(input, input_shapes), images(out, out_shapes);
  if (files.size() == 0) {
    if (done) check_cuda(cudaEventRecord(reinterpret_cast<cudaEvent_t>(done), current_cuda_stream()), op.c_str());
    return;
  }
  const DecodeOptions whole{image_type_from_name(output_type), adjust_orientation, fast_idct, {}};
  const auto call = std::make_shared<GpuCall>(files, images, windows, Reasons(errors), op, whole, gpu_options, hardware_load, done);
  constexpr double kNanosecondsPerByte = 5;  // of output, on a CPU thread; more than a chunk's worth, so that each image is a task
  launch_cpu(op, call->tasks(), kNanosecondsPerByte * images.mean_volume(), {input, out}, [call](int64_t task) { call->run(task); });
}

}  // namespace

NDD_KERNEL(decoders_image, CUDA, decode_image_gpu)
NDD_KERNEL(decoders_image_crop, CUDA, decode_image_gpu)
NDD_KERNEL(decoders_image_random_crop, CUDA, decode_image_gpu)
NDD_KERNEL(decoders_image_slice, CUDA, decode_image_gpu)

}  // namespace ndd

#endif

// Fills `counts` with the number of images that the engines of a GPU have decoded so far: hardware, cuda, cpu; and refused.
NDD_EXPORT(release, void, ndd_gpu_decode_counts, ([[maybe_unused]] int device, int64_t* counts)) {
  std::fill(counts, counts + 4, 0);
#ifdef USE_CUDA
  const ndd::DecodeCounts& totals = ndd::GpuDecoders::of(device).counts;
  counts[0] = totals.hardware;
  counts[1] = totals.cuda;
  counts[2] = totals.cpu;
  counts[3] = totals.refused;
#endif
}

// For tests without a GPU: the share of the hardware, the share of CUDA in the rest, and whether a JPEG is baseline.
NDD_EXPORT(keep, double, ndd_hardware_share, (const double* times, int threads)) {
  return ndd::hardware_share({times[0], times[1], times[2], times[3]}, threads);
}
NDD_EXPORT(keep, double, ndd_cuda_share, (const double* times)) { return ndd::cuda_share({times[0], times[1], times[2], times[3]}); }
NDD_EXPORT(keep, int, ndd_is_baseline_jpeg, (const uint8_t* data, int64_t size)) { return ndd::is_baseline_jpeg({data, static_cast<size_t>(size)}); }
