#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tokenizers/hugging_face/json_value.h"
#include "framework/tokenizers/hugging_face/visit.h"

namespace tessera::tokenizers::hugging_face {

/// A piece of the normalized text (UTF-8).
struct Piece {
  std::string_view text;
  std::size_t from_start;  ///< number of leading bytes that originate from the first character of the original text

  Piece part(std::size_t begin, std::size_t end) const {
    return {text.substr(begin, end - begin), from_start > begin ? from_start - begin : 0};
  }
};

/// What a step does with a text at a line end between two ASCII characters that are no blanks (files::cut_long_text()).
enum class AtLineEnd {
  cut,     ///< cuts behind it; the parts of both sides are as if each side were a text
  kept,    ///< the same, but the parts beside the line end may be one part
  unknown  ///< nothing is known
};

/// One step that splits pieces into smaller ones. Const and thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Calls `sink` for each part of `piece` in order; parts may be empty. `spelt` is working memory to which the parts
  /// may refer, until the next call with the same memory.
  virtual void split(Piece piece, std::string& spelt, const Visit<Piece>& sink) const = 0;
  virtual AtLineEnd at_line_end() const { return AtLineEnd::unknown; }
  /// Whether the parts of a piece depend on Piece::from_start.
  virtual bool depends_on_start() const { return false; }
};

/// The steps of the entry `pre_tokenizer`, with nested sequences flattened.
struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  /// The last step is ByteLevel, and its spelling of bytes is left to the model (BpeParts::from_bytes).
  bool ends_in_bytes = false;
};

/// Reads the entry `pre_tokenizer`. With `model_takes_bytes`, a final ByteLevel does not spell bytes.
/// `add_prefix_space`: the value of that field if `entry` is a ByteLevel. Throws ConfigError, naming the entry, if a
/// type or the value of a field is not supported.
PreTokenizers make_pre_tokenizers(const JsonValue& entry, bool model_takes_bytes,
                                  std::optional<bool> add_prefix_space = {});

}  // namespace tessera::tokenizers::hugging_face
