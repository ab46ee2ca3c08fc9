#include "framework/cli/options.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <iostream>

#include "framework/interop/flags/flags_page.h"
#include "framework/interop/flags/options_page.h"
#include "framework/options/json_schema.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {
namespace {

struct OptionsArguments {
  std::string pattern, flag;
  bool planned = false, json_schema = false, markdown = false, flags_markdown = false, names = false;
};

std::string lower(std::string words) {
  for (auto& c : words) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return words;
}

/// Whether `pattern` matches any of `words`.
bool says(const std::string& pattern, const std::vector<std::string>& words) {
  const auto wanted = "*" + lower(pattern) + "*";
  return std::any_of(words.begin(), words.end(),
                     [&](const auto& word) { return fnmatch(wanted.c_str(), lower(word).c_str(), 0) == 0; });
}

void print(const std::string& key, const options::SchemaFacts& schema, const options::OptionFacts& option,
           const std::vector<std::string>& flags) {
  std::cout << key << ": " << option.type;
  if (option.required)
    std::cout << ", required";
  else
    std::cout << " = " << option.default_value;
  for (const auto& limit : option.limits) std::cout << ", " << limit;
  if (!option.unit.empty()) std::cout << " [" << option.unit << "]";
  if (!schema.key.empty()) std::cout << "  (with " << schema.key << " " << schema.type << ")";
  std::cout << "\n    " << option.doc << "\n";
  for (const auto& why : option.no_effect_if) std::cout << "    no effect if " << why << "\n";
  if (option.planned)
    std::cout << "    " << options::state_of_planned(option) << ": " << options::what_it_takes(option, {}) << "\n";
  std::string others;
  for (const auto& alias : option.aliases) others += (others.empty() ? "" : ", ") + alias.name;
  if (!others.empty()) std::cout << "    also read: " << others << "\n";
  std::string theirs;
  for (const auto& flag : flags) theirs += (theirs.empty() ? "" : ", ") + flag;
  if (!theirs.empty()) std::cout << "    Megatron: " << theirs << "\n";
}

/// An option that `arguments` select.
struct Selected {
  std::string key;
  const options::SchemaFacts* schema;
  const options::OptionFacts* option;
  std::vector<std::string> flags;
};

/// Options of which a name or a flag matches the pattern, then those of which only the text does.
struct Selection {
  std::vector<Selected> by_name, by_text;
  std::vector<std::string> known;  ///< the names of all options

  void look_at(const OptionsArguments& arguments, Selected one) {
    std::vector<std::string> words{one.key};
    const auto group = one.key.substr(0, one.key.find('.'));
    for (const auto& alias : one.option->aliases) words.push_back(group + "." + alias.name);
    if (arguments.planned && !one.option->planned) return;
    known.insert(known.end(), words.begin(), words.end());
    known.push_back(one.option->name);
    words.insert(words.end(), one.flags.begin(), one.flags.end());
    if (says(arguments.pattern, words))
      by_name.push_back(std::move(one));
    else if (says(arguments.pattern, {one.option->doc}))
      by_text.push_back(std::move(one));
  }
};

Selection select(const options::Facts& facts, const flags::FlagTable& flags, const OptionsArguments& arguments) {
  Selection all;
  for (const auto& [group, schemas] : facts)
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        const auto key = group + "." + option.name;
        all.look_at(arguments, {key, &schema, &option, flags::flags_to(flags, key)});
      }
  return all;
}

void print_options(const options::Facts& facts, const flags::FlagTable& flags, const OptionsArguments& arguments) {
  const auto all = select(facts, flags, arguments);
  for (const auto* list : {&all.by_name, &all.by_text})
    for (const auto& one : *list) {
      if (arguments.names)
        std::cout << one.key << "\n";
      else
        print(one.key, *one.schema, *one.option, one.flags);
    }
  if (!all.by_name.empty() || !all.by_text.empty()) return;
  const auto hint = options::did_you_mean(arguments.pattern, all.known);
  throw ConfigError(text(arguments.planned ? "no planned option like '" : "no option like '", arguments.pattern, "'",
                         hint.empty() ? "" : "; ", hint));
}

void options(const OptionsArguments& arguments, const CommandContext& context) {
  const auto facts = recipe::all_facts(context.registries);
  const auto flags = flags::FlagTable::from("megatron.yaml", context.mappings());
  if (arguments.markdown) {
    std::cout << flags::options_page(facts, flags);
  } else if (arguments.flags_markdown) {
    std::cout << flags::flags_page(facts, context.mappings());
  } else if (!arguments.flag.empty()) {
    std::cout << flags::flag_details(arguments.flag, facts, context.mappings());
  } else if (arguments.json_schema) {
    std::cout << options::json_schema(facts);
  } else {
    print_options(facts, flags, arguments);
  }
}

}  // namespace

void add_options_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("options", "List the options of a recipe");
  const auto arguments = std::make_shared<OptionsArguments>();
  command
      ->add_option("PATTERN", arguments->pattern,
                   "Part of a key, an alias, a flag or a description; * matches any text")
      ->type_name("");
  auto* planned = command->add_flag(
      "--planned", arguments->planned,
      "Only options that are not implemented yet, or that exist for compatibility and have no effect");
  command->add_flag("--names", arguments->names, "Only the keys");
  auto* schema = command->add_flag("--json-schema", arguments->json_schema, "As a JSON Schema, for editors");
  auto* page = command->add_flag("--markdown", arguments->markdown, "As docs/options.md");
  auto* flags = command->add_flag("--flags-markdown", arguments->flags_markdown, "As docs/flags.md");
  auto* flag = command->add_option("--flag", arguments->flag, "How each table converts a flag of another program");
  flag->type_name("FLAG");
  schema->excludes(page)->excludes(planned);
  page->excludes(planned);
  flags->excludes(page)->excludes(planned)->excludes(schema);
  flag->excludes(page)->excludes(planned)->excludes(schema)->excludes(flags);
  command->callback([arguments, &context] { options(*arguments, context); });
}

}  // namespace tessera::cli
