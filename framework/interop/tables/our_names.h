#pragma once

#include <string_view>

// Facts about our tensors by name, for formats of other programs: their files and tables know tensors by names only.
// Code that has the model asks for the role of the parameter (tensor/parameter_role.h).

namespace tessera::tables {

/// Whether the rows of the weight `name` are the tokens of the vocabulary.
inline bool has_vocabulary_rows(std::string_view name) {
  return name == "embedding.word_embeddings.weight" || name == "output_layer.weight";
}

}  // namespace tessera::tables
