#pragma once

#include <cstdint>

#include "framework/images/picture.h"

namespace tessera::images {

/// The program whose bytes a resize gives. Both filter horizontally first, round to 8 bits, and then vertically.
enum class Backend : std::uint8_t {
  pil,         ///< Pillow below 13: weights of 22 bits (Pillow 13 resizes tall pictures vertically first)
  torchvision  ///< torchvision, as ATen resizes uint8: weights of at most 16 bits
};

/// Pillow's NEAREST, in any mode: position x of the result is the pixel at floor of (x + 1/2) width / new width, summed
/// in steps as Pillow does. Throws ConfigError if a side of `size` is below 1.
Picture resized_nearest(const Picture& picture, Size size);

/// BICUBIC with a = -1/2, antialiased where a side shrinks, of a picture of mode RGB. A side that keeps its length is
/// not filtered. Equals the backend in every byte. Throws ConfigError if a side of `size` is below 1; BugError if the
/// mode is another.
Picture resized_bicubic(Picture picture, Size size, Backend backend);

}  // namespace tessera::images
