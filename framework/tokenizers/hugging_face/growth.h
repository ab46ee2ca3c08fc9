#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "framework/base/error.h"
#include "framework/tokenizers/hugging_face/json_value.h"

// Limits of what a tokenizer.json may do with one text. Real files stay far below them: the longest decomposition of a
// character is 11 times as long, and no published file has more than ten steps of a kind.

namespace tessera::tokenizers::hugging_face {

inline constexpr std::size_t most_parts = 256;  ///< of the normalizers, pre-tokenizers, post-processors, decoders each

/// Throws ConfigError, naming the entry, if it has more than `most_parts` steps.
inline void check_steps(const JsonValue& entry, std::size_t steps) {
  if (steps > most_parts) entry.refuse(text("has more than ", most_parts, " steps, which is the limit"));
}

/// Maximum bytes, or ids, that a text of `bytes` bytes may become.
constexpr std::size_t most_from(std::size_t bytes) { return (std::size_t{1} << 20U) + 32 * bytes; }
/// Maximum bytes of a text while it is decoded.
inline constexpr std::size_t most_decoded = std::size_t{16} << 20U;

/// Throws ConfigError if `size` is more than `most`. `step` names what makes the text: "the normalizers".
inline void check_growth(std::size_t size, std::size_t most, std::string_view step) {
  if (size > most)
    throw ConfigError(text(step, " make more than ", most, " bytes of one text, which is the limit; the file is ",
                           "damaged or malicious: get it again"));
}

}  // namespace tessera::tokenizers::hugging_face
