// SPDX-License-Identifier: Apache-2.0
// nvimgcodec.h needs one name of the CUDA runtime, and the decoders here run on the CPU: with this folder on the include path they build
// where no CUDA toolkit is installed.
#pragma once

typedef struct CUstream_st* cudaStream_t;
