#include "framework/cli/command_tree.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr const char* setting = "group.key=value";

CommandNode::Option option_of(const CLI::Option& option) {
  CommandNode::Option out;
  out.doc = option.get_description();
  out.required = option.get_required();
  out.by_place = option.get_positional();
  if (out.by_place) out.names.push_back(option.get_name(true));
  for (const auto& name : option.get_snames()) out.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) out.names.push_back("--" + name);
  const bool takes = option.get_items_expected_max() > 0;
  if (takes && !out.by_place) out.value = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
  out.sets = out.value == setting;
  return out;
}

void add(const CLI::App& command, const std::string& path, std::vector<CommandNode>& all) {
  CommandNode node{path, command.get_description(), {}, {}};
  for (const auto* option : command.get_options()) node.options.push_back(option_of(*option));
  const auto below = command.get_subcommands([](const CLI::App*) { return true; });
  for (const auto* sub : below) node.commands.emplace_back(sub->get_name(), sub->get_description());
  all.push_back(std::move(node));
  for (const auto* sub : below) add(*sub, path + " " + sub->get_name(), all);
}

}  // namespace

std::vector<CommandNode> command_tree(const CLI::App& app) {
  std::vector<CommandNode> all;
  add(app, app.get_name(), all);
  return all;
}

std::vector<KeyWords> key_words(const Facts& facts) {
  std::vector<KeyWords> all;
  for (const auto& [group, schemas] : facts)
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        const auto key = group + "." + option.name;
        if (std::any_of(all.begin(), all.end(), [&](const auto& known) { return known.key == key; })) continue;
        auto words = option.planned ? option.neutral : option.choices;
        std::erase_if(words, [](const auto& word) {
          return word.empty() || word.find_first_of(" []{}'\"") != std::string::npos;
        });
        if (option.nullable && !option.planned && !words.empty()) words.push_back("null");
        all.push_back({key, option.doc, std::move(words)});
      }
  return all;
}

}  // namespace tessera
