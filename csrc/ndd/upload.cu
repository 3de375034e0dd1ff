// SPDX-License-Identifier: Apache-2.0
// Copies host values to the device, which do not travel as parameters of a kernel (KernelTable in cuda.h): small ones from the pinned memory of the
// stream. cudaMemcpyAsync may also be given unpinned memory, since it has read it when it returns. But a CUDA graph under capture only records the
// address and reads it at every replay, when the memory is long gone or used again (which is why torch refuses such copies). During capture, the values
// therefore travel as kernel parameters, of which the graph keeps a copy.
#ifdef __CUDACC__
#include <algorithm>
#include <cstring>

#include "ndd/cuda.h"
#include "ndd/pinned_ring.h"

namespace ndd {
namespace {

constexpr int kThreads = 256, kPerThread = 4;

// The limit for kernel parameters is 32764 bytes from CUDA 12.1 and Volta on. Each launch copies them in full, so small tables use a small struct.
constexpr int64_t kSmall = 2048, kLarge = 32512;

template <int64_t size>
struct Piece {
  unsigned char bytes[size];
};

template <int64_t size>
__global__ void store(const __grid_constant__ Piece<size> piece, unsigned char* to, int count) {
  const int first = (blockIdx.x * kThreads + threadIdx.x) * kPerThread;
  for (int k = first; k < min(first + kPerThread, count); ++k) to[k] = piece.bytes[k];
}

template <int64_t size>
void store_piece(unsigned char* to, const unsigned char* from, int64_t count, cudaStream_t stream) {
  Piece<size> piece;
  std::memcpy(piece.bytes, from, count);
  const auto blocks = static_cast<unsigned>((count + kThreads * kPerThread - 1) / (kThreads * kPerThread));
  store<size><<<blocks, kThreads, 0, stream>>>(piece, to, static_cast<int>(count));
}

}  // namespace

void upload(void* to, const void* from, size_t bytes, const char* what) {
  if (bytes == 0) return;
  const cudaStream_t stream = current_cuda_stream();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), what);
  if (status == cudaStreamCaptureStatusNone) {
    if (bytes <= PinnedRing::kPartBytes) {
      PinnedRing* ring = PinnedRing::of(current_cuda_device(), stream);
      if (ring != nullptr && ring->copy(to, from, bytes, stream)) return;
    }
    return check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), what);
  }
  const auto* source = static_cast<const unsigned char*>(from);
  auto* target = static_cast<unsigned char*>(to);
  const auto left = static_cast<int64_t>(bytes);
  for (int64_t done = 0; done < left; done += kLarge) {
    const int64_t count = std::min(kLarge, left - done);
    if (count <= kSmall) store_piece<kSmall>(target + done, source + done, count, stream);
    else store_piece<kLarge>(target + done, source + done, count, stream);
  }
  check_launch(what);
}

}  // namespace ndd
#endif
