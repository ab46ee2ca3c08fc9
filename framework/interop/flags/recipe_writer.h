#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/options/group.h"

namespace tessera::flags {

/// The comments and the base of a recipe that is written for people.
struct RecipeText {
  std::vector<std::string> head;                     ///< comment lines at the top, without #
  std::string base;                                  ///< the recipe for `base:`; empty: none
  std::map<std::string, std::string> comments = {};  ///< "group.key" -> comment beside the option
  /// Options that are written as comments: "group.key" -> reason.
  std::map<std::string, std::string> shut = {};
  std::vector<std::string> tail = {};  ///< comment lines at the end
};

/// The options of `tree` whose values differ from `base` or, where `base` has no value, from the default of the chosen
/// type. Groups and options that are not in `facts` are kept.
options::Value what_differs(const options::Value& tree, const options::Value& base, const options::Facts& facts);

/// Writes `tree` as a recipe for people: groups in the order model, parallel layout, training, optimizer, data; options
/// in the order of their declaration; values in their shortest form. ${NAME} is written unchanged.
std::string write_recipe(const options::Value& tree, const options::Facts& facts, const RecipeText& around);

/// Replaces paths by environment variables with the paths as defaults: data_path: ${DATA_PATH:-corpus/text_document}.
void make_paths_variables(options::Value& tree);

}  // namespace tessera::flags
