#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::unicode {

/// The four normalisation forms of Unicode (UAX #15).
enum class Form : std::uint8_t { nfc, nfd, nfkc, nfkd };

/// Whose normalisation: Python 3.11's `unicodedata` (Unicode 14), or `tokenizers`' NFC, NFD, NFKC and NFKD (crate
/// unicode-normalization-alignments, Unicode 9). What neither knows stays as it is.
enum class NormalizationRules : std::uint8_t { python, tokenizers };

/// `text` (UTF-8) in `form`. Bytes that are not UTF-8 stay where they are.
std::string normalized(std::string_view text, Form form, NormalizationRules whose);
std::u32string normalized(std::u32string_view codes, Form form, NormalizationRules whose);

/// Lower case of each character alone, as Rust's char::to_lowercase (Unicode 17), which `tokenizers`' Lowercase and
/// BertNormalizer use: a capital sigma becomes U+03C3 everywhere, U+0130 becomes "i" and U+0307.
std::string lower_each(std::string_view text);

/// Lower case as Python 3.11's str.lower (Unicode 14): a capital sigma at the end of a word becomes U+03C2.
std::string python_lower(std::string_view text);

/// `text` in NFD of Python 3.11 without the characters of category Mn: Megatron-LM's strip_accents of BERT.
std::string python_without_accents(std::string_view text);

}  // namespace tessera::unicode
