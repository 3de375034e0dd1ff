// SPDX-License-Identifier: Apache-2.0
// Which of nvImageCodec's GPU decoders gets a file, by our own reading of its header, and what is requested of it. No CUDA here, so tests run it
// without a GPU.
#pragma once

#include "decoders/codecs/codec_output.h"
#include "ndd/python_interface.h"

#include <vector>

namespace ndd {

// `jpeg` is also what the JPEG engines of a GPU decode, if suits_hardware().
NDD_ENUM("decoders.GpuCodec", GpuCodec, int, none, jpeg, lossless_jpeg, tiff, jpeg2000);
constexpr int kGpuCodecs = 5;  // with none

// Decides by the header alone, and not by what is installed. Everything that a codec would convert in its own way, and every file that parsers may
// read differently, is for the CPU.
GpuCodec gpu_codec_of(const EncodedImage& file, const ImageHeader& header);

// Whether the JPEG engines can decode a file for GpuCodec::jpeg: baseline JPEGs only.
bool suits_hardware(const EncodedImage& file);

// Whether the codec decodes to the colors of the output, and a region. The others deliver the whole image as stored, because nvJPEG rejects regions of
// lossless files, and because regions of nvImageCodec's other GPU decoders are not relied on; our own kernel cuts out and converts.
inline bool converts_colors(GpuCodec codec) { return codec == GpuCodec::jpeg; }

// Steps in which the codec delivers the whole image as stored.
DecodeSteps whole_image_steps(GpuCodec codec, const EncodedImage& file, const ImageHeader& header);

// Returns a copy of a TIFF for GpuCodec::tiff without its other directories, which we do not check: nvTIFF reads all of them. It is upright, and has
// the number of samples.
std::vector<uint8_t> one_page_tiff(const EncodedImage& file);

// Whether nvImageCodec has read the same header: height, width, channels and type.
bool is_same_header(const ImageHeader& header, const nvimgcodecImageInfo_t& info);

}  // namespace ndd
