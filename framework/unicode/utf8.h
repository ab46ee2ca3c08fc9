#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "framework/base/utf8.h"

namespace tessera::unicode {

using tessera::replacement_character;
using tessera::to_utf8;
using tessera::utf8_step;
using tessera::Utf8Step;

/// Position of the first byte that is not UTF-8; npos if the text is valid.
std::size_t first_not_utf8(std::string_view text);

/// `bytes` with each invalid part replaced by U+FFFD.
std::string with_replacements(std::string_view bytes);

/// Removes all complete characters from `held` and returns them, with invalid parts replaced; only the beginning of an
/// incomplete character remains in `held`.
std::string take_complete(std::string& held);

}  // namespace tessera::unicode
