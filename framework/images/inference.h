#pragma once

#include <cstdint>

#include "framework/images/picture.h"

namespace tessera::images {

/// Limits of qwen_vl_utils for the pictures of a prompt.
struct FetchLimits {
  std::int64_t min_pixels = 4 * 28 * 28;
  std::int64_t max_pixels = 16384 * 28 * 28;
  std::int64_t factor = 28;  ///< the sides become multiples of this
};

/// The picture of a prompt as fetch_image of qwen_vl_utils makes it: not turned, alpha laid on white, resized by
/// Pillow's BICUBIC. Sides are rounded as in smart_resize, but to `factor` at least before the limits are looked at.
/// The other way, load_image of Transformers, is to_rgb(turned_upright(...)). Throws ConfigError as smart_resize.
Picture fetched(Picture picture, const FetchLimits& limits = {});

}  // namespace tessera::images
