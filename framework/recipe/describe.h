#pragma once

#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// What is to be said of options with other groups in view: the default of a null option, and when an option has an
/// effect. All else is said by the describe() of its struct (options/schema.h).
class RecipeSchema {
 public:
  struct Entry {
    std::string option;      ///< "model_config.vocab_size"
    std::string words = {};  ///< what null stands for
    /// The same for one recipe; `how` empty: `words`. May throw an Error: the recipe is too wrong to tell.
    options::Derived (*derive)(const Recipe&) = nullptr;
    bool (*matters)(const Recipe&) = nullptr;
    const char* why_not = "";  ///< why the option has no effect when it does not matter
  };

  class Declared {
   public:
    Declared(RecipeSchema& schema, std::string option) : schema_(schema), option_(std::move(option)) {}
    Declared& otherwise(options::Derived (*derive)(const Recipe&), std::string words);
    Declared& matters_when(bool (*matters)(const Recipe&), const char* why_not);

   private:
    RecipeSchema& schema_;
    std::string option_;
  };
  Declared option(std::string option) { return {*this, std::move(option)}; }
  const std::vector<Entry>& entries() const { return entries_; }
  /// Adds what is said here to what is known of each option.
  void complete(options::Facts& facts) const;

 private:
  std::vector<Entry> entries_;
};

/// Declares all of it.
void describe(RecipeSchema& s);
/// What describe() declares.
const RecipeSchema& recipe_schema();

}  // namespace tessera::recipe
