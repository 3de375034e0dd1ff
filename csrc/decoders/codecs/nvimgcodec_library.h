// SPDX-License-Identifier: Apache-2.0
// nvImageCodec, loaded at run time: its functions, and its CPU extensions.
#pragma once

#include <cstddef>  // before nvimgcodec.h, which uses ptrdiff_t without it

#include <nvimgcodec.h>

#include <map>
#include <string>
#include <vector>

namespace ndd {

struct NvimgcodecLibrary {
  // Named as in nvimgcodec.h, without the prefix.
  decltype(&nvimgcodecInstanceCreate) InstanceCreate;
  decltype(&nvimgcodecInstanceDestroy) InstanceDestroy;
  decltype(&nvimgcodecExtensionCreate) ExtensionCreate;
  decltype(&nvimgcodecDecoderCreate) DecoderCreate;
  decltype(&nvimgcodecDecoderDestroy) DecoderDestroy;
  decltype(&nvimgcodecDecoderDecode) DecoderDecode;
  decltype(&nvimgcodecCodeStreamCreateFromHostMem) CodeStreamCreateFromHostMem;
  decltype(&nvimgcodecCodeStreamGetSubCodeStream) CodeStreamGetSubCodeStream;
  decltype(&nvimgcodecCodeStreamGetImageInfo) CodeStreamGetImageInfo;
  decltype(&nvimgcodecCodeStreamDestroy) CodeStreamDestroy;
  decltype(&nvimgcodecImageCreate) ImageCreate;
  decltype(&nvimgcodecImageDestroy) ImageDestroy;
  decltype(&nvimgcodecFutureWaitForAll) FutureWaitForAll;
  decltype(&nvimgcodecFutureGetProcessingStatus) FutureGetProcessingStatus;
  decltype(&nvimgcodecFutureDestroy) FutureDestroy;

  // Entry points, one per extension. The CPU extensions are registered individually, instead of letting the library scan its folder, because the GPU
  // extensions print "Failed to load nvjpeg library!" on every machine without a GPU.
  std::vector<nvimgcodecExtensionModuleEntryFunc_t> extensions;
  std::vector<nvimgcodecExtensionModuleEntryFunc_t> tiff_extensions;  // only libtiff
  std::map<std::string, nvimgcodecExtensionModuleEntryFunc_t> gpu_extensions;  // by name ("nvjpeg"); empty until a GPU decodes
  bool patched = false;
};

// Loads the library once; Python locates the wheel and its extensions. Throws Error if one cannot be loaded. `patch` is for inspected
// binaries: their output is captured, and memory that the JPEG extension leaks is freed.
void load_nvimgcodec(const std::string& library_path, const std::vector<std::string>& extension_paths, bool patch);

// Loads the extensions that need a GPU, before the first image is decoded on it.
void load_gpu_extensions(const std::vector<std::string>& extension_paths);

// Returns the loaded library. Throws Error with the package to install if it is not loaded.
const NvimgcodecLibrary& nvimgcodec();

// Returns a structure of the C API with its type and size set and everything else zero.
template <class T>
T nvimgcodec_struct(nvimgcodecStructureType_t type) {
  T value{};
  value.struct_type = type;
  value.struct_size = sizeof(T);
  return value;
}

}  // namespace ndd
