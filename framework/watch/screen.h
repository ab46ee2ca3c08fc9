#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::watch {

/// How a cell looks. `color`: 0 is the terminal's own, 1 to 7 are its colors red to white.
struct Style {
  std::uint8_t color = 0;
  bool bold = false;
  bool operator==(const Style&) const = default;
};

/// `words` as one line that is safe for a terminal, whatever it holds: control characters, escape sequences, characters
/// that change the direction and bytes that are not UTF-8 are shown by their number, newlines and tabs as blanks.
std::string safe_line(std::string_view words);

/// Number of terminal columns that a character takes: 0 (combining marks), 1, or 2 (East Asian wide, emoji).
int columns_of(char32_t code);

/// What a terminal shows: rows of cells. All text passes safe_line().
class Screen {
 public:
  /// Blank. Sizes below 1 count as 1.
  Screen(int columns, int rows);
  int columns() const { return columns_; }
  int rows() const { return rows_; }

  /// Writes `words` into a row from `column`, at most up to the column `end` (negative: the width of the screen). Text
  /// that does not fit is cut; what is outside of the screen is left out. Returns the column after the text.
  int put(int row, int column, std::string_view words, Style style = {}, int end = -1);
  /// The text of a row, without blanks at its end.
  std::string line(int row) const;
  /// The bytes that make a terminal that shows `before` show this screen; empty if they are the same. A terminal of
  /// another size, or of unknown content (null), is cleared first. `colors`: false writes no colors.
  std::string difference(const Screen* before, bool colors) const;

 private:
  struct Cell {
    std::string text = " ";  ///< a character with its combining marks; empty: right half of the cell before
    Style style;
    bool operator==(const Cell&) const = default;
  };
  Cell& at(int row, int column) { return cells_[static_cast<std::size_t>(row * columns_ + column)]; }
  const Cell& at(int row, int column) const { return cells_[static_cast<std::size_t>(row * columns_ + column)]; }
  void place(int row, int column, int width, std::string character, Style style);

  int columns_, rows_;
  std::vector<Cell> cells_;
};

}  // namespace tessera::watch
