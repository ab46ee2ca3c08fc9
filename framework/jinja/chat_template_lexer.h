#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"

namespace tessera::jinja {

/// A token of a template.
struct Token {
  enum class Type {
    data,
    block_begin,
    block_end,
    variable_begin,
    variable_end,
    name,
    string,
    integer,
    real,
    sign,
    end
  };
  Type type = Type::end;
  int line = 1;      ///< from 1
  std::string text;  ///< for a string: its value; for data: without the white space that tags remove
};

/// Splits a template into tokens as Jinja 3.1 with trim_blocks and lstrip_blocks does; comments and white space within
/// tags are dropped. The last token has type `end`. Throws ConfigError, beginning with "line N: ", if a tag, string or
/// comment is not closed, or brackets do not match.
std::vector<Token> template_tokens(std::string_view source);

}  // namespace tessera::jinja
