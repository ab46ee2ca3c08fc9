#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/options/group.h"

namespace tessera::flags {

/// What stands around the options of a recipe that is written for people.
struct RecipeText {
  std::vector<std::string> head;                     ///< comment lines above all, without their #
  std::string base;                                  ///< the recipe it builds upon; empty: none
  std::map<std::string, std::string> comments = {};  ///< "group.key" -> what stands beside it
  /// Lines of a group that are written as comments: "group.key" -> why.
  std::map<std::string, std::string> shut = {};
  std::vector<std::string> tail = {};  ///< comment lines below all
};

/// The options of `tree` that say something else than `base` or, where that says nothing, than the default of the
/// type that is chosen. Groups and options that `facts` does not have are kept.
options::Value what_differs(const options::Value& tree, const options::Value& base, const options::Facts& facts);

/// `tree` as a recipe that a person would write: groups in the order in which one thinks of a run (model, cut,
/// training, optimizer, data), options in the order of their declaration, values in their shortest form. ${NAME} stays
/// the environment's.
std::string write_recipe(const options::Value& tree, const options::Facts& facts, const RecipeText& around);

/// Paths become variables that have them as usual values: data_path: ${DATA_PATH:-corpus/text_document}.
void make_paths_variables(options::Value& tree);

}  // namespace tessera::flags
