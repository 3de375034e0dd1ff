// SPDX-License-Identifier: Apache-2.0
#include "decoders/sndfile_library.h"

#include "decoders/captured_output.h"
#include "ndd/error.h"

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string>

namespace ndd {
namespace {

const SndfileLibrary* loaded = nullptr;  // never deleted: threads may decode while the process exits

void load_sndfile(const char* path) {
  if (loaded) return;
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) fail("decoders.audio: cannot load libsndfile: ", dlerror());
  auto library = std::make_unique<SndfileLibrary>();
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (!function) fail("decoders.audio: this libsndfile has no function ", name);
  };
  find("sf_open_virtual", library->open_virtual);
  find("sf_close", library->close);
  find("sf_strerror", library->strerror);
  find("sf_readf_short", library->readf_short);
  find("sf_readf_int", library->readf_int);
  find("sf_readf_float", library->readf_float);
  const char* (*version)() = nullptr;
  find("sf_version_string", version);
  // libmpg123, which is in it, prints. Only the release that was looked at is patched.
  if (!std::strcmp(version(), "libsndfile-1.2.2")) capture_output_of(reinterpret_cast<const void*>(library->open_virtual));
  loaded = library.release();
}

}  // namespace

const SndfileLibrary& sndfile() {
  if (!loaded) fail("decoders.audio: libsndfile is not loaded; it comes with: pip install torch_ndd[audio]");
  return *loaded;
}

}  // namespace ndd

// Called through ctypes before the first decoding. Returns the reason of a failure, or null.
extern "C" __attribute__((visibility("default"))) const char* ndd_load_sndfile(const char* path) {
  static std::string reason;
  try {
    ndd::load_sndfile(path);
    return nullptr;
  } catch (const std::exception& error) {
    reason = error.what();
    return reason.c_str();
  }
}
