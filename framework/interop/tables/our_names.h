#pragma once

#include <string_view>

// Facts about our tensors by name, for other programs' formats, whose files and tables identify tensors by name only.
// Code that has the model uses the role of the parameter instead (tensor/parameter_role.h).

namespace tessera::tables {

/// Whether each row of the matrix `name` belongs to a token of the vocabulary.
inline bool has_vocabulary_rows(std::string_view name) {
  return name == "embedding.word_embeddings.weight" || name == "output_layer.weight";
}

/// Whether each row of the weight `name` does, also of the bias of the output layer.
inline bool counts_tokens(std::string_view name) { return has_vocabulary_rows(name) || name == "output_layer.bias"; }

}  // namespace tessera::tables
