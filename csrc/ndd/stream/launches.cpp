// SPDX-License-Identifier: Apache-2.0
// A queued launch is a kernel call whose arguments are kept as the dispatcher passed them. Python announces it with ndd_queue_launch; the next kernel
// call on the thread is then queued (queue_launch) instead of made.
#include "ndd/stream/launches.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/stream/owned.h"
#include "ndd/stream/scheduler.h"

#ifdef USE_CUDA
#include "ndd/cuda.h"
#include "ndd/stream/outside_capture.h"
#include "ndd/stream_scope.h"
#endif

namespace ndd {
namespace {

using detail::Boxed;
using detail::Parameter;

// Where the next kernel call of this thread goes.
struct Place {
  int device;
  void* stream;
  void* done;  // an event, recorded after the launch
  std::vector<void*> events;  // which the stream waits for before
  OperationPtr previous;
};
thread_local std::unique_ptr<Place> next_place;

#ifdef USE_CUDA

// Calls give(tensor) for each tensor of an argument, whose reference it takes; returns the argument with new references.
template <class Function>
uint64_t visit(std::string_view type, uint64_t value, Function give) {
  if (type == "Tensor") {
    const Tensor tensor = Parameter<Tensor>::take(value);
    give(tensor);
    return detail::to_ivalue(tensor);
  }
  if (type == "Tensor?") {
    const MaybeTensor tensor = Parameter<MaybeTensor>::take(value);
    if (tensor) give(*tensor);
    return detail::to_ivalue(tensor);
  }
  if (type == "Tensor[]") {
    const std::vector<Tensor> tensors = Parameter<std::vector<Tensor>>::take(value);
    for (const Tensor& tensor : tensors) give(tensor);
    return detail::to_ivalue(tensors);
  }
  return value;
}

void release(std::string_view type, uint64_t value) {
  if (type == "Tensor") Parameter<Tensor>::take(value);
  else if (type == "Tensor?") Parameter<MaybeTensor>::take(value);
  else if (type == "Tensor[]") Parameter<std::vector<Tensor>>::take(value);
  else if (type == "str") Parameter<std::string>::take(value);
  else if (type == "int[]") Parameter<std::vector<int64_t>>::take(value);
}

class Launch {
 public:
  Launch(Place place, Boxed* kernel, const char* const* types, std::vector<uint64_t> arguments)
      : place_(std::move(place)), kernel_(kernel), types_(types), arguments_(std::move(arguments)) {}
  Launch(Launch&& other) noexcept = default;
  // A launch whose inputs have failed is never made.
  ~Launch() {
    for (size_t k = 0; k < arguments_.size(); ++k) release(types_[k], arguments_[k]);
  }

  void operator()(int64_t) {
    const OutsideCall outside;
    const OutsideCapture relaxed;
    const auto stream = static_cast<cudaStream_t>(place_.stream);
    const StreamScope scope(stream, place_.device);
    for (void* event : place_.events) check_cuda(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(event), 0), "waiting for a stream");
    std::vector<uint64_t> arguments = std::exchange(arguments_, {});
    std::exception_ptr error;
    try {
      kernel_(arguments.data(), arguments.size(), 0);
    } catch (...) {
      error = std::current_exception();
    }
    // Even so: a kernel of several launches may have made the first.
    check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(place_.done), stream), "recording an event");
    if (error) std::rethrow_exception(error);
  }

 private:
  Place place_;
  Boxed* kernel_;
  const char* const* types_;
  std::vector<uint64_t> arguments_;  // references; empty once the kernel has taken them
};

// Copies values of the host to a GPU, through pinned memory if it is given. Only to be queued: unlike a kernel it reads the values when it is launched.
void upload_values(const Tensor& values, const MaybeTensor& pinned, const Tensor& copy) {
  if (pinned) copy_tensor(*pinned, values);
  copy_tensor(copy, pinned ? *pinned : values);
}

#endif

}  // namespace

namespace detail {

void queue_launch([[maybe_unused]] Boxed* kernel, [[maybe_unused]] const char* const* types, [[maybe_unused]] uint64_t* stack,
                  [[maybe_unused]] uint64_t arguments) {
#ifdef USE_CUDA
  Place place = std::move(*next_place);
  next_place.reset();
  launch_waits = false;
  // References of the operation's own: the kernel's end on the thread that runs it, where the last one would need the GIL.
  std::vector<Tensor> tensors;
  std::vector<uint64_t> kept(stack, stack + arguments);
  for (size_t k = 0; k < kept.size(); ++k) kept[k] = visit(types[k], kept[k], [&](const Tensor& tensor) { tensors.push_back(tensor); });
  const OperationPtr previous = std::move(place.previous);
  queue_call(Launch(std::move(place), kernel, types, std::move(kept)), std::move(tensors), previous);
#endif
}

}  // namespace detail
}  // namespace ndd

#ifdef USE_CUDA
NDD_FUNCTION(upload, "(Tensor values, Tensor? pinned, Tensor(a!) copy) -> ()", ndd::upload_values)
#endif

// Queues this thread's next kernel call instead of making it: on a stream of a device, after `events`, and before recording `done`. The caller keeps
// the events alive until the launch has been made. `previous` is the handle of the launch before it on the stream, or null.
NDD_EXPORT(keep, void, ndd_queue_launch, (int device, void* stream, void* done, void* const* events, int64_t count, void* previous)) {
  ndd::next_place = std::make_unique<ndd::Place>();
  *ndd::next_place = {device, stream, done, {events, events + count}, {}};
  if (previous != nullptr) ndd::next_place->previous = *static_cast<ndd::OperationPtr*>(previous);
#ifdef USE_CUDA
  ndd::launch_waits = true;
#endif
}

// Forgets the announcement if the kernel was not called.
NDD_EXPORT(keep, void, ndd_queue_no_launch, ()) {
  ndd::next_place.reset();
  ndd::launch_waits = false;
}

// Whether a call waits for Python functions, directly or through its inputs.
NDD_EXPORT(keep, int, ndd_waits_for_python, (void* handle)) { return ndd::scheduler().waits_for_python(*static_cast<ndd::OperationPtr*>(handle)); }

// Waits until the device has reached an event, even while a CUDA graph is captured.
NDD_EXPORT(release, void, ndd_wait_for_event, ([[maybe_unused]] void* event)) {
#ifdef USE_CUDA
  const ndd::OutsideCapture relaxed;
  cudaEventSynchronize(static_cast<cudaEvent_t>(event));  // an error of the device is reported by its next user
#endif
}
