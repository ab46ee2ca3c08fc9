#include "framework/images/processor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace tessera::images {
namespace {

/// Scaled values of every level of a channel, in the order of operations of the backend, in fp32.
void set_scaled(const ProcessorOptions& options, std::size_t channel, std::array<float, 256>& values) {
  auto mean = static_cast<float>(options.mean[channel]);
  auto deviation = static_cast<float>(options.standard_deviation[channel]);
  const bool joined_scale = options.backend == Backend::torchvision && options.rescale && options.normalize;
  if (joined_scale) {
    const auto inverse = static_cast<float>(1.0 / options.rescale_factor);
    mean *= inverse;
    deviation *= inverse;
  }
  for (std::size_t level = 0; level < values.size(); ++level) {
    auto value = static_cast<float>(level);
    if (options.rescale && !joined_scale)
      value = static_cast<float>(static_cast<double>(level) * options.rescale_factor);
    values[level] = options.normalize ? (value - mean) / deviation : value;
  }
}

/// A side in multiples of `factor`.
using RoundSide = double (*)(double);
std::int64_t in_factors(double side, std::int64_t factor, RoundSide round_side) {
  return static_cast<std::int64_t>(round_side(side / static_cast<double>(factor))) * factor;
}

double half_to_even(double x) { return std::nearbyint(x); }
double down(double x) { return std::floor(x); }
double up(double x) { return std::ceil(x); }

void check_aspect(Size size) {
  constexpr std::int64_t widest_aspect = 200;
  if (size.width < 1 || size.height < 1) throw ConfigError(text("a picture of ", describe(size), " pixels is empty"));
  const auto [shorter, longer] = std::minmax(size.width, size.height);
  if (longer > widest_aspect * shorter)
    throw ConfigError(text("the aspect ratio of a picture of ", describe(size), " pixels is above ", widest_aspect,
                           "; crop the picture"));
}

/// Calls row(frame, y, x) for the upper left corner of each patch, in the order of the rows of the result.
template <class Row>
void each_patch(const Grid& grid, int merge, const Row& row) {
  for (std::int32_t t = 0; t < grid.t; ++t)
    for (std::int32_t top = 0; top < grid.h; top += merge)
      for (std::int32_t left = 0; left < grid.w; left += merge)
        for (int y = top; y < top + merge; ++y)
          for (int x = left; x < left + merge; ++x) row(t, y, x);
}

/// One channel of a square of a picture of mode RGB, by the table of its values.
template <class Value>
void write_square(const std::uint8_t* corner, std::size_t stride, int side, const std::array<Value, 256>& values,
                  Value* into) {
  for (int y = 0; y < side; ++y, corner += stride)
    for (int x = 0; x < side; ++x) *into++ = values[corner[3 * x]];
}

/// The rows of all patches of `pictures`, which have the size of the grid.
template <class Value>
void write_patches(std::span<const Picture> pictures, const Grid& grid, const ProcessorOptions& options,
                   const std::array<std::array<Value, 256>, 3>& values, Value* into) {
  const int side = options.patch_size, frames = options.temporal_patch_size;
  const auto square = static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
  const auto stride = pictures[0].row(0).size();
  each_patch(grid, options.merge_size, [&](std::int32_t t, int y, int x) {
    const auto offset = static_cast<std::size_t>(y * side) * stride + static_cast<std::size_t>(x * side) * 3;
    for (std::size_t channel = 0; channel < 3; ++channel)
      for (int f = 0; f < frames; ++f, into += square) {
        const auto frame = static_cast<std::size_t>(t) * static_cast<std::size_t>(frames) + static_cast<std::size_t>(f);
        if (f > 0 && frame >= pictures.size())
          std::memcpy(into, into - square, square * sizeof(Value));
        else
          write_square(pictures[frame].samples.data() + offset + channel, stride, side, values[channel], into);
      }
  });
}

void check_frames(std::span<const Picture> frames) {
  if (frames.empty()) throw ConfigError("a video has no frames; at least one was expected");
  for (const auto& frame : frames) {
    must(frame.mode == Mode::RGB, "frames of the image processor are of mode RGB");
    if (frame.size != frames[0].size)
      throw ConfigError(text("the frames of a video have sizes ", describe(frames[0].size), " and ",
                             describe(frame.size), "; equal sizes were expected"));
  }
}

}  // namespace

