#include <array>
#include <cstring>
#include <utility>

#include "framework/images/codecs.h"

namespace tessera::images {
namespace {

/// a b / 255, rounded as Pillow rounds it.
std::uint8_t scaled_255(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
}

/// a (255 - alpha) + b alpha over 255.
std::uint8_t blend(unsigned a, unsigned b, unsigned alpha) {
  const unsigned sum = a * (255 - alpha) + b * alpha + 128;
  return static_cast<std::uint8_t>(((sum >> 8) + sum) >> 8);
}

/// A picture of mode RGB with colour(first byte of a pixel) of each pixel of `picture`.
template <class Colour>
Picture each_pixel(const Picture& picture, const Colour& colour) {
  auto result = blank(Mode::RGB, picture.size);
  const auto step = static_cast<std::size_t>(bytes_of_pixel(picture.mode));
  const auto pixels = static_cast<std::size_t>(picture.size.pixels());
  for (std::size_t i = 0; i < pixels; ++i) {
    const std::array<std::uint8_t, 3> rgb = colour(&picture.samples[i * step]);
    std::memcpy(&result.samples[3 * i], rgb.data(), 3);
  }
  return result;
}

using Rgb = std::array<std::uint8_t, 3>;

Rgb rgb_of_cmyk(const std::uint8_t* in) {
  const unsigned light = 255U - in[3];
  const auto part = [&](unsigned ink) { return static_cast<std::uint8_t>(light - scaled_255(ink, light)); };
  return {part(in[0]), part(in[1]), part(in[2])};
}

Rgb grey_rgb(std::uint8_t level) { return {level, level, level}; }

/// Where the pixel (x, y) of a turned picture of `turned` comes from, in a picture as stored.
using Source = std::pair<std::int64_t, std::int64_t>;
Source source_of(int orientation, std::int64_t x, std::int64_t y, Size turned) {
  const auto from_right = turned.width - 1 - x, from_below = turned.height - 1 - y;
  switch (orientation) {
    case 2:
      return {from_right, y};
    case 3:
      return {from_right, from_below};
    case 4:
      return {x, from_below};
    case 5:
      return {y, x};
    case 6:
      return {y, from_right};
    case 7:
      return {from_below, from_right};
    default:
      return {from_below, x};
  }
}

}  // namespace

Picture to_rgb(Picture picture) {
  switch (picture.mode) {
    case Mode::RGB:
      return picture;
    case Mode::I16:
      return each_pixel(picture, [](const auto* in) { return grey_rgb(in[1] == 0 ? in[0] : 255); });
    case Mode::P:
      return each_pixel(picture, [&](const auto* in) {
        const auto* colour = &picture.palette[std::size_t{3} * in[0]];
        return Rgb{colour[0], colour[1], colour[2]};
      });
    case Mode::RGBA:
      return each_pixel(picture, [](const auto* in) { return Rgb{in[0], in[1], in[2]}; });
    case Mode::CMYK:
      return each_pixel(picture, rgb_of_cmyk);
    default:
      return each_pixel(picture, [](const auto* in) { return grey_rgb(in[0]); });
  }
}

Picture on_white(Picture picture) {
  if (picture.mode != Mode::RGBA) return to_rgb(std::move(picture));
  return each_pixel(picture, [](const auto* in) {
    return Rgb{blend(255, in[0], in[3]), blend(255, in[1], in[3]), blend(255, in[2], in[3])};
  });
}

Picture turned_upright(Picture picture, int orientation) {
  if (orientation < 2 || orientation > 8) return picture;
  const auto stored = picture.size;
  auto result = blank(picture.mode, orientation < 5 ? stored : Size{stored.height, stored.width});
  result.palette = picture.palette;
  const auto step = bytes_of_pixel(picture.mode);
  auto* out = result.samples.data();
  for (std::int64_t y = 0; y < result.size.height; ++y)
    for (std::int64_t x = 0; x < result.size.width; ++x, out += step) {
      const auto from = source_of(orientation, x, y, result.size);
      std::memcpy(out, &picture.samples[static_cast<std::size_t>((from.second * stored.width + from.first) * step)],
                  static_cast<std::size_t>(step));
    }
  return result;
}

}  // namespace tessera::images
