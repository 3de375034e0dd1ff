// SPDX-License-Identifier: Apache-2.0
// Loaded by its path in the Python package that brings it, and never closed: threads may decode while the process exits.
#include "decoders/codecs/nvimgcodec_library.h"

#include "decoders/codecs/captured_output.h"
#include "decoders/codecs/reclaimed_arrays.h"
#include "ndd/error.h"

#include <dlfcn.h>

#include <memory>
#include <utility>

namespace ndd {
namespace {

NvimgcodecLibrary* loaded = nullptr;  // never deleted: threads may decode while the process exits

// RTLD_LOCAL: its symbols stay out of the way of other copies in the process.
void* open_library(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) fail("decoders.image: cannot load nvImageCodec: ", dlerror());
  return handle;
}

template <class F>
void find_function(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  if (!function) fail("decoders.image: this nvImageCodec has no function ", name);
}

nvimgcodecExtensionModuleEntryFunc_t open_extension(const std::string& path, bool patch) {
  nvimgcodecExtensionModuleEntryFunc_t entry;
  find_function(open_library(path), "nvimgcodecExtensionModuleEntry", entry);
  if (patch) capture_output_of(reinterpret_cast<const void*>(entry));
  return entry;
}

}  // namespace

void load_nvimgcodec(const std::string& library_path, const std::vector<std::string>& extension_paths, bool patch) {
  // Later calls have no effect.
  if (loaded) return;
  auto library = std::make_unique<NvimgcodecLibrary>();
  void* handle = open_library(library_path);
#define NDD_FIND(name) find_function(handle, "nvimgcodec" #name, library->name)
  NDD_FIND(InstanceCreate);
  NDD_FIND(InstanceDestroy);
  NDD_FIND(ExtensionCreate);
  NDD_FIND(DecoderCreate);
  NDD_FIND(DecoderDestroy);
  NDD_FIND(DecoderDecode);
  NDD_FIND(CodeStreamCreateFromHostMem);
  NDD_FIND(CodeStreamGetSubCodeStream);
  NDD_FIND(CodeStreamGetImageInfo);
  NDD_FIND(CodeStreamDestroy);
  NDD_FIND(ImageCreate);
  NDD_FIND(ImageDestroy);
  NDD_FIND(FutureWaitForAll);
  NDD_FIND(FutureGetProcessingStatus);
  NDD_FIND(FutureDestroy);
#undef NDD_FIND
  library->patched = patch;
  if (patch) capture_output_of(reinterpret_cast<const void*>(library->InstanceCreate));

  for (const auto& path : extension_paths) {
    library->extensions.push_back(open_extension(path, patch));
    // The extensions are told apart by their file names, which the wheel determines.
    if (path.find("libtiff_ext") != std::string::npos) library->tiff_extensions = {library->extensions.back()};
    if (patch && path.find("jpeg_turbo") != std::string::npos) reclaim_arrays_of(reinterpret_cast<const void*>(library->extensions.back()));
  }
  loaded = library.release();
}

void load_gpu_extensions(const std::vector<std::string>& extension_paths) {
  if (!loaded->gpu_extensions.empty()) return;
  std::map<std::string, nvimgcodecExtensionModuleEntryFunc_t> entries;
  for (const auto& path : extension_paths) {
    // libnvjpeg_ext.so.0.9.0 is "nvjpeg".
    const size_t begin = path.rfind("/lib") + 4, end = path.find("_ext", begin);
    if (begin < 4 || end == std::string::npos) fail("decoders.image: ", path, " is not an extension of nvImageCodec");
    entries[path.substr(begin, end - begin)] = open_extension(path, loaded->patched);
  }
  loaded->gpu_extensions = std::move(entries);
}

const NvimgcodecLibrary& nvimgcodec() {
  if (!loaded) {
    fail("decoders.image: nvImageCodec is not loaded; install nvidia-nvimgcodec-cu13 (Linux) and import torch_ndd");
  }
  return *loaded;
}

}  // namespace ndd
