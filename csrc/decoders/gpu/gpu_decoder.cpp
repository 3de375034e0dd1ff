// SPDX-License-Identifier: Apache-2.0
// A GpuDecoder has a stream, the codec's objects and two blocks of pinned memory; a thread takes one for a call. The codec issues its work on that
// stream and returns, so the calling thread prepares the next images meanwhile. follow() and join() order it after and before the caller's
// stream.
#include "decoders/gpu/gpu_decoder.h"

#ifdef USE_CUDA

#include "decoders/codecs/captured_output.h"
#include "decoders/gpu/jpeg_engine.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <iterator>
#include <system_error>

#pragma weak aoti_torch_cuda_caching_allocator_raw_alloc
#pragma weak aoti_torch_cuda_caching_allocator_raw_delete

namespace ndd {
namespace {

// Threads that wait for it sleep.
cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "decoders.image");
  return event;
}

// nvJPEG's memory comes from torch's allocator, for the stream that uses it. The library calls these functions while it decodes, on the
// calling thread; an exception must not cross its C code.
int allocate_device(void* device, void** data, size_t bytes, cudaStream_t stream) {
  try {
    const StreamScope scope(stream, *static_cast<const int*>(device));
    return aoti_torch_cuda_caching_allocator_raw_alloc(bytes, data) == 0 ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

int free_device(void* device, void* data, size_t, cudaStream_t stream) {
  if (data == nullptr) return 0;
  try {
    const StreamScope scope(stream, *static_cast<const int*>(device));
    return aoti_torch_cuda_caching_allocator_raw_delete(data) == 0 ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

// Returns whether a status is an error, and clears it: otherwise the check after the next launch would report it.
int outcome(cudaError_t status) {
  if (status == cudaSuccess) return 0;
  cudaGetLastError();
  return 1;
}

// Calls work(decoder) on the decoder's stream. Returns a status for the codec.
template <class Work>
int on_stream_of(void* context, Work work) {
  try {
    const GpuDecoder& decoder = *static_cast<const GpuDecoder*>(context);
    const StreamScope scope(decoder.stream(), decoder.device());
    work(decoder);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

int allocate_pinned(void* context, void** data, size_t bytes, cudaStream_t) {
  return on_stream_of(context, [&](const GpuDecoder& decoder) { *data = decoder.pinned().take(bytes).data; });
}

int free_pinned(void* context, void* data, size_t, cudaStream_t) {
  if (data == nullptr) return 0;
  return on_stream_of(context, [&](const GpuDecoder& decoder) { decoder.pinned().give_back(data, decoder.stream()); });
}

constexpr size_t kMinBlockBytes = 64 << 10;

}  // namespace

HostBlock PinnedMemory::take(size_t bytes) {
  const int size = size_class(std::max(bytes, kMinBlockBytes));
  HostBlock block{nullptr, size_t{1} << size};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& free = free_[size];
    // A block is free once the stream that returned it has passed its event. Asking does not wait.
    const auto idle = [&](void* data) { return outcome(cudaEventQuery(all_[data].idle)) == 0; };
    const auto found = std::find_if(free.begin(), free.end(), idle);
    if (found != free.end()) {
      block.data = *found;
      free.erase(found);
      return block;
    }
  }
  // Outside of the lock: pinning memory takes milliseconds and may wait for the device.
  check_cuda(cudaHostAlloc(&block.data, block.bytes, cudaHostAllocDefault), "decoders.image: pinned memory");
  std::lock_guard<std::mutex> lock(mutex_);
  all_[block.data] = {size, make_event()};
  return block;
}

void PinnedMemory::give_back(void* data, cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Block& block = all_.at(data);
  // The stream may still copy from the block; take() passes over it until this event has come.
  check_cuda(cudaEventRecord(block.idle, stream), "decoders.image");
  free_[block.size].push_back(data);
}

GpuDecoder::GpuDecoder(int device, PinnedMemory& pinned, bool hardware) : device_(device), pinned_(pinned), hardware_(hardware) {
  if (nvimgcodec().gpu_extensions.empty()) fail("nvImageCodec's GPU decoders are not loaded");
  // Restoring the device with cudaSetDevice would create a context on GPU 0, the initial device of every thread.
  const StreamScope scope(nullptr, device);
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "decoders.image");
  issued_ = make_event();
  for (Block& block : blocks_) block.copied = make_event();
  for (cudaEvent_t& call : calls_) call = make_event();
  device_memory_ = nvimgcodec_struct<nvimgcodecDeviceAllocator_t>(NVIMGCODEC_STRUCTURE_TYPE_DEVICE_ALLOCATOR);
  device_memory_.device_malloc = allocate_device;
  device_memory_.device_free = free_device;
  device_memory_.device_ctx = const_cast<int*>(&device_);
  pinned_memory_ = nvimgcodec_struct<nvimgcodecPinnedAllocator_t>(NVIMGCODEC_STRUCTURE_TYPE_PINNED_ALLOCATOR);
  pinned_memory_.pinned_malloc = allocate_pinned;
  pinned_memory_.pinned_free = free_pinned;
  pinned_memory_.pinned_ctx = this;
}

GpuDecoder::Codec GpuDecoder::find_codec(GpuCodec codec, const std::string& options) {
  const NvimgcodecLibrary& library = nvimgcodec();
  const bool is_jpeg = codec == GpuCodec::jpeg || codec == GpuCodec::lossless_jpeg;
  const std::string extension = is_jpeg ? "nvjpeg" : codec == GpuCodec::tiff ? "nvtiff" : "nvjpeg2k";
  // Options are those of JPEG.
  const auto key = std::make_pair(extension, is_jpeg ? options : std::string());
  const auto found = decoders_.find(key);
  if (found != decoders_.end()) return found->second;
  Codec result;
  const auto entry = library.gpu_extensions.find(extension);
  if (entry != library.gpu_extensions.end()) {
    auto& instance = instances_[extension];
    if (!instance) {
      auto extensions = is_jpeg ? library.extensions : std::vector<nvimgcodecExtensionModuleEntryFunc_t>();
      extensions.push_back(entry->second);
      try {
        instance = std::make_unique<CodecInstance>(extensions);
      } catch (const std::exception&) {
        // Without nvJPEG there is no decoding on the GPU at all; the other formats are optional.
        if (is_jpeg) throw;
        return decoders_[key] = {};  // the CPU decodes these files
      }
    }
    CodecBackend backend;
    backend.kind = hardware_ ? NVIMGCODEC_BACKEND_KIND_HW_GPU_ONLY
                   : is_jpeg ? NVIMGCODEC_BACKEND_KIND_HYBRID_CPU_GPU
                             : NVIMGCODEC_BACKEND_KIND_GPU_ONLY;
    backend.device = device_;
    backend.device_memory = &device_memory_;
    backend.pinned_memory = &pinned_memory_;
    result = {instance.get(), instance->make_decoder(backend, key.second)};
  }
  // Kept even without a decoder, so a library that is missing is not looked for again.
  return decoders_[key] = result;
}

std::vector<char> GpuDecoder::issue(GpuCodec codec, const std::vector<GpuJob>& jobs, const std::string& options) {
  std::string messages;
  CaptureOutput capture(messages);
  const NvimgcodecLibrary& library = nvimgcodec();
  std::vector<char> issued(jobs.size(), 0);
  const Codec found = find_codec(codec, options);
  if (!found.decoder) return issued;

  const nvimgcodecInstance_t instance = found.instance->handle();
  auto& [files, parts, images] = handles_[found.instance];
  // They only grow: the library reuses an object whose handle it is given.
  files.resize(std::max(files.size(), jobs.size()), nullptr);
  parts.resize(files.size(), nullptr);
  images.resize(files.size(), nullptr);
  std::vector<nvimgcodecCodeStream_t> sources;
  std::vector<nvimgcodecImage_t> targets;
  std::vector<size_t> which;
  for (size_t k = 0; k < jobs.size(); ++k) {
    const GpuJob& job = jobs[k];
    // A copy whose bytes are no longer those that were checked.
    // Refused images keep their 0 in `issued`; the caller decodes them on the CPU.
    if (job.file.size == 0) continue;
    if (library.CodeStreamCreateFromHostMem(instance, &files[k], job.file.data, job.file.size, nullptr) != NVIMGCODEC_STATUS_SUCCESS) continue;
    // The memory has the size of our header. A file that the codec's parser reads differently must not be decoded to it.
    auto info = nvimgcodec_struct<nvimgcodecImageInfo_t>(NVIMGCODEC_STRUCTURE_TYPE_IMAGE_INFO);
    if (library.CodeStreamGetImageInfo(files[k], &info) != NVIMGCODEC_STATUS_SUCCESS || !is_same_header(job.header, info)) continue;
    if (job.steps.part && view_part(library, files[k], *job.steps.part, &parts[k]) != NVIMGCODEC_STATUS_SUCCESS) continue;
    auto target = codec_image(job.steps, job.samples, NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_DEVICE);
    target.cuda_stream = stream_;
    if (library.ImageCreate(instance, &images[k], &target) != NVIMGCODEC_STATUS_SUCCESS) continue;
    sources.push_back(job.steps.part ? parts[k] : files[k]);
    targets.push_back(images[k]);
    which.push_back(k);
  }
  if (sources.empty()) return issued;
  const auto outcomes = decode_images(found.decoder, sources, targets);
  // A ring of the latest calls: is_behind() looks at the oldest of them, so the CPU runs ahead by a bounded amount of work.
  check_cuda(cudaEventRecord(calls_[call_], stream_), "decoders.image");
  call_ = (call_ + 1) % static_cast<int>(std::size(calls_));
  for (size_t k = 0; k < which.size(); ++k) issued[which[k]] = outcomes[k] == NVIMGCODEC_PROCESSING_STATUS_SUCCESS;
  return issued;
}

// Two blocks take turns, so the CPU decodes into one while the other is being uploaded.
void* GpuDecoder::staging(size_t bytes) {
  // The other block may still be on its way to the GPU.
  block_ ^= 1;
  Block& block = blocks_[block_];
  check_cuda(cudaEventSynchronize(block.copied), "decoders.image");
  if (block.memory.bytes < bytes) {
    // Its upload has ended, so another decoder may take it.
    if (block.memory.data) pinned_.give_back(block.memory.data, stream_);
    block.memory = {nullptr, 0};
    block.memory = pinned_.take(bytes);
  }
  return block.memory.data;
}

void GpuDecoder::upload(void* device_memory, size_t bytes) {
  Block& block = blocks_[block_];
  check_cuda(cudaMemcpyAsync(device_memory, block.memory.data, bytes, cudaMemcpyHostToDevice, stream_), "decoders.image");
  check_cuda(cudaEventRecord(block.copied, stream_), "decoders.image");
}

void GpuDecoder::follow(cudaStream_t other) {
  // An event may be recorded again: a stream that waits for it has taken its earlier state.
  check_cuda(cudaEventRecord(issued_, other), "decoders.image");
  check_cuda(cudaStreamWaitEvent(stream_, issued_, 0), "decoders.image");
}

void GpuDecoder::join(cudaStream_t other) {
  check_cuda(cudaEventRecord(issued_, stream_), "decoders.image");
  check_cuda(cudaStreamWaitEvent(other, issued_, 0), "decoders.image");
}

bool GpuDecoder::is_behind() { return outcome(cudaEventQuery(calls_[call_])) != 0; }

GpuDecoders& GpuDecoders::of(int device) {
  // Never destroyed: a thread may decode while the process exits, and CUDA is gone before static objects are.
  static auto* mutex = new std::mutex;
  static auto* all = new std::map<int, std::unique_ptr<GpuDecoders>>;
  std::lock_guard<std::mutex> lock(*mutex);
  auto& found = (*all)[device];
  if (!found) found = std::make_unique<GpuDecoders>(device);
  return *found;
}

// As many decoders exist as threads have ever decoded at the same time.
std::unique_ptr<GpuDecoder> GpuDecoders::take() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      auto decoder = std::move(idle_.back());
      idle_.pop_back();
      return decoder;
    }
  }
  return std::make_unique<GpuDecoder>(device_, pinned_, false);
}

void GpuDecoders::give_back(std::unique_ptr<GpuDecoder> decoder) {
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(decoder));
}

void GpuDecoders::start_engine() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (engine_ || !has_hardware) return;
  try {
    engine_ = new JpegEngine(device_, pinned_, queue);
  } catch (const std::system_error&) {
    has_hardware = false;
  }
}

}  // namespace ndd

#endif
