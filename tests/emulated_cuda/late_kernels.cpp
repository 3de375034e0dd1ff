// SPDX-License-Identifier: Apache-2.0
// CUDA kernels for the late device: the CPU kernel of every operator, run when
// the stream of the launch comes to it. As on a GPU, a launch reads its
// arguments in host memory immediately, owns nothing, and whatever it reads or
// writes too early or too late is garbage.
#include "late_kernels.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "ndd/cuda.h"
#include "ndd/python_interface.h"
#include "ndd/stream/outside_capture.h"
#include "ndd/stream_scope.h"

NDD_EXTERN void* ndd_pool_make(int threads);
NDD_EXTERN void ndd_pool_enter(void* pool);
NDD_EXTERN void ndd_pool_release(void* pool);

namespace ndd::late {
namespace {

using detail::Parameter;

Tensor over(const Tensor& tensor, void* memory, void (*release)(void*, size_t)) {
  if (!tensor.is_contiguous()) fail("the late device takes contiguous tensors only");
  return tensor_over(memory, {tensor.sizes(), tensor.sizes() + tensor.dim()}, tensor.dtype(), release, 0);
}

// The tensor as the kernel sees it when the stream comes to it: the same memory
// of the device, or a copy of host memory as it is now.
Tensor seen(const Tensor& tensor) {
  if (tensor.is_cuda()) return over(tensor, tensor.data_ptr(), [](void*, size_t) {});
  const size_t bytes = static_cast<size_t>(tensor.numel()) * item_bytes(tensor.dtype());
  void* copy = std::memcpy(std::malloc(bytes + 1), tensor.data_ptr(), bytes);
  return over(tensor, copy, [](void* memory, size_t) { std::free(memory); });
}

template <class See>
uint64_t replace(std::string_view type, uint64_t value, See see, bool& on_device) {
  const auto change = [&](const Tensor& tensor) {
    on_device = on_device || tensor.is_cuda();
    return see(tensor);
  };
  if (type == "Tensor") return detail::to_ivalue(change(Parameter<Tensor>::take(value)));
  if (type == "Tensor?") {
    const MaybeTensor tensor = Parameter<MaybeTensor>::take(value);
    return detail::to_ivalue(tensor ? MaybeTensor(change(*tensor)) : std::nullopt);
  }
  if (type == "Tensor[]") {
    std::vector<Tensor> tensors = Parameter<std::vector<Tensor>>::take(value);
    for (Tensor& tensor : tensors) tensor = change(tensor);
    return detail::to_ivalue(tensors);
  }
  return value;
}

struct Launch {
  detail::Boxed* kernel;
  const char* const* types;
  std::vector<uint64_t> arguments;

  // Runs the kernel with the arguments, or with new references to them.
  void run() { kernel(arguments.data(), arguments.size(), 0); }
  void run_again() {
    std::vector<uint64_t> others = arguments;
    for (size_t k = 0; k < others.size(); ++k) {
      const std::string_view type = types[k];
      if (type == "Tensor") others[k] = share<Tensor>(arguments[k]);
      else if (type == "Tensor?") others[k] = share<MaybeTensor>(arguments[k]);
      else if (type == "Tensor[]") others[k] = share<std::vector<Tensor>>(arguments[k]);
      else if (type == "str") others[k] = share<std::string>(arguments[k]);
      else if (type == "int[]") others[k] = share<std::vector<int64_t>>(arguments[k]);
    }
    kernel(others.data(), others.size(), 0);
  }

