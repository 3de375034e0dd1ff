// SPDX-License-Identifier: Apache-2.0
// ndd::again repeats an earlier kernel call with other tensors: it checks that they match the tensors of the first call, allocates the output, and
// runs the kernel as a call from Python would. Everything happens in a single call of torch's dispatcher because, with cold caches, each dispatcher
// call takes 70 us (torch.empty included) and each tensor attribute that Python reads takes 20.
//
// A plan is recorded once: ndd_plan announces it, the next kernel call on the thread is captured instead of run (keep_for_plan), and
// ndd_plan_made returns the result. For a GPU, Python has already made the right stream current.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ndd/derive.h"
#include "ndd/handles.h"
#include "ndd/kernel.h"
#include "ndd/python_interface.h"
#include "ndd/samples.h"
#include "ndd/stream/host_memory.h"
#include "ndd/stream/operation.h"
#include "ndd/stream/owned.h"
#include "ndd/stream_scope.h"

NDD_EXTERN void ndd_begin(int mode, void* reads, int64_t sample);
NDD_EXTERN uintptr_t ndd_end();
NDD_EXTERN void ndd_release(void* handle);
NDD_EXTERN bool ndd_round_numbers(const void* from, int64_t dtype, int64_t count, int64_t* to);

namespace ndd {
namespace {

using detail::Boxed;
using detail::Parameter;

// Where an argument comes from: a number from 0 on selects a tensor of the repeated call; these values stand for everything else.
NDD_PLAIN_ENUM("plan.Place", Place, int64_t, constant_place = -1, output_place = -2);

struct Argument {
  enum Kind { tensor, maybe_tensor, tensors, text, numbers, plain };

  int64_t place = constant_place;
  Kind kind = plain;
  MaybeTensor its_tensor;
  std::vector<MaybeTensor> its_tensors;  // of a list: the constant ones
  std::vector<int64_t> its_places;  // where those of a list come from
  std::string its_text;
  std::vector<int64_t> its_numbers;
  uint64_t value = 0;  // any other argument, as the dispatcher passes it

  uint64_t to_ivalue(const MaybeTensor& tensor) const { return kind == maybe_tensor ? detail::to_ivalue(tensor) : detail::to_ivalue(*tensor); }
  uint64_t constant() const {
    if (kind == text) return detail::to_ivalue(its_text);
    if (kind == numbers) return detail::to_ivalue(its_numbers);
    return kind == plain ? value : to_ivalue(its_tensor);
  }
  uint64_t list_of(const std::vector<Tensor>& given) const {
    std::vector<Tensor> list;
    list.reserve(its_places.size());
    for (size_t k = 0; k < its_places.size(); ++k)
      list.push_back(its_places[k] == constant_place ? *its_tensors[k] : given[static_cast<size_t>(its_places[k])]);
    return detail::to_ivalue(list);
  }
};

constexpr int kHost = -1;
int gpu_of(const Tensor& tensor) { return tensor.is_cuda() ? tensor.device_index() : kHost; }

// Which shapes of a tensor fit a plan besides that of the first call.
NDD_PLAIN_ENUM("plan.Fit", Fit, int64_t, equal_shape = 0, any_size = 1, any_rows = 2);  // `any_rows`: another number of samples

// What the number of samples of a call without inputs, which Python passes, may be.
NDD_PLAIN_ENUM("plan.Rows", Rows, int64_t, by_tensors = 0, given_rows = 1, any_given_rows = 2);  // `given_rows`: that of the first call

struct Form {
  DType dtype;
  std::vector<int64_t> shape;
  int gpu;  // device index, or kHost
  bool repeats;  // all samples are the same memory

