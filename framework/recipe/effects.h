#pragma once

#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

// Options that a recipe gives and nobody reads, because of what the recipe says elsewhere. That is no mistake, and
// seldom meant.

namespace tessera {

/// Such an option.
struct Idle {
  std::string key;  ///< "model_config.rotary_base"
  Origin at;        ///< where it was given
  std::string why;  ///< "position_embedding_type is not rope"
  bool compatible =
      false;  ///< accepted for compatibility only: not implemented yet, with the value that changes nothing
};

/// All of a recipe without mistakes, group by group: by the rules below, and options that are not built yet, whose
/// values change nothing. Options of a type not chosen are not among them: reading a recipe tells those.
std::vector<Idle> without_effect(const Recipe& recipe);

/// When options matter. One that several rules name matters when all of them say so.
struct EffectRule {
  std::vector<std::string> options;
  bool (*matters)(const Recipe&);
  const char* otherwise;  ///< why they do not
};
const std::vector<EffectRule>& effect_rules();

}  // namespace tessera
