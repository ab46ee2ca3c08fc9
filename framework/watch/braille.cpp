#include "framework/watch/braille.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "framework/base/utf8.h"

namespace tessera::watch {

Braille::Braille(int columns, int rows)
    : columns_(std::max(columns, 1)), rows_(std::max(rows, 1)), cells_(static_cast<std::size_t>(columns_ * rows_)) {}

void Braille::dot(int x, int y) {
  if (x < 0 || y < 0 || x >= width() || y >= height()) return;
  // The bits of U+2800: dots 1 to 3 and 7 go down on the left, dots 4 to 6 and 8 on the right.
  constexpr std::array<std::array<std::uint8_t, 4>, 2> bits = {{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
  auto& cell = cells_[static_cast<std::size_t>(y / 4 * columns_ + x / 2)];
  cell = static_cast<std::uint8_t>(cell | bits[static_cast<std::size_t>(x % 2)][static_cast<std::size_t>(y % 4)]);
}

void Braille::line(int x0, int y0, int x1, int y1) {
  const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
  for (int i = 0; i <= steps; ++i) {
    const double part = static_cast<double>(i) / steps;
    dot(x0 + static_cast<int>((x1 - x0) * part + (x1 >= x0 ? 0.5 : -0.5)),
        y0 + static_cast<int>((y1 - y0) * part + (y1 >= y0 ? 0.5 : -0.5)));
  }
}

std::string Braille::cell(int column, int row) const {
  const auto bits = cells_[static_cast<std::size_t>(row * columns_ + column)];
  return bits == 0 ? "" : to_utf8(char32_t{0x2800} + bits);
}

}  // namespace tessera::watch