Size smart_resize(Size size, std::int64_t factor, std::int64_t min_pixels, std::int64_t max_pixels,
                  SmartRounding rounding) {
  check_aspect(size);
  const bool at_least = rounding == SmartRounding::qwen_vl_utils;
  const auto height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  const auto one_factor = [&](Size sides) {
    return Size{std::max(sides.width, factor), std::max(sides.height, factor)};
  };
  Size result = {in_factors(width, factor, half_to_even), in_factors(height, factor, half_to_even)};
  if (at_least) result = one_factor(result);
  if (result.pixels() > max_pixels) {
    const double beta = std::sqrt(height * width / static_cast<double>(max_pixels));
    result = {in_factors(width / beta, factor, down), in_factors(height / beta, factor, down)};
    if (!at_least) result = one_factor(result);
  } else if (result.pixels() < min_pixels) {
    const double beta = std::sqrt(static_cast<double>(min_pixels) / (height * width));
    result = {in_factors(width * beta, factor, up), in_factors(height * beta, factor, up)};
  }
  if (result.width < 1 || result.height < 1)
    throw ConfigError(text("a picture of ", describe(size), " pixels would be resized to ", describe(result),
                           " by min_pixels ", min_pixels, " and max_pixels ", max_pixels,
                           "; raise the limits, or crop the picture"));
  return result;
}

Grid grid_of(Size size, std::int64_t frames, const ProcessorOptions& options) {
  const auto resized =
      options.resize ? smart_resize(size, options.factor(), options.min_pixels, options.max_pixels) : size;
  const auto factor = options.factor();
  if (resized.width < factor || resized.height < factor || resized.width % factor != 0 || resized.height % factor != 0)
    throw ConfigError(text("a picture of ", describe(size),
                           " pixels is not resized (do_resize false); sides that are multiples of ", factor,
                           " were expected"));
  return {static_cast<std::int32_t>((frames + options.temporal_patch_size - 1) / options.temporal_patch_size),
          static_cast<std::int32_t>(resized.height / options.patch_size),
          static_cast<std::int32_t>(resized.width / options.patch_size)};
}

Processor::Processor(const ProcessorOptions& options) : options_(options) {
  check(options_);
  for (std::size_t channel = 0; channel < 3; ++channel) set_scaled(options_, channel, scaled_[channel]);
}

Picture Processor::resized(const Picture& frame) const {
  const auto grid = grid_of(frame.size, 1, options_);
  const auto side = std::int64_t{options_.patch_size};
  return resized_bicubic(frame, {grid.w * side, grid.h * side}, options_.backend);
}

Grid Processor::process(std::span<const Picture> frames, std::span<float> values) const {
  check_frames(frames);
  const auto grid = grid_of(frames[0].size, static_cast<std::int64_t>(frames.size()), options_);
  must(values.size() == static_cast<std::size_t>(grid.patches() * options_.patch_width()),
       "memory for patches has the size of the grid");
  std::vector<Picture> pictures;
  for (const auto& frame : frames) pictures.push_back(resized(frame));
  write_patches<float>(pictures, grid, options_, scaled_, values.data());
  return grid;
}

Patches Processor::process(std::span<const Picture> frames) const {
  check_frames(frames);
  Patches patches;
  patches.grid = grid_of(frames[0].size, static_cast<std::int64_t>(frames.size()), options_);
  patches.values.resize(static_cast<std::size_t>(patches.grid.patches() * options_.patch_width()));
  process(frames, patches.values);
  return patches;
}

std::vector<std::uint8_t> Processor::levels(std::span<const Picture> frames) const {
  check_frames(frames);
  const auto grid = grid_of(frames[0].size, static_cast<std::int64_t>(frames.size()), options_);
  std::array<std::array<std::uint8_t, 256>, 3> same;
  for (auto& channel : same)
    for (std::size_t level = 0; level < channel.size(); ++level) channel[level] = static_cast<std::uint8_t>(level);
  std::vector<Picture> pictures;
  for (const auto& frame : frames) pictures.push_back(resized(frame));
  std::vector<std::uint8_t> levels(static_cast<std::size_t>(grid.patches() * options_.patch_width()));
  write_patches<std::uint8_t>(pictures, grid, options_, same, levels.data());
  return levels;
}

}  // namespace tessera::images