  // Of a contiguous tensor on the host.
  Form(DType type, std::vector<int64_t> extents) : dtype(type), shape(std::move(extents)), gpu(kHost), repeats(false) {}
  explicit Form(const Tensor& tensor)
      : dtype(tensor.dtype()), shape(tensor.sizes(), tensor.sizes() + tensor.dim()), gpu(gpu_of(tensor)),
        repeats(!tensor.is_contiguous() && repeats_a_sample(tensor)) {}
  // `rows` is the number of samples of the call.
  bool fits(const Tensor& tensor, Fit fit, int64_t rows) const {
    if (tensor.dtype() != dtype || tensor.dim() != static_cast<int64_t>(shape.size()) || gpu_of(tensor) != gpu) return false;
    if (!tensor.is_contiguous() && !(repeats && repeats_a_sample(tensor))) return false;
    if (fit == any_size) return true;
    const int64_t* sizes = tensor.sizes();
    if (fit == any_rows) return sizes[0] == rows && rows > 0 && std::equal(shape.begin() + 1, shape.end(), sizes + 1);
    return std::equal(shape.begin(), shape.end(), sizes);
  }
};

// What a repeated call computes before the kernel, from the shapes of the samples and from arguments with a number for each of them.
struct Derivation {
  // Where the address of a tensor's numbers goes in `arguments`: a byte, the tensor of the call, and the byte in it. `rounded`: as integers, int64.
  struct Place {
    int64_t offset, tensor, position, rounded;
  };

