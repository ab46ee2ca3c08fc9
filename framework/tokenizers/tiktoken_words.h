#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::tokenizers {

/// The two regular expressions with which Megatron-LM's TikTokenizer splits text into words.
enum class TiktokenPattern : std::uint8_t { v1, v2 };

/// The text of the expression in Megatron-LM core_v0.12.1; part of the tokenizer's identity.
std::string_view expression(TiktokenPattern pattern);

/// Length in bytes of the word of `text` (UTF-8) that begins at `at`, as matched by fancy-regex in `tiktoken` 0.14
/// (Unicode 16). A byte that is not UTF-8 is treated as a character that is neither letter, number nor blank.
std::size_t next_tiktoken_word(TiktokenPattern pattern, std::string_view text, std::size_t at);

}  // namespace tessera::tokenizers
