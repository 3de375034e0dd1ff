// SPDX-License-Identifier: Apache-2.0
// nvimgcodec.h needs a single name of the CUDA runtime. With this folder on the include path, the CPU decoders build without a CUDA toolkit.
#pragma once

typedef struct CUstream_st* cudaStream_t;
