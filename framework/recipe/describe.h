#pragma once

#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// Declares facts about options that depend on other groups of the recipe: the default of a null option, and when an
/// option has an effect; and which of its values do not differ in what the weights compute. Everything else is
/// declared in the describe() of its struct (options/schema.h).
class RecipeSchema {
 public:
  struct Entry {
    std::string option;      ///< "model_config.vocab_size"
    std::string words = {};  ///< description of the default if the option is null
    /// Computes that default for one recipe; if its `how` is empty, `words` are used. May throw Error if the recipe has
    /// mistakes that prevent it.
    options::Derived (*derive)(const Recipe&) = nullptr;
    bool (*matters)(const Recipe&) = nullptr;  ///< whether the option has an effect; null: always
    const char* why_not = "";                  ///< the reason if `matters` returns false
    /// Values between which the weights compute the same function, although other changes of the option are refused
    /// (options::Change::weights).
    std::vector<std::string> same_function = {};
  };

  class Declared {
   public:
    Declared(RecipeSchema& schema, std::string option) : schema_(schema), option_(std::move(option)) {}
    Declared& otherwise(options::Derived (*derive)(const Recipe&), std::string words);
    Declared& matters_when(bool (*matters)(const Recipe&), const char* why_not);
    Declared& same_function_with(std::vector<std::string> values);

   private:
    RecipeSchema& schema_;
    std::string option_;
  };
  Declared option(std::string option) { return {*this, std::move(option)}; }
  const std::vector<Entry>& entries() const { return entries_; }
  /// Adds these declarations to the facts of each option.
  void complete(options::Facts& facts) const;

 private:
  std::vector<Entry> entries_;
};

/// Why an option has no effect in the recipe, by declarations that depend on other groups: those here, and
/// OptionFacts::needs. Null: it has an effect, as far as these say.
const char* why_without_effect(const Recipe& recipe, const std::string& option);
/// Whether the option has an effect in the recipe, by all declarations. May throw ConfigError for a recipe with
/// mistakes.
bool has_effect(const Recipe& recipe, const std::string& option);

/// Declares all entries.
void describe(RecipeSchema& s);
/// The schema with the entries of describe(), made once.
const RecipeSchema& recipe_schema();

}  // namespace tessera::recipe
