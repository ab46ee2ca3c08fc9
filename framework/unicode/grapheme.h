#pragma once

#include <string>
#include <string_view>

namespace tessera::unicode {

/// The end of the extended grapheme cluster of `codes` that begins at `at` (an index into `codes`), as crate
/// unicode-segmentation of `tokenizers` 0.23 finds it: UAX #29 of Unicode 17. `at` must be the end of the cluster
/// before or 0.
std::size_t end_of_grapheme(std::u32string_view codes, std::size_t at);

}  // namespace tessera::unicode