 private:
  template <class T>
  static uint64_t share(uint64_t& value) {
    const T taken = Parameter<T>::take(value);
    value = detail::to_ivalue(taken);
    return detail::to_ivalue(taken);
  }
};

struct Decoder {
  detail::Boxed* kernel = nullptr;
  const char* const* types = nullptr;
};
Decoder decoder;
detail::Boxed* upload = nullptr;

std::mutex gate_mutex;
std::condition_variable gate_changed;
bool gate_closed = false;

void pass_gate() {
  std::unique_lock<std::mutex> lock(gate_mutex);
  gate_changed.wait_for(lock, std::chrono::seconds(30), [] { return !gate_closed; });
}

// The decoder of images fills memory of the device from CPU threads, as the
// JPEG engine does: immediately, once the stream has reached the call.
void decode(uint64_t* stack, uint64_t arguments, uint64_t) {
  const int device = current_cuda_device();
  const cudaStream_t stream = current_cuda_stream();
  const auto done = reinterpret_cast<cudaEvent_t>(Parameter<int64_t>::take(stack[arguments - 3]));
  cudaEvent_t begin = nullptr;
  check_cuda(cudaEventCreateWithFlags(&begin, cudaEventDisableTiming), "late device");
  check_cuda(cudaEventRecord(begin, stream), "late device");
  std::vector<uint64_t> changed(stack, stack + arguments);
  std::vector<Tensor> owned;
  bool on_device = false;
  const auto see = [&](const Tensor& tensor) {
    owned.push_back(tensor);
    return tensor.is_cuda() ? seen(tensor) : tensor;
  };
  for (size_t k = 0; k < changed.size(); ++k) changed[k] = replace(decoder.types[k], changed[k], see, on_device);
  launch_cpu("decode", 1, 1e6, owned, [=](int64_t) {
    cudaEventSynchronize(begin);
    cudaEventDestroy(begin);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pass_gate();
    std::exception_ptr error;
    std::vector<uint64_t> values = changed;
    // In a thread and a pool of its own: a chunk must not wait for a place in the pool that it occupies itself.
    std::thread([&] {
      void* pool = ndd_pool_make(0);
      ndd_pool_enter(pool);
      ndd_pool_release(pool);
      try {
        decoder.kernel(values.data(), values.size(), 0);
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    const StreamScope scope(stream, device);
    check_cuda(cudaEventRecord(done, stream), "late device");
    if (error) std::rethrow_exception(error);
  });
}

}  // namespace

namespace {
thread_local bool is_registering = false;
}

Registering::Registering() { is_registering = true; }
Registering::~Registering() { is_registering = false; }
bool takes_the_place_of(std::string_view backend) { return backend == "CUDA" && !is_registering; }

detail::Boxed* cuda_kernel(std::string_view name, detail::Boxed* kernel, const char* const* types) {
  if (name != "decoders_image") return kernel; // which calls launch() first
  decoder = {kernel, types};
  return &decode;
}

void note(std::string_view name, detail::Boxed* function) {
  if (name == "upload") upload = function;
}

bool launch(detail::Boxed* kernel, const char* const* types, uint64_t* stack, uint64_t arguments) {
  if (kernel == upload) return false;  // torch copies, on the stream
  bool on_device = false;
  for (uint64_t k = 0; k < arguments && !on_device; ++k) {
    if (std::string_view(types[k]).substr(0, 6) == "Tensor")
      stack[k] = replace(types[k], stack[k], [](const Tensor& tensor) { return tensor; }, on_device);
  }
  if (!on_device) return false;
  auto launch = std::make_unique<Launch>(Launch{kernel, types, {stack, stack + arguments}});
  for (uint64_t k = 0; k < arguments; ++k) launch->arguments[k] = replace(types[k], launch->arguments[k], seen, on_device);
  const auto run = [](void* argument) {
    const std::unique_ptr<Launch> launch(static_cast<Launch*>(argument));
    launch->run();
  };
  const auto run_in_graph = [](void* argument) { static_cast<Launch*>(argument)->run_again(); };
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(current_cuda_stream(), &status);
  if (status == cudaStreamCaptureStatusNone) check_cuda(cudaLaunchHostFunc(current_cuda_stream(), run, launch.release()), "late device");
  else check_cuda(cudaLaunchHostFunc(current_cuda_stream(), run_in_graph, launch.release()), "late device");
  return true;
}

}  // namespace ndd::late

// For tests: while the gate is closed, no image is decoded.
NDD_EXTERN void ndd_late_close_gate(int closed) {
  {
    const std::lock_guard<std::mutex> lock(ndd::late::gate_mutex);
    ndd::late::gate_closed = closed != 0;
  }
  ndd::late::gate_changed.notify_all();
}
