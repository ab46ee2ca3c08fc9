#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/data/tokenizers/hugging_face/json_value.h"

namespace tessera::data::hugging_face {

/// A text on its way through the normalizers, UTF-8.
struct Normalized {
  std::string text;
  std::size_t from_start;  ///< how many of its first bytes come from the first character of the original text
};

/// One step of normalization. Const and safe to share between threads.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(Normalized& words) const = 0;
  /// Whether a text of ASCII alone stays as it is.
  virtual bool keeps_ascii() const { return false; }
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

/// The steps of the entry `normalizer`, sequences in one list. Throws ConfigError, naming the entry, when a type or a
/// field's value is not supported.
Normalizers make_normalizers(const JsonValue& entry);

}  // namespace tessera::data::hugging_face
