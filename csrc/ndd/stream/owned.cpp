// SPDX-License-Identifier: Apache-2.0
// Handles held by Python, wrapped in objects (capsules) whose destructor is C code. A Python finalizer would not be safe: `__del__` or a weakref
// callback can be interrupted before its first line, and Python discards a KeyboardInterrupt raised there, leaking the handle.
#include "ndd/stream/owned.h"

#include <unistd.h>

#include <memory>

#include "ndd/python_interface.h"

namespace ndd {

thread_local void* unowned_call = nullptr;
thread_local bool plan_waits = false, launch_waits = false;

namespace {

constexpr const char* kName = "torch_ndd.handle";

struct Owned {
  void* handle;
  void (*release)(void*);
  pid_t process;  // the only process that may release it; 0 for any
};

// PyCapsule_New and PyCapsule_GetPointer, passed in by Python because the library does not link to libpython.
void* (*capsule_new)(void*, const char*, void (*)(void*)) = nullptr;
void* (*capsule_pointer)(void*, const char*) = nullptr;

void let_go(void* capsule) {
  const std::unique_ptr<Owned> owned(static_cast<Owned*>(capsule_pointer(capsule, kName)));
  if (owned && (owned->process == 0 || owned->process == getpid())) owned->release(owned->handle);
}

}  // namespace
}  // namespace ndd

NDD_EXPORT(keep, void, ndd_capsules, (void* make, void* pointer)) {
  ndd::capsule_new = reinterpret_cast<decltype(ndd::capsule_new)>(make);
  ndd::capsule_pointer = reinterpret_cast<decltype(ndd::capsule_pointer)>(pointer);
}

// Returns a Python object that calls `release` when it is destroyed. With `only_here`, a process forked from this one does not call it.
NDD_EXPORT(keep, ndd::PythonObject*, ndd_own, (void* handle, void* release, int only_here)) {
  auto owned = std::make_unique<ndd::Owned>(ndd::Owned{handle, reinterpret_cast<void (*)(void*)>(release), only_here ? getpid() : 0});
  void* capsule = ndd::capsule_new(owned.get(), ndd::kName, &ndd::let_go);
  if (ndd::unowned_call == handle) ndd::unowned_call = nullptr;
  if (capsule == nullptr) {
    owned->release(handle);
    return nullptr;
  }
  owned.release();
  return static_cast<ndd::PythonObject*>(capsule);
}

// Lets a file descriptor be owned as a handle.
NDD_EXPORT(keep, void, ndd_close_file, (void* file)) { close(static_cast<int>(reinterpret_cast<intptr_t>(file))); }
