#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::watch {

/// A drawing of dots in Braille characters, 2 dots wide and 4 high each.
class Braille {
 public:
  /// Sizes in characters, at least 1 each.
  Braille(int columns, int rows);
  int width() const { return columns_ * 2; }
  int height() const { return rows_ * 4; }
  /// Sets a dot; (0, 0) is at the top left. Dots outside of the drawing are left out.
  void dot(int x, int y);
  /// Sets the dots of a straight line, both ends included.
  void line(int x0, int y0, int x1, int y1);
  /// The character in UTF-8; empty if it has no dot.
  std::string cell(int column, int row) const;

 private:
  int columns_, rows_;
  std::vector<std::uint8_t> cells_;
};

}  // namespace tessera::watch
