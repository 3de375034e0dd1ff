// SPDX-License-Identifier: Apache-2.0
#include "decoders/audio/sndfile_library.h"

#include "decoders/codecs/captured_output.h"
#include "ndd/error.h"
#include "ndd/python_interface.h"

#include <dlfcn.h>

#include <memory>
#include <string>

namespace ndd {
namespace {

const SndfileLibrary* loaded = nullptr;  // never deleted: threads may decode while the process exits

// Returns whether the output of the library is captured.
bool load_sndfile(const char* path, bool patch) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) fail("decoders.audio: cannot load libsndfile: ", dlerror());
  auto library = std::make_unique<SndfileLibrary>();
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (!function) fail("decoders.audio: this libsndfile has no function ", name);
  };
  find("sf_open_virtual", library->open_virtual);
  find("sf_close", library->close);
  find("sf_error", library->error);
  find("sf_strerror", library->strerror);
  find("sf_seek", library->seek);
  find("sf_readf_short", library->readf_short);
  find("sf_readf_int", library->readf_int);
  find("sf_readf_float", library->readf_float);
  find("sf_read_raw", library->read_raw);
  find("sf_command", library->command);
  const bool patched = patch && capture_output_of(reinterpret_cast<const void*>(library->open_virtual));
  loaded = library.release();
  return patched;
}

}  // namespace

const SndfileLibrary& sndfile() {
  if (!loaded) fail("decoders.audio: libsndfile is not loaded; it comes with: pip install torch_ndd[audio]");
  return *loaded;
}

}  // namespace ndd

// Called by Python once, before the first file is decoded. Returns the reason of a failure, or null.
NDD_EXPORT(release, const char*, ndd_load_sndfile, (const char* path, bool patch, bool* patched)) {
  thread_local std::string reason;
  try {
    *patched = ndd::load_sndfile(path, patch);
    return nullptr;
  } catch (const std::exception& error) {
    reason = error.what();
    return reason.c_str();
  }
}
