#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::hugging_face {

/// The model_config of a recipe with all derived values made explicit (Architecture::canonical_options): sizes, query
/// groups, each bias; vocab_size is `vocabulary`. Throws ConfigError if the architecture has no such form.
options::Value whole_model_config(const recipe::Recipe& recipe, std::int64_t vocabulary);

/// Lines "option is X, there it would be Y" for the options in which two models of whole_model_config differ; empty:
/// they compute the same.
std::vector<std::string> model_differences(const options::Value& ours, const options::Value& theirs,
                                           const options::Mappings& mappings);

/// The first family of Transformers in `candidates` that computes what this model does: the config.json written for it
/// reads back to the same model. Throws ConfigError with the differences from the nearest family if there is none.
std::string family_that_fits(const recipe::Recipe& recipe, std::int64_t vocabulary,
                             const std::vector<std::string>& candidates, const recipe::Registries& registries,
                             const options::Mappings& mappings);

}  // namespace tessera::hugging_face
