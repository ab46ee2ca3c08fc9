#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "framework/unicode/code_set.h"

namespace tessera::unicode {

/// A parsed regular expression, which regex.cpp compiles.
struct RegexNode {
  enum class Kind : std::uint8_t {
    set,       ///< one character of `set`
    sequence,  ///< `parts` one after another; without parts the empty text
    choice,    ///< the first of `parts` that leads to a match
    repeat,    ///< `parts[0]`, `least` to `most` times
    atomic,
    ahead,
    not_ahead,
    behind,  ///< `parts[0]` is one character
    not_behind,
    line_begin,
    line_end,
    text_begin,
    text_end,
  };
  enum class Greed : std::uint8_t { greedy, reluctant, possessive };
  static constexpr std::uint32_t unbounded = ~std::uint32_t{0};

  Kind kind = Kind::sequence;
  Greed greed = Greed::greedy;
  std::uint32_t least = 0, most = 0;
  CodeSet set;
  std::vector<RegexNode> parts;
};

/// Parses `pattern`. Throws ConfigError as the constructor of Regex does.
RegexNode parse_regex(std::string_view pattern);

}  // namespace tessera::unicode
