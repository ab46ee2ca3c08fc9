#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/tokenizers/hugging_face/json_value.h"
#include "framework/data/tokenizers/hugging_face/visit.h"

namespace tessera::data::hugging_face {

/// A piece of the normalized text, UTF-8.
struct Piece {
  std::string_view text;
  std::size_t from_start;  ///< how many of its first bytes come from the first character of the original text

  Piece part(std::size_t begin, std::size_t end) const {
    return {text.substr(begin, end - begin), from_start > begin ? from_start - begin : 0};
  }
};

/// One step that cuts pieces into smaller ones. Const and safe to share between threads.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Call `sink` for each part of `piece` in order; parts may be empty. `spelt` is working memory that the parts may
  /// lie in until the next call with the same memory.
  virtual void split(Piece piece, std::string& spelt, const Visit<Piece>& sink) const = 0;
};

/// The steps of the entry `pre_tokenizer`, sequences in one list.
struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  /// The last step is ByteLevel: its spelling of bytes is left to the model (BpeParts::from_bytes) if the model can.
  bool ends_in_bytes = false;
};

/// Throws ConfigError, naming the entry, when a type or a field's value is not supported. With `model_takes_bytes` a
/// last ByteLevel does not spell. `add_prefix_space`: the value of that field, if `entry` is a ByteLevel.
PreTokenizers make_pre_tokenizers(const JsonValue& entry, bool model_takes_bytes,
                                  std::optional<bool> add_prefix_space = {});

}  // namespace tessera::data::hugging_face
