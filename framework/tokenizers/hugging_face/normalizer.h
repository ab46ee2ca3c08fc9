#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/tokenizers/hugging_face/json_value.h"

namespace tessera::tokenizers::hugging_face {

/// A text (UTF-8) while it passes through the normalizers.
struct Normalized {
  std::string text;
  std::size_t from_start;  ///< number of leading bytes that originate from the first character of the original text
  std::size_t most = static_cast<std::size_t>(-1);  ///< maximum length of the text, in bytes
};

/// One step of normalization. Const and safe to share between threads.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Throws ConfigError if the text becomes longer than `words.most`.
  virtual void apply(Normalized& words) const = 0;
  /// Whether ASCII text is never changed.
  virtual bool keeps_ascii() const { return false; }
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

/// Reads the steps of the entry `normalizer`, with nested sequences flattened. Throws ConfigError, naming the entry, if
/// a type or the value of a field is not supported.
Normalizers make_normalizers(const JsonValue& entry);

}  // namespace tessera::tokenizers::hugging_face
