#pragma once

#include <optional>
#include <string_view>

#include "framework/unicode/code_set.h"

namespace tessera::unicode {

/// The class `\p{name}` of Oniguruma, Unicode 16: a general category ("Lu", "L") or Han; case, blanks, `_` and `-` in
/// the name are ignored. Nothing for an unknown name. U+D800 to U+DFFF are in no class.
std::optional<CodeSet> named_characters(std::string_view name);
/// White_Space: `\s` of all supported expressions, and Rust's char::is_whitespace.
const CodeSet& white_space();
/// `\w` of Oniguruma.
const CodeSet& word_characters();

}  // namespace tessera::unicode
