#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::hugging_face {

/// model_config with what follows from it said outright: sizes, groups of keys and values, each bias; vocab_size is
/// `vocabulary`. Throws ConfigError when the model is no gpt.
options::Value whole_model_config(const recipe::Recipe& recipe, std::int64_t vocabulary);

/// The first of `candidates`, families of Transformers, that computes what this model does: the config.json written for
/// it reads back to the same model. Throws ConfigError, telling for the nearest what differs.
std::string family_that_fits(const recipe::Recipe& recipe, std::int64_t vocabulary,
                             const std::vector<std::string>& candidates, const recipe::Registries& registries,
                             const options::Mappings& mappings);

}  // namespace tessera::hugging_face
