#pragma once

#include "framework/options/registry.h"
#include "framework/options/yaml.h"

namespace tessera::options {

/// Reads `words`, the YAML text of one recipe group, and returns the registry's choice with its options, for programs
/// that assemble components without a recipe. Options, limits and messages are the same as in recipes.
///
///     auto model = choose(models(), "{model_type: gpt, num_layers: 2, hidden_size: 12}").make(settings);
///
/// Throws ConfigError with all mistakes, one per line, also for a key that the chosen type does not read.
template <class Product, class... Parts>
typename Registry<Product, Parts...>::Choice choose(const Registry<Product, Parts...>& registry,
                                                    const std::string& words) {
  Report report;
  Value tree;
  tree.set("options", parse_yaml(words, "options"));
  Group group(tree, "options", report);
  auto choice = registry.read(group);
  group.finish();
  report.must_be_good();
  return choice;
}

}  // namespace tessera::options
