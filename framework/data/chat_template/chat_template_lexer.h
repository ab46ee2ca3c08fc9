#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"

namespace tessera::data::chat {

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
  std::string text;  ///< of a string: its value; of data: after the white space that tags remove
};

/// The tokens of a template as Jinja 3.1 with trim_blocks and lstrip_blocks cuts them; comments and white space within
/// tags are left out. The last one has type `end`. Throws ConfigError, beginning with "line N: ", if a tag, string or
/// comment does not end, or brackets do not match.
std::vector<Token> template_tokens(std::string_view source);

}  // namespace tessera::data::chat
