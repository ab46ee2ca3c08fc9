#include "framework/images/limits.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/images/resize.h"

namespace tessera::images {
namespace {

Size scaled_to_pixels(Size size, std::int64_t pixels) {
  const double factor = std::sqrt(static_cast<double>(pixels) / static_cast<double>(size.pixels()));
  const Size scaled = {static_cast<std::int64_t>(static_cast<double>(size.width) * factor),
                       static_cast<std::int64_t>(static_cast<double>(size.height) * factor)};
  if (scaled.width < 1 || scaled.height < 1)
    throw ConfigError(text("a picture of ", describe(size), " pixels scaled to ", pixels, " pixels has ",
                           describe(scaled),
                           "; a side of at least 1 was expected; crop the picture, or change the limit"));
  return scaled;
}

/// The size within the limits of pixels.
Size within_pixels(Size size, const PixelLimits& limits) {
  if (size.pixels() > limits.max_pixels) size = scaled_to_pixels(size, limits.max_pixels);
  if (size.pixels() < limits.min_pixels) size = scaled_to_pixels(size, limits.min_pixels);
  return size;
}

Size with_least_sides(Size size, std::int64_t least) {
  return std::min(size.width, size.height) < least ? Size{std::max(size.width, least), std::max(size.height, least)}
                                                   : size;
}

constexpr std::int64_t widest = 200, widened = 180;

Size with_less_width(Size size) {
  return size.width > widest * size.height ? Size{widened * size.height, size.height} : size;
}
Size with_less_height(Size size) {
  return size.height > widest * size.width ? Size{size.width, widened * size.width} : size;
}

}  // namespace

Size limited_size(Size size, const PixelLimits& limits) {
  return with_less_height(with_less_width(with_least_sides(within_pixels(size, limits), limits.least_side)));
}

Picture limited(Picture picture, const PixelLimits& limits) {
  // Every resize of the original is one here: the next one works on its rounded levels.
  if (picture.size.pixels() > limits.max_pixels)
    picture = resized_nearest(picture, scaled_to_pixels(picture.size, limits.max_pixels));
  if (picture.size.pixels() < limits.min_pixels)
    picture = resized_nearest(picture, scaled_to_pixels(picture.size, limits.min_pixels));
  picture = to_rgb(std::move(picture));
  const auto become = [&](Size size) { picture = resized_bicubic(std::move(picture), size, Backend::pil); };
  become(with_least_sides(picture.size, limits.least_side));
  become(with_less_width(picture.size));
  become(with_less_height(picture.size));
  return picture;
}

}  // namespace tessera::images
