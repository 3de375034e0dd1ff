// SPDX-License-Identifier: Apache-2.0
// nvImageCodec, loaded at run time: its functions, and the CPU extensions a decoder is made of.
#pragma once

#include <cstddef>  // before nvimgcodec.h, which uses ptrdiff_t without it

#include <nvimgcodec.h>

#include <string>
#include <vector>

namespace ndd {

struct NvimgcodecLibrary {
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

  // One per extension. Registering the CPU extensions one by one, instead of letting the library scan its folder, keeps the GPU
  // extensions out: those print "Failed to load nvjpeg library!" on every machine without a GPU.
  std::vector<nvimgcodecExtensionModuleEntryFunc_t> extensions;
  std::vector<nvimgcodecExtensionModuleEntryFunc_t> tiff_extensions;  // the one of `extensions` that is libtiff
  std::vector<nvimgcodecExtensionModuleEntryFunc_t> gpu_extensions;  // empty until a GPU decodes
  bool patched = false;
};

// Called once from Python, which knows where the wheel lies and what its extensions are called. Throws when one cannot be loaded.
// `patch` is for binaries that were looked at: what they print becomes part of the exceptions, and what the JPEG extension loses is freed.
void load_nvimgcodec(const std::string& library_path, const std::vector<std::string>& extension_paths, bool patch);

// The same for those that need a GPU, before it decodes for the first time.
void load_gpu_extensions(const std::vector<std::string>& extension_paths);

// The loaded library; throws an error that names the package when there is none.
const NvimgcodecLibrary& nvimgcodec();

// A structure of the C API with its type and size filled in and all else zero.
template <class T>
T nvimgcodec_struct(nvimgcodecStructureType_t type) {
  T value{};
  value.struct_type = type;
  value.struct_size = sizeof(T);
  return value;
}

}  // namespace ndd
