// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace ndd {

// Refuses, by an Error, an Ogg Vorbis file whose headers libsndfile would refuse: it loses 5.7 kB each time. Anything else passes, also what is no
// Ogg file or has several streams.
//
// libsndfile 1.2.2, ogg_vorbis_open() in src/ogg_vorbis.c, sets psf->codec_close = vorbis_close behind vorbis_read_header(); where that fails, what
// vorbis_info_init() has allocated is not freed by vorbis_info_clear() (vorbis_headers.md has the report, with a program). What is not looked
// at here are the codebooks in the third header: a file whose checksums are right and whose codebooks are not still costs 5.7 kB.
void check_vorbis_headers(const uint8_t* data, size_t size);

}  // namespace ndd
