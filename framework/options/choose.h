#pragma once

#include "framework/options/registry.h"
#include "framework/options/yaml.h"

namespace tessera::options {

/// What `words` choose from a registry: one group of a recipe by itself, as YAML, for programs that put their parts
/// together without a recipe. The options, limits and messages are those of recipes.
///
///     auto model = choose(models(), "{model_type: gpt, num_layers: 2, hidden_size: 12}").make(parts);
///
/// Throws ConfigError with all mistakes, a line each; a key that the chosen thing does not read is one.
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
