// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "decoders/audio/sound_bytes.h"

#include <cstddef>
#include <cstdint>

namespace ndd {

// Throws Error for an Ogg Vorbis file, the bytes [begin, min(end, bytes.size())), whose headers libsndfile would reject, because it leaks 5.7 kB each
// time. Everything else passes, including other formats and files with several streams.
//
// libsndfile 1.2.2, ogg_vorbis_open() in src/ogg_vorbis.c, sets psf->codec_close = vorbis_close behind vorbis_read_header(); where that fails, what
// vorbis_info_init() has allocated is not freed by vorbis_info_clear() (vorbis_headers.md has the report, with a program). The codebooks in the third
// header are not checked: a file with correct checksums and damaged codebooks still leaks 5.7 kB.
void check_vorbis_headers(SoundBytes& bytes, size_t begin, size_t end);

// Returns the first frame of the last page of an Ogg Vorbis sound with `frames` frames; `frames` if it is not known. Throws Error for too many damaged pages.
//
// The position of a page is that of its end, and the last page ends within a block. libsndfile 1.2.2, vorbis_seek(), computes where that page begins
// as if it ended with the block, so a sought frame on it is up to a block away from the wanted one.
int64_t find_last_vorbis_page(SoundBytes& bytes, size_t begin, size_t end, int64_t frames);

}  // namespace ndd