  Derive* function = nullptr;
  std::vector<char> arguments;
  std::vector<Place> places;
  std::vector<int64_t> options;
  std::vector<Form> tables;  // what the function fills, with a row for each sample
  bool is_ragged = false;  // the second tensor of the call has the shapes of the first
  bool is_fixed = false;  // the shapes of the output are those of the first call, whatever the function finds
};

struct Plan {
  Boxed* kernel = nullptr;
  std::vector<Argument> arguments;
  std::vector<std::pair<Form, Fit>> tensors;  // of the call; what is derived follows them
  std::unique_ptr<Derivation> derivation;
  std::unique_ptr<Form> output;
  int64_t sized = -1;  // the tensor whose rows are the samples of the call, and of the output; -1 if their number is that of the first call
  Rows rows = by_tensors;
  int64_t packed = -1;  // the tensor whose rows are the shapes of the samples in a packed output; -1 if it is dense
  std::shared_ptr<const Plan> other;  // the next plan to try, for other shapes
};
using PlanPtr = std::shared_ptr<const Plan>;

// The plan that this thread's next kernel call will complete.
struct Draft {
  std::vector<int64_t> places;  // what changes from call to call: an argument, the index in it if it is a list, or -1, and a place
  std::vector<Fit> fits;  // for each tensor of the call
  int64_t packed = -1;  // as in Plan
  Rows rows = by_tensors;  // as in Plan
  std::unique_ptr<Derivation> derivation;  // as in Plan, without tables
  size_t tables = 0;  // their number
  std::vector<std::unique_ptr<Form>> forms;  // of the tensors that only the host reads; null for the others
  std::shared_ptr<Plan> plan;  // null if the kernel has arguments that cannot be repeated
};
thread_local std::unique_ptr<Draft> draft;

bool is(const char* type, std::string_view name) { return name == type; }

// Takes ownership of one argument.
void take(const char* type, uint64_t value, Argument& argument) {
  argument.kind = is(type, "Tensor")     ? Argument::tensor
                  : is(type, "Tensor?")  ? Argument::maybe_tensor
                  : is(type, "Tensor[]") ? Argument::tensors
                  : is(type, "str")      ? Argument::text
                  : is(type, "int[]")    ? Argument::numbers
                                         : Argument::plain;
  if (argument.kind == Argument::tensor) argument.its_tensor = Parameter<Tensor>::take(value);
  if (argument.kind == Argument::maybe_tensor) argument.its_tensor = Parameter<MaybeTensor>::take(value);
  if (argument.kind == Argument::text) argument.its_text = Parameter<std::string>::take(value);
  if (argument.kind == Argument::numbers) argument.its_numbers = Parameter<std::vector<int64_t>>::take(value);
  if (argument.kind == Argument::tensors) {
    for (Tensor& tensor : Parameter<std::vector<Tensor>>::take(value)) argument.its_tensors.emplace_back(std::move(tensor));
    argument.its_places.assign(argument.its_tensors.size(), constant_place);
  }
  argument.value = value;
}

using Again = std::pair<MaybeTensor, int64_t>;

// nullopt when out of memory: the ordinary call that follows raises the error.
MaybeTensor output_of(const Form& form, const std::vector<int64_t>& shape) {
  if (form.gpu == kHost) return unfilled_output(shape, form.dtype);
  try {
    return unfilled_cuda_tensor(shape, form.dtype, form.gpu);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// Whether the bytes of an output of this shape can be counted, as the allocation does.
bool has_countable_bytes(const std::vector<int64_t>& shape) {
  int64_t bytes = sizeof(double);
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes)) return false;
  return true;
}

// Whether samples have the same shape, and the output of the plan is one of such samples.
bool have_output_shape(const Plan& plan, const int64_t* shapes, int64_t samples, int64_t ndim) {
  for (int64_t k = ndim; k < samples * ndim; ++k)
    if (shapes[k] != shapes[k - ndim]) return false;
  return plan.packed >= 0 || std::equal(shapes, shapes + ndim, plan.output->shape.begin() + 1, plan.output->shape.end());
}

// Appends the tables that the plan's derivation fills to the tensors of the call, and fills the shapes of a packed output. Returns false if an argument
// is wrong, or if the output has another form: packed instead of dense, dense instead of packed, or of another shape.
bool derive(const Plan& plan, std::vector<Tensor>& tensors) {
  const Derivation& derivation = *plan.derivation;
  const Tensor& rows = tensors[derivation.is_ragged ? 1 : 0];
  const int64_t samples = rows.size(0), ndim = derivation.is_ragged ? rows.size(1) : rows.dim() - 1;
  const int64_t* extents = derivation.is_ragged ? static_cast<const int64_t*>(rows.data_ptr()) : rows.sizes() + 1;
  if (samples == 0) return false;
  std::vector<char> arguments = derivation.arguments;
  std::vector<std::vector<int64_t>> rounded;
  for (const Derivation::Place& place : derivation.places) {
    const Tensor& numbers = tensors[static_cast<size_t>(place.tensor)];
    const void* data = numbers.data_ptr();
    if (place.rounded != 0) {
      rounded.emplace_back(numbers.numel());
      if (!ndd_round_numbers(data, static_cast<int64_t>(numbers.dtype()), numbers.numel(), rounded.back().data())) return false;
      data = rounded.back().data();
    }
    data = static_cast<const char*>(data) + place.position;
    std::memcpy(&arguments[static_cast<size_t>(place.offset)], &data, sizeof data);
  }
  void* tables[2] = {};
  for (size_t k = 0; k < derivation.tables.size(); ++k) {
    std::vector<int64_t> shape = derivation.tables[k].shape;
    shape[0] = samples;
    tensors.push_back(unfilled_tensor(shape, derivation.tables[k].dtype));
    tables[k] = tensors.back().data_ptr();
  }
  std::vector<int64_t> dense;
  if (plan.packed < 0) dense.resize(static_cast<size_t>(samples * ndim));
  auto* const shapes = plan.packed < 0 ? dense.data() : static_cast<int64_t*>(tensors[static_cast<size_t>(plan.packed)].data_ptr());
  const int64_t stride = derivation.is_ragged ? ndim : 0;
  if (!derivation.function(extents, stride, samples, ndim, arguments.data(), derivation.options.data(), tables[0], tables[1], shapes)) return false;
  return derivation.is_fixed || have_output_shape(plan, shapes, samples, ndim) == (plan.packed < 0);
}

// `rows` is the number of samples, unless it is that of the first call.
Again run(const Plan& plan, const std::vector<Tensor>& passed, std::vector<Dependency> reads, int64_t mode, int64_t rows) {
  std::vector<Tensor> derived;
  if (plan.derivation != nullptr) {
    derived = passed;
    if (!derive(plan, derived)) return {std::nullopt, 0};
  }
  const std::vector<Tensor>& tensors = plan.derivation != nullptr ? derived : passed;
  std::vector<int64_t> resized;
  if (plan.sized >= 0 || plan.rows == any_given_rows) {
    resized = plan.output->shape;
    resized[0] = rows;
    if (!has_countable_bytes(resized)) return {std::nullopt, 0};
  }
  if (plan.packed >= 0) {
    const Tensor& shapes = tensors[static_cast<size_t>(plan.packed)];
    resized = {count_elements(static_cast<const int64_t*>(shapes.data_ptr()), shapes.size(0), shapes.size(1))};
    if (resized[0] < 0) return {std::nullopt, 0};  // the ordinary call raises the error
  }
  const MaybeTensor out = output_of(*plan.output, resized.empty() ? plan.output->shape : resized);
  if (!out) return {std::nullopt, 0};
  std::vector<uint64_t> stack(plan.arguments.size());
  for (size_t k = 0; k < stack.size(); ++k) {
    const Argument& argument = plan.arguments[k];
    stack[k] = argument.kind == Argument::tensors ? argument.list_of(tensors)
               : argument.place == constant_place
                   ? argument.constant()
                   : argument.to_ivalue(argument.place == output_place ? out : tensors[static_cast<size_t>(argument.place)]);
  }
  // From here on exactly what Python does around a kernel call.
  ndd_begin(static_cast<int>(mode), nullptr, 0);
  for (Dependency& read : reads) read_in_call(std::move(read));
  try {
    plan.kernel(stack.data(), stack.size(), 0);
  } catch (...) {
    // The call must be closed even so, or the next kernel of this thread would join it.
    ndd_release(reinterpret_cast<void*>(ndd_end() & ~uintptr_t{1}));
    throw;
  }
  return {out, static_cast<int64_t>(ndd_end())};
}

// `handle` is one that ndd_plan_made has returned; `samples` is their number in a call without inputs. Returns the output and the handle from
// ndd_end; no output if no plan matches the tensors.
Again repeat(int64_t handle, const std::vector<Tensor>& tensors, std::vector<Dependency> reads, int64_t mode, int64_t samples) {
  const auto first = find_handle<PlanPtr>("ndd::again: plan", handle);
  for (const Plan* plan = first.get(); plan != nullptr; plan = plan->other.get()) {
    bool fits = tensors.size() == plan->tensors.size();
    if (fits && plan->sized >= 0) fits = tensors[static_cast<size_t>(plan->sized)].dim() > 0;
    const int64_t rows = fits && plan->sized >= 0 ? tensors[static_cast<size_t>(plan->sized)].size(0) : samples;
    if (plan->rows != by_tensors) fits = fits && samples > 0 && (plan->rows == any_given_rows || samples == plan->output->shape[0]);
    for (size_t k = 0; fits && k < tensors.size(); ++k) fits = plan->tensors[k].first.fits(tensors[k], plan->tensors[k].second, rows);
    if (fits) return run(*plan, tensors, std::move(reads), mode, rows);
  }
  return {std::nullopt, 0};
}

void check_mode(int64_t mode) {
  if (mode < static_cast<int64_t>(Mode::deferred) || mode > static_cast<int64_t>(Mode::sync))
    fail(Error::Value, "ndd::again: there is no mode ", mode);
}

// A sample of an earlier call, or all (Dependency), by the handle that ndd_end has returned.
Dependency dependency(int64_t handle, int64_t sample) {
  if (sample < Dependency::after_it) fail(Error::Value, "ndd::again: reads has no sample ", sample);
  return {find_handle<OperationPtr>("ndd::again: reads", handle), sample};
}

// `reads` holds pairs of a handle and a sample.
Again again(int64_t handle, const std::vector<Tensor>& tensors, const std::vector<int64_t>& reads, int64_t mode, int64_t samples) {
  check_mode(mode);
  if (reads.size() % 2 != 0) fail(Error::Value, "ndd::again: reads must be pairs of a handle and a sample, got ", reads.size(), " numbers");
  std::vector<Dependency> dependencies;
  for (size_t k = 0; k < reads.size(); k += 2) dependencies.push_back(dependency(reads[k], reads[k + 1]));
  return repeat(handle, tensors, std::move(dependencies), mode, samples);
}

// The common case without lists, which take 20 us with cold caches: one or two tensors, and at most one earlier call.
Again again_with(int64_t handle, const MaybeTensor& first, const MaybeTensor& second, int64_t mode, int64_t reads, int64_t sample, int64_t rows) {
  std::vector<Tensor> tensors;
  tensors.reserve(2);
  if (first) tensors.push_back(*first);
  if (second) tensors.push_back(*second);
  check_mode(mode);
  std::vector<Dependency> dependencies;
  if (reads != 0) dependencies.push_back(dependency(reads, sample));
  return repeat(handle, tensors, std::move(dependencies), mode, rows);
}

#ifdef NDD_CUDA
// The same for a GPU, on a CUDA stream that need not be torch's current one. It first waits for the stream `before`, unless that is -1. Tensors are the
// last arguments, because torch takes 0.1 us for each one that is passed.
Again again_on_stream(int64_t handle, int64_t device, int64_t stream, int64_t before, int64_t rows, const MaybeTensor& first,
                      const MaybeTensor& second, const MaybeTensor& third, const MaybeTensor& fourth, const MaybeTensor& fifth,
                      const MaybeTensor& sixth) {
  std::vector<Tensor> tensors;
  tensors.reserve(6);
  for (const MaybeTensor* tensor : {&first, &second, &third, &fourth, &fifth, &sixth})
    if (*tensor) tensors.push_back(**tensor);
  const StreamScope scope(reinterpret_cast<void*>(stream), static_cast<int>(device));
  if (before != -1) scope.wait_for(reinterpret_cast<void*>(before));
  return repeat(handle, tensors, {}, 0, rows);
}
#endif

}  // namespace

void forget_plan() {
  draft.reset();
  plan_waits = false;
}

namespace detail {

void keep_for_plan(Boxed* kernel, const char* const* types, uint64_t* stack, uint64_t arguments) {
  auto plan = std::make_shared<Plan>();
  plan->kernel = kernel;
  // Every argument is taken, even if the plan turns out to be useless: the dispatcher has handed over their references.
  plan->arguments.resize(arguments);
  for (size_t k = 0; k < arguments; ++k) take(types[k], stack[k], plan->arguments[k]);
  bool repeatable = true;
  std::vector<std::unique_ptr<Form>> forms = std::move(draft->forms);
  forms.resize(draft->fits.size());
  for (size_t k = 0; k < draft->places.size(); k += 3) {
    Argument& argument = plan->arguments.at(static_cast<size_t>(draft->places[k]));
    const bool in_list = draft->places[k + 1] >= 0;
    const auto element = static_cast<size_t>(draft->places[k + 1]);
    MaybeTensor& tensor = in_list ? argument.its_tensors.at(element) : argument.its_tensor;
    repeatable = tensor.has_value();
    if (!repeatable) break;
    const int64_t place = (in_list ? argument.its_places.at(element) : argument.place) = draft->places[k + 2];
    auto form = std::make_unique<Form>(*tensor);
    // A plan must not keep the batch of its first call alive.
    tensor.reset();
    (place == output_place ? plan->output : forms.at(static_cast<size_t>(place))) = std::move(form);
  }
  plan->derivation = std::move(draft->derivation);
  const size_t passed = forms.size() - (plan->derivation != nullptr ? draft->tables : 0);
  for (size_t k = 0; repeatable && k < forms.size(); ++k) {
    repeatable = forms[k] != nullptr;
    if (!repeatable) break;
    if (k >= passed) {
      plan->derivation->tables.push_back(std::move(*forms[k]));
      continue;
    }
    if (draft->fits[k] == any_rows && plan->sized < 0) plan->sized = static_cast<int64_t>(k);
    plan->tensors.emplace_back(std::move(*forms[k]), draft->fits[k]);
  }
  plan->packed = draft->packed;
  plan->rows = draft->rows;
  if (repeatable && plan->output) draft->plan = std::move(plan);
}

}  // namespace detail
}  // namespace ndd

