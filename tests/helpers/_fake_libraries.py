# SPDX-License-Identifier: Apache-2.0
"""Libraries of a GPU's codecs, compiled from a few lines of C++, for tests of what is loaded and which versions are accepted."""

import os
import subprocess
from pathlib import Path

VERSION = (
    'extern "C" int {function}(int part, int* value) {{ const int version[] = {{{major}, {minor}}}; *value = version[part & 1]; return {status}; }}'
)

# The functions of nvCOMP that decoders.inflate calls. A function of the test decompresses a chunk: see test_nvcomp.py.
NVCOMP = """
#include <cstddef>
#include <cstdint>
struct Properties { uint32_t version, cuda_version; };
struct Options { int backend; char others[60]; };
using Answer = int (*)(int algorithm, const void* in, size_t bytes, void* out, size_t capacity, size_t* written);
static Answer answer = nullptr;
extern "C" {
void fake_nvcomp_answer(Answer function) { answer = function; }
int nvcompGetProperties(Properties* properties) { *properties = {VERSION, 13000}; return STATUS; }
#define ALGORITHM(number, name)                                                                                                                    \\
  int nvcompBatched##name##DecompressGetTempSizeAsync(size_t, size_t, Options options, size_t* bytes, size_t) {                                    \\
    *bytes = 16;                                                                                                                                   \\
    return options.backend == 2 && options.others[0] == 0 && options.others[59] == 0 ? TEMPORARY_STATUS : 10;                                      \\
  }                                                                                                                                                \\
  int nvcompBatched##name##DecompressAsync(const void* const* in, const size_t* bytes, const size_t* capacity, size_t* written, size_t count,      \\
                                           void* temporary, size_t temporary_bytes, void* const* out, Options options, int* statuses, void*) {     \\
    if (!temporary || temporary_bytes != 16 || options.backend != 2 || options.others[59] != 0) return 10;                                         \\
    for (size_t i = 0; i < count; ++i) statuses[i] = answer(number, in[i], bytes[i], out[i], capacity[i], &written[i]);                            \\
    return 0;                                                                                                                                      \\
  }
ALGORITHM(0, LZ4)
ALGORITHM(1, Deflate)
#ifndef WITHOUT_GZIP
ALGORITHM(2, Gzip)
#endif
ALGORITHM(3, Zstd)
}
"""

# The functions of cuFile that readers.Numpy calls. They read to host memory, at most `limit` bytes per call; `answer` replaces the result of a read.
CUFILE = """
#include <sys/types.h>
#include <unistd.h>
#include <cstdint>
struct Error { int status, cuda_status; };
struct Description { int type; union { int descriptor; void* pointer; } handle; const void* operations; };
static int opened = 0, reads = 0, register_status = 0;
static size_t limit = SIZE_MAX;
static ssize_t answer = 0;
extern "C" {
void fake_cufile_set(int status, size_t bytes, ssize_t result) { register_status = status; limit = bytes; answer = result; }
int fake_cufile_open_files() { return opened; }
int fake_cufile_reads() { return reads; }
Error cuFileDriverOpen() { return {DRIVER_STATUS, 0}; }
Error cuFileHandleRegister(void** handle, Description* description) {
  if (register_status != 0 || description->type != 1 || description->operations) return {register_status ? register_status : 5022, 0};
  ++opened;
  *handle = reinterpret_cast<void*>(intptr_t{description->handle.descriptor} + 1);
  return {0, 0};
}
void cuFileHandleDeregister(void*) { --opened; }
#ifndef WITHOUT_READ
ssize_t cuFileRead(void* handle, void* buffer, size_t size, off_t offset, off_t buffer_offset) {
  ++reads;
  if (answer != 0) return answer == 1 ? 0 : answer;
  const int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(handle)) - 1;
  return pread(descriptor, static_cast<char*>(buffer) + buffer_offset, size < limit ? size : limit, offset);
}
#endif
}
"""


def compile_library(path: Path, source: str, **defines: object) -> Path:
    """Compile a shared library. It has no SONAME, so it is never mistaken for the real one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code = path.with_name(path.name + ".cpp")
    code.write_text(source)
    options = ["-O1", "-std=c++17", "-fPIC", "-shared", *(f"-D{name}={value}" for name, value in defines.items())]
    subprocess.run([os.environ.get("CXX", "g++"), *options, str(code), "-o", str(path)], check=True)
    return path
