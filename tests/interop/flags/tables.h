#pragma once

#include <set>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/options/report.h"
#include "framework/recipe/recipe.h"

// What tests of the tables of flags share.
namespace tessera {

using Lines = std::vector<std::string>;

/// Every option of a recipe.
inline const options::Facts& facts() {
  static const auto all = recipe::all_facts({});
  return all;
}

/// "group.option" of each.
inline std::set<std::string> every_key() {
  std::set<std::string> known;
  for (const auto& [group, schemas] : facts())
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) known.insert(group + "." + option.name);
  return known;
}

/// The table that is used when none is named.
inline const flags::FlagTable& megatron() {
  static const auto table = flags::FlagTable::named(flags::FlagTable::usual, options::Mappings());
  return table;
}

inline Lines with(Lines argv, const Lines& more) {
  argv.insert(argv.end(), more.begin(), more.end());
  return argv;
}

/// The value at a path as text; "nothing" if there is none.
inline std::string text_at(const options::Value& tree, const std::string& path) {
  const auto* value = tree.at(path);
  return value ? text(*value) : "nothing";
}

/// The findings of the recipe that a command line becomes, except for missing options.
inline Lines complaints(const flags::FlagTable& table, const Lines& argv) {
  options::Report report;
  recipe::read_recipe(table.convert(argv, facts(), report), {}, report);
  Lines all;
  for (const auto& finding : report.findings())
    if (finding.message.find("missing") == std::string::npos) all.push_back(options::text_of(finding));
  return all;
}

}  // namespace tessera
