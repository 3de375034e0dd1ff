// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "decoders/audio/sound_bytes.h"

namespace ndd {

// Throws Error for an Ogg Vorbis file whose headers libsndfile would reject, because it leaks 5.7 kB each time. Everything else passes,
// including other formats and files with several streams.
//
// libsndfile 1.2.2, ogg_vorbis_open() in src/ogg_vorbis.c, sets psf->codec_close = vorbis_close behind vorbis_read_header(); where that fails, what
// vorbis_info_init() has allocated is not freed by vorbis_info_clear() (vorbis_headers.md has the report, with a program). The codebooks in the third
// header are not checked: a file with correct checksums and damaged codebooks still leaks 5.7 kB.
void check_vorbis_headers(SoundBytes& bytes);

}  // namespace ndd
