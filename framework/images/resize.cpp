#include "framework/images/resize.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/images/codecs.h"
#include "framework/images/filter.h"
#include "framework/images/weighted_sums.h"

namespace tessera::images {
namespace {

void check_new_size(Size size) {
  if (size.width < 1 || size.height < 1)
    throw ConfigError(text("a picture cannot be resized to ", describe(size), "; sides of at least 1 were expected"));
}

/// Positions that NEAREST reads along one side; -1: none, a rounding error beyond the end.
std::vector<std::int64_t> nearest_positions(std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(to));
  const double step = static_cast<double>(from) / static_cast<double>(to);
  double at = step * 0.5;
  for (auto& position : positions) {
    position = static_cast<std::int64_t>(at) < from ? static_cast<std::int64_t>(at) : -1;
    at += step;  // summed as in Pillow, not multiplied
  }
  return positions;
}

template <int Bytes>
void gather(const std::uint8_t* from, const std::vector<std::int64_t>& positions, std::uint8_t* out) {
  for (const auto position : positions) {
    if (position >= 0) std::memcpy(out, from + position * Bytes, Bytes);
    out += Bytes;
  }
}

void gather_pixels(int bytes, const std::uint8_t* from, const std::vector<std::int64_t>& positions, std::uint8_t* out) {
  switch (bytes) {
    case 1:
      return gather<1>(from, positions, out);
    case 2:
      return gather<2>(from, positions, out);
    case 3:
      return gather<3>(from, positions, out);
    default:
      return gather<4>(from, positions, out);
  }
}

constexpr std::size_t channels = 3;
/// Rows that are filtered horizontally together: transposed, their sums are vectors.
constexpr std::size_t band = 16;

/// tile[(x, channel), row] of the `rows` rows at `in`, which are `stride` bytes apart.
void transpose_in(const std::uint8_t* in, std::size_t stride, std::size_t rows, std::vector<std::uint8_t>& tile) {
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < stride; ++i) tile[i * band + r] = in[r * stride + i];
}

void transpose_out(const std::vector<std::uint8_t>& tile, std::size_t rows, std::size_t stride, std::uint8_t* out) {
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < stride; ++i) out[r * stride + i] = tile[i * band + r];
}

Picture filtered_horizontally(const Picture& picture, std::int64_t width, Backend backend) {
  const auto filter = bicubic_filter(picture.size.width, width, backend);
  auto result = blank(Mode::RGB, {width, picture.size.height});
  const auto in_stride = picture.row(0).size(), out_stride = result.row(0).size();
  std::vector<std::uint8_t> in(in_stride * band), out(out_stride * band);
  const auto height = static_cast<std::size_t>(picture.size.height);
  for (std::size_t y = 0; y < height; y += band) {
    const auto rows = std::min(band, height - y);
    transpose_in(&picture.samples[y * in_stride], in_stride, rows, in);
    for (std::int64_t x = 0; x < width; ++x) {
      const auto i = static_cast<std::size_t>(x);
      weighted_sums({.in = &in[static_cast<std::size_t>(filter.first[i]) * channels * band],
                     .stride = channels * band,
                     .weights = filter.weights_of(x),
                     .count = filter.count[i],
                     .shift = filter.shift,
                     .out = &out[i * channels * band],
                     .width = channels * band});
    }
    transpose_out(out, rows, out_stride, &result.samples[y * out_stride]);
  }
  return result;
}

Picture filtered_vertically(const Picture& picture, std::int64_t height, Backend backend) {
  const auto filter = bicubic_filter(picture.size.height, height, backend);
  auto result = blank(Mode::RGB, {picture.size.width, height});
  const auto stride = picture.row(0).size();
  for (std::int64_t y = 0; y < height; ++y) {
    const auto i = static_cast<std::size_t>(y);
    weighted_sums({.in = picture.row(filter.first[i]).data(),
                   .stride = stride,
                   .weights = filter.weights_of(y),
                   .count = filter.count[i],
                   .shift = filter.shift,
                   .out = &result.samples[i * stride],
                   .width = stride});
  }
  return result;
}

}  // namespace

Picture resized_nearest(const Picture& picture, Size size) {
  check_new_size(size);
  auto result = blank(picture.mode, size);
  result.palette = picture.palette;
  const auto bytes = bytes_of_pixel(picture.mode);
  const auto columns = nearest_positions(picture.size.width, size.width);
  const auto rows = nearest_positions(picture.size.height, size.height);
  const auto stride = result.row(0).size();
  for (std::size_t y = 0; y < rows.size(); ++y)
    if (rows[y] >= 0) gather_pixels(bytes, picture.row(rows[y]).data(), columns, &result.samples[y * stride]);
  return result;
}

Picture resized_bicubic(Picture picture, Size size, Backend backend) {
  must(picture.mode == Mode::RGB, "a picture that is filtered is of mode RGB");
  check_new_size(size);
  if (size.width != picture.size.width) picture = filtered_horizontally(picture, size.width, backend);
  if (size.height != picture.size.height) picture = filtered_vertically(picture, size.height, backend);
  return picture;
}

}  // namespace tessera::images
