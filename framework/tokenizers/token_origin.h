#pragma once

#include <string>
#include <vector>

#include "framework/tokenizers/tokenizer.h"

namespace tessera::tokenizers {

/// The file beside the token files PREFIX.bin and PREFIX.idx that tells which tokenizer made them: the ids that it
/// gives a fixed text, as a checksum, so tokenizers that encode alike are the same, whatever their files and classes.
/// That text has no special tokens: of two tokenizers of one class, one that splits special tokens is another one.
std::string origin_file(const std::string& prefix);
/// Writes origin_file(prefix). Does nothing, and removes an earlier file, if `tokenizer` cannot encode that text.
void write_origin(const std::string& prefix, const Tokenizer& tokenizer);
/// A sentence for people if the token files were made with another tokenizer than `tokenizer` (null: none); empty: they
/// were not, or it is not known. A file that cannot be read, or that belongs to a .bin of another size, tells nothing.
std::string other_origin(const std::string& prefix, const Tokenizer* tokenizer);

/// What tells `tokenizer` from others in such a file, in one line; empty if it cannot encode that text.
std::string origin_text(const Tokenizer& tokenizer);

/// Throws ConfigError, naming both, if two of the token files `prefixes` are known to be of different tokenizers.
void must_have_one_origin(const std::vector<std::string>& prefixes);
/// Writes origin_file(merged) for token files that consist of those of `prefixes`, if the tokenizer of all is known;
/// else removes an earlier file.
void write_merged_origin(const std::vector<std::string>& prefixes, const std::string& merged);

}  // namespace tessera::tokenizers
