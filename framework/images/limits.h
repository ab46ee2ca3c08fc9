#pragma once

#include <cstdint>

#include "framework/images/picture.h"

namespace tessera::images {

/// Limits of MindSpeed-MM's template for Qwen2-VL, which hold before the image processor: image_max_pixels and
/// image_min_pixels of data.json, or video_max_pixels and video_min_pixels for each frame of a video.
struct PixelLimits {
  std::int64_t max_pixels = 262144;  ///< width x height; larger pictures become smaller
  std::int64_t min_pixels = 0;       ///< smaller ones become larger
  /// The sides are at least this. The width and height of a patch x spatial_merge_size.
  std::int64_t least_side = 28;
};

/// The size of a picture of `size` within `limits`: sqrt(max_pixels / pixels) times the sides, truncated; the same for
/// min_pixels; then each side at least `least_side`; then at most 180 times the other one if it was above 200 times.
/// Throws ConfigError if a side would be 0: the picture is too thin for max_pixels.
Size limited_size(Size size, const PixelLimits& limits);

/// RGB within `limits`, as Qwen2VLPlugin of MindSpeed-MM makes it: the pixel limits by NEAREST in the picture's own
/// mode, then to_rgb, then the other two by Pillow's BICUBIC. Throws ConfigError as limited_size.
Picture limited(Picture picture, const PixelLimits& limits);

}  // namespace tessera::images
