#pragma once

#include <gtest/gtest.h>

#include <map>

#include "framework/base/error.h"
#include "framework/options/registry.h"

namespace tessera {

/// What a shelf makes of the keys `options` of a dataset_config.
template <class Shelf, class... Parts>
auto chosen(const Shelf& shelf, const std::map<std::string, std::string>& options, Parts... parts) {
  options::Value recipe;
  for (const auto& [name, value] : options)
    recipe.set("dataset_config." + name, options::Value::of(value, {"test", 0, "", 1}));
  options::Report report;
  options::Group group(recipe, "dataset_config", report);
  const auto choice = shelf.read(group);
  group.finish();
  report.must_be_good();
  return choice.make(parts...);
}

/// Expect a ConfigError whose words have every one of `parts`.
template <class Action>
void expect_refused(const Action& action, const std::vector<std::string>& parts) {
  try {
    action();
    ADD_FAILURE() << "nothing was refused";
  } catch (const ConfigError& error) {
    const std::string words = error.what();
    for (const auto& part : parts)
      EXPECT_NE(words.find(part), std::string::npos) << "no '" << part << "' in: " << words;
  }
}

}  // namespace tessera