// Captures the arguments of this thread's next kernel call instead of running it. `places` has three numbers for each of `count` tensors: the argument,
// the index in it if it is a list, or -1, and which tensor of the call it is (-2: the output). `fits` says for each tensor which sizes fit (Fit).
// `packed` is the tensor with the shapes of a packed output, or -1. `rows` says which numbers of samples fit (Rows).
NDD_EXPORT(keep, void, ndd_plan, (const int64_t* places, int64_t count, const int64_t* fits, int64_t tensor_count, int64_t packed, int64_t rows)) {
  ndd::draft = std::make_unique<ndd::Draft>();
  ndd::plan_waits = true;
  ndd::draft->places.assign(places, places + 3 * count);
  ndd::draft->packed = packed;
  ndd::draft->rows = static_cast<ndd::Rows>(rows);
  for (int64_t k = 0; k < tensor_count; ++k) ndd::draft->fits.push_back(static_cast<ndd::Fit>(fits[k]));
}

// Between ndd_plan and the kernel call: lets `function`, a Derive, compute the last `tables` of the tensors and the shapes of a packed output in each
// call. `places` has four numbers for each of `count` tensors (Derivation::Place). `host` are the tensors that the kernel does not get: for each its
// number, its dtype, its number of dimensions and its shape.
NDD_EXPORT(keep, void, ndd_plan_derivation,
           (void* function, const void* arguments, int64_t bytes, const int64_t* places, int64_t count, const int64_t* options, int64_t option_count,
            const int64_t* host, int64_t host_count, int64_t tables, bool is_ragged, bool is_fixed)) {
  auto derivation = std::make_unique<ndd::Derivation>();
  derivation->function = reinterpret_cast<ndd::Derive*>(function);
  derivation->arguments.assign(static_cast<const char*>(arguments), static_cast<const char*>(arguments) + bytes);
  for (const int64_t* place = places; place < places + 4 * count; place += 4) derivation->places.push_back({place[0], place[1], place[2], place[3]});
  derivation->options.assign(options, options + option_count);
  derivation->is_ragged = is_ragged;
  derivation->is_fixed = is_fixed;
  ndd::draft->forms.resize(ndd::draft->fits.size());
  for (int64_t k = 0; k < host_count; ++k, host += 3 + host[2])
    ndd::draft->forms.at(static_cast<size_t>(host[0])) =
        std::make_unique<ndd::Form>(static_cast<ndd::DType>(host[1]), std::vector<int64_t>(host + 3, host + 3 + host[2]));
  ndd::draft->derivation = std::move(derivation);
  ndd::draft->tables = static_cast<size_t>(tables);
}

