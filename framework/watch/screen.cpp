#include "framework/watch/screen.h"

#include <algorithm>
#include <array>

#include "framework/base/error.h"
#include "framework/base/utf8.h"
#include "framework/base/visible_text.h"
#include "framework/unicode/characters.h"

namespace tessera::watch {
namespace {

constexpr std::size_t longest_cell = 15;  // bytes: a character and some marks

struct Codes {
  char32_t first, last;
};
// The blocks of Unicode whose characters have East_Asian_Width W or F (UAX #11), and the emoji.
constexpr std::array<Codes, 17> wide_codes = {{{0x1100, 0x115F},
                                               {0x2E80, 0x303E},
                                               {0x3041, 0x4DBF},
                                               {0x4E00, 0xA4CF},
                                               {0xA960, 0xA97C},
                                               {0xAC00, 0xD7A3},
                                               {0xF900, 0xFAFF},
                                               {0xFE30, 0xFE6F},
                                               {0xFF00, 0xFF60},
                                               {0xFFE0, 0xFFE6},
                                               {0x17000, 0x18CFF},
                                               {0x1B000, 0x1B2FF},
                                               {0x1F300, 0x1F64F},
                                               {0x1F680, 0x1F6FF},
                                               {0x1F900, 0x1F9FF},
                                               {0x1FA70, 0x1FAFF},
                                               {0x20000, 0x3FFFD}}};

const unicode::CodeSet& marks() {
  static const auto all = [] {
    unicode::CodeSet set;
    for (const char* name : {"Mn", "Me", "Cf"})
      if (const auto part = unicode::named_characters(name)) set = set | *part;
    return set;
  }();
  return all;
}

void add_style(std::string& out, Style style, bool colors) {
  out += "\x1b[0";
  if (style.bold) out += ";1";
  if (colors && style.color > 0) out += text(";3", static_cast<int>(style.color));
  out += "m";
}

}  // namespace

std::string safe_line(std::string_view words) {
  auto line = visible(words);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

int columns_of(char32_t code) {
  if (code < 0x300) return 1;
  if (std::any_of(wide_codes.begin(), wide_codes.end(), [code](Codes c) { return c.first <= code && code <= c.last; }))
    return 2;
  return marks().has(code) ? 0 : 1;
}

Screen::Screen(int columns, int rows)
    : columns_(std::max(columns, 1)), rows_(std::max(rows, 1)), cells_(static_cast<std::size_t>(columns_ * rows_)) {}

void Screen::place(int row, int column, int width, std::string character, Style style) {
  // Half of a wide character that is overwritten becomes a blank.
  if (at(row, column).text.empty() && column > 0) at(row, column - 1) = Cell();
  const int end = column + width;
  if (end < columns_ && at(row, end).text.empty()) at(row, end) = Cell();
  at(row, column) = {std::move(character), style};
  if (width == 2) at(row, column + 1) = {"", style};
}

int Screen::put(int row, int column, std::string_view words, Style style, int end) {
  if (row < 0 || row >= rows_ || column < 0) return column;
  if (end < 0 || end > columns_) end = columns_;
  const auto line = safe_line(words);
  int last = -1;  // column of the character before
  for (std::size_t i = 0; i < line.size();) {
    const auto step = utf8_step(line, i);
    auto character = line.substr(i, step.length);
    i += step.length;
    const int width = columns_of(step.code);
    if (width == 0) {
      if (last >= 0 && at(row, last).text.size() + character.size() <= longest_cell) at(row, last).text += character;
      continue;
    }
    if (column + width > end) break;
    place(row, column, width, std::move(character), style);
    last = column;
    column += width;
  }
  return column;
}

std::string Screen::line(int row) const {
  std::string words;
  for (int column = 0; column < columns_; ++column) words += at(row, column).text;
  words.erase(words.find_last_not_of(' ') + 1);
  return words;
}

std::string Screen::difference(const Screen* before, bool colors) const {
  std::string out;
  if (before != nullptr && (before->columns_ != columns_ || before->rows_ != rows_)) before = nullptr;
  const Screen blank(columns_, rows_);
  if (before == nullptr) {
    out += "\x1b[0m\x1b[2J";
    before = &blank;
  }
  Style style;
  for (int row = 0; row < rows_; ++row) {
    int cursor = -1;  // its column if it is in this row
    for (int column = 0; column < columns_; ++column) {
      const auto& cell = at(row, column);
      if (cell.text.empty() || cell == before->at(row, column)) continue;
      if (cursor != column) out += text("\x1b[", row + 1, ";", column + 1, "H");
      if (!(cell.style == style)) add_style(out, style = cell.style, colors);
      out += cell.text;
      const bool wide = column + 1 < columns_ && at(row, column + 1).text.empty();
      cursor = column + (wide ? 2 : 1);
      if (cursor >= columns_) cursor = -1;  // the terminal may wrap
    }
  }
  if (!(style == Style())) out += "\x1b[0m";
  return out;
}

}  // namespace tessera::watch
