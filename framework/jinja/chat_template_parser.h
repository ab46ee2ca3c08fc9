#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/jinja/chat_template_value.h"

namespace tessera::jinja {

/// A node of a parsed template. The comment of each kind says what `children` and `text` contain; null children are
/// allowed only where it says so.
struct Node {
  enum class Kind {
    // Statements.
    data,        ///< text: printed as it is
    output,      ///< [expression]
    set,         ///< [target, expression]; a target is a name, a tuple of names, or an attribute of a name
    set_block,   ///< [target, block]
    condition,   ///< [condition, block, condition, block, ..., block of else or null]
    loop,        ///< [target, iterable, filter or null, block, block of else or null]
    macro,       ///< text: name; children: parameters (names), last the block; `named`: defaults
    block,       ///< statements in order
    generation,  ///< [block]
    break_loop,
    continue_loop,
    // Expressions.
    constant,     ///< value
    name,         ///< text
    list,         ///< items
    tuple,        ///< items
    dict,         ///< [key, value, key, value, ...]
    attribute,    ///< [object], text
    item,         ///< [object, index]
    slice,        ///< [object, begin, end, step], the last three may be null
    call,         ///< [function, arguments...], `named`
    filter,       ///< [input, arguments...], text, `named`
    test,         ///< [input, arguments...], text
    negate,       ///< [value]
    plus,         ///< [value]
    not_,         ///< [value]
    and_,         ///< [left, right]
    or_,          ///< [left, right]
    binary,       ///< [left, right], text: + - * / // % **
    compare,      ///< [first, second, ...], `operators`
    concatenate,  ///< parts
    choice,       ///< [condition, value, value otherwise or null]
  };
  Kind kind;
  int line;
  std::string text = {};
  TemplateValue value = {};
  std::vector<std::unique_ptr<Node>> children = {};
  std::vector<std::pair<std::string, std::unique_ptr<Node>>> named = {};
  std::vector<std::string> operators = {};  ///< "==" "!=" "<" "<=" ">" ">=" "in" "not in"
  int depth = 1;                            ///< depth of the subtree, including this node
};

/// Parses a template; returns its root block. Throws ConfigError, beginning with "line N: ", for a syntax error and for
/// statements, filters and tests that are not implemented.
std::unique_ptr<Node> parse_template(std::string_view source);

/// Whether a filter or a test of this name is implemented.
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

}  // namespace tessera::jinja