// Returns the handle that ndd::again takes. `other` is a plan for other shapes to try next, or null. Null if the kernel has arguments that cannot be
// repeated.
NDD_EXPORT(keep, void*, ndd_plan_made, (void* other)) {
  const std::unique_ptr<ndd::Draft> draft = std::move(ndd::draft);
  ndd::plan_waits = false;
  if (!draft || !draft->plan) return nullptr;
  if (other != nullptr) draft->plan->other = *static_cast<ndd::PlanPtr*>(other);
  return ndd::handles<ndd::PlanPtr>().make(std::move(draft->plan));
}
NDD_EXPORT(keep, void, ndd_plan_release, (void* plan)) { ndd::handles<ndd::PlanPtr>().take(plan); }

NDD_FUNCTION(again_with, "(int plan, Tensor? first, Tensor? second, int mode, int reads, int sample, int rows) -> (Tensor?, int)", ndd::again_with)
#ifdef NDD_CUDA
NDD_FUNCTION(
    again_on_stream,
    "(int plan, int device, int stream, int before, int rows, Tensor? first=None, Tensor? second=None, Tensor? third=None, Tensor? fourth=None, "
    "Tensor? fifth=None, Tensor? sixth=None) -> (Tensor?, int)",
    ndd::again_on_stream)
#endif
NDD_FUNCTION(again, "(int plan, Tensor[] tensors, int[] reads, int mode, int rows) -> (Tensor?, int)", ndd::again)
