#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "framework/images/picture.h"

namespace tessera::images {

/// Bytes of a file.
using Bytes = std::span<const std::byte>;

/// Each reads the header of a file of its format and, if `pixels` is not null, decodes into it. Throw ConfigError as
/// read_header and decode.
PictureHeader read_png(Bytes bytes, const DecodeLimits& limits, Picture* pixels);
PictureHeader read_jpeg(Bytes bytes, const DecodeLimits& limits, Picture* pixels);
PictureHeader read_webp(Bytes bytes, const DecodeLimits& limits, Picture* pixels);

/// The orientation in EXIF data, which may begin with "Exif\0\0"; 1 if there is none or the data is damaged.
int exif_orientation(Bytes exif);

/// Throws ConfigError if `size` is empty or exceeds `limits`.
void check_size(Size size, const DecodeLimits& limits);
/// An empty picture of that mode and size, with memory for its samples.
Picture blank(Mode mode, Size size);
/// Throws ConfigError: the file is cut short or damaged. `why`: what the library says.
[[noreturn]] void refuse_damaged(Format format, const std::string& why);

/// Calls `body`, which may longjmp to `place`; returns whether it did not. The functions that a jump leaves must have
/// no objects with destructors.
template <class Body>
bool completed(std::jmp_buf& place, const Body& body) {
  if (setjmp(place) != 0) return false;
  body();
  return true;
}

}  // namespace tessera::images
