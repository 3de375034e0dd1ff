// SPDX-License-Identifier: Apache-2.0
// libsndfile, loaded at run time from the wheel of soundfile: the part of its documented interface that decoding needs. Declared here,
// because the wheel has no headers.
#pragma once

#include <cstdint>

namespace ndd {

struct SndfileInfo {
  int64_t frames;
  int samplerate, channels, format, sections, seekable;
};

// SF_VIRTUAL_IO: callbacks through which libsndfile reads memory.
struct SndfileSource {
  int64_t (*length)(void* file);
  int64_t (*seek)(int64_t offset, int whence, void* file);
  int64_t (*read)(void* out, int64_t count, void* file);
  int64_t (*write)(const void* in, int64_t count, void* file);
  int64_t (*tell)(void* file);
};

struct SndfileHandle;

struct SndfileLibrary {
  SndfileHandle* (*open_virtual)(SndfileSource* source, int mode, SndfileInfo* info, void* file);
  int (*close)(SndfileHandle* handle);
  int (*error)(SndfileHandle* handle);  // 0 if none occurred so far
  const char* (*strerror)(SndfileHandle* handle);
  int64_t (*seek)(SndfileHandle* handle, int64_t frames, int whence);  // returns the new position, or -1
  int64_t (*readf_short)(SndfileHandle* handle, int16_t* out, int64_t frames);
  int64_t (*readf_int)(SndfileHandle* handle, int32_t* out, int64_t frames);
  int64_t (*readf_float)(SndfileHandle* handle, float* out, int64_t frames);
  int64_t (*read_raw)(SndfileHandle* handle, void* out, int64_t bytes);  // of whole frames, as they are stored
  int (*command)(SndfileHandle* handle, int command, void* data, int size);
};

// Returns the loaded library. Throws Error with the package to install if it is not loaded.
const SndfileLibrary& sndfile();

}  // namespace ndd
