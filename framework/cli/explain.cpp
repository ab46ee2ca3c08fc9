#include "framework/cli/explain.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <optional>

#include "framework/cli/layout_report.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {
namespace {

/// One option, in each of the schemas that have it.
struct Found {
  std::string group;
  std::vector<std::pair<const options::SchemaFacts*, const options::OptionFacts*>> in;
  std::string key() const { return group + "." + in[0].second->name; }
};

bool named(const options::OptionFacts& option, const std::string& name) {
  return option.name == name || std::any_of(option.aliases.begin(), option.aliases.end(),
                                            [&](const auto& alias) { return alias.name == name; });
}

std::vector<Found> options_named(const std::string& key, const options::Facts& facts) {
  std::vector<Found> all;
  for (const auto& [group, schemas] : facts) {
    const bool with_group = key.rfind(group + ".", 0) == 0;
    const auto name = with_group ? key.substr(group.size() + 1) : key;
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        if (!named(option, name)) continue;
        const auto path = group + "." + option.name;
        const auto same =
            std::find_if(all.begin(), all.end(), [&path](const Found& found) { return found.key() == path; });
        if (same == all.end())
          all.push_back({group, {{&schema, &option}}});
        else
          same->in.push_back({&schema, &option});
      }
  }
  return all;
}

Found option_named(std::string key, const options::Facts& facts) {
  key = key.substr(0, std::min(key.find('['), key.find('=')));
  auto all = options_named(key, facts);
  if (all.size() == 1) return all[0];
  // Of several groups, the one whose options matter in every recipe.
  const auto conditional = [](const Found& found) { return !found.in.front().second->needs.empty(); };
  if (std::ranges::count_if(all, std::not_fn(conditional)) == 1)
    return *std::ranges::find_if(all, std::not_fn(conditional));
  std::string several;
  for (const auto& one : all) several += (several.empty() ? "" : ", ") + one.key();
  if (!all.empty())
    throw ConfigError(text("'", key, "' is an option of several groups: ", several, "; give one of these"));
  std::vector<std::string> known;
  for (const auto& [group, schemas] : facts)
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        known.push_back(group + "." + option.name);
        if (key.find('.') == std::string::npos) known.push_back(option.name);
      }
  const auto hint = options::did_you_mean(key, known);
  throw ConfigError(text("no option '", key, "'; ", hint.empty() ? "`tessera options` lists them" : hint));
}

std::string enumerated(const std::vector<std::string>& words) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

/// "GptOptions of model, framework/model/gpt_options.cpp".
std::string reader_of(const options::OptionFacts& option, const options::SchemaFacts& schema) {
  if (option.planned) return "nothing: " + options::state_of_planned(option);
  if (option.reader.empty()) return "selects the implementation";
  const auto& file = option.declared_in;
  const std::string root = "framework/";
  const auto component =
      file.rfind(root, 0) == 0 ? file.substr(root.size(), file.find('/', root.size()) - root.size()) : "";
  return text(option.reader, component.empty() ? "" : " of component " + component, ", declared in ", file,
              schema.key.empty() ? "" : text(", with ", schema.key, " ", schema.type));
}

void print_facts(const Found& found) {
  const auto& option = *found.in[0].second;
  std::cout << found.key() << "\n  " << option.doc << "\n";
  print_line("type", enumerated([&] {
               auto words = option.limits;
               words.insert(words.begin(), option.type);
               return words;
             }()));
  if (!option.unit.empty()) print_line("unit", option.unit);
  for (const auto& [schema, one] : found.in) {
    const auto usual = text(one->default_value);
    const auto of = schema->key.empty() ? "" : text(" (", schema->type, ")");
    if (one == &option || usual != text(option.default_value))
      print_line("default", (one->required ? "none: a recipe must give it" : usual.empty() ? "empty" : usual) + of);
  }
  if (option.planned) print_line("takes", options::what_it_takes(option, {}));
  for (const auto& why : option.no_effect_if) print_line("no effect if", why);
  if (!option.planned) print_line("other value in checkpoint", options::sentence_of(option.change));
  if (!option.rules.empty()) print_line("rules", enumerated(option.rules) + " of docs/rules.md");
  for (const auto& [schema, one] : found.in) print_line("read by", reader_of(*one, *schema));
  std::vector<std::string> names;
  for (const auto& alias : option.aliases)
    names.push_back(alias.item < 0 ? alias.name : text(alias.name, " ([", alias.item, "])"));
  if (!names.empty()) print_line("also read", enumerated(names));
  if (!option.other_choices.empty()) print_line("further words", enumerated(option.other_choices));
}

/// "--swiglu: swiglu".
std::string words_of(const flags::FlagRow& row, const std::string& to) {
  if (row.option() != to) {
    for (const auto& [option, value] : row.also)
      if (option.substr(0, option.find('[')) == to) return text(row.flag, ": ", value, ", unless another flag sets it");
    return "";
  }
  if (row.kind == flags::FlagRow::Kind::fixed) return text(row.flag, ": ", row.fixed);
  const auto item = row.to.find('[');
  return item == std::string::npos ? row.flag : text(row.flag, " (", row.to.substr(item), ")");
}

void print_flags(const std::string& key, const std::string& why_none, const options::Mappings& mappings) {
  const std::string folder = "flags/";
  std::vector<std::pair<std::string, std::vector<std::string>>> flags;
  std::size_t tables = 0;
  for (const auto& file : mappings.names()) {
    if (file.rfind(folder, 0) != 0 || mappings.table(file).find("name") == nullptr) continue;
    const auto table = flags::FlagTable::from(file.substr(folder.size()), mappings);
    ++tables;
    for (const auto& row : table.rows()) {
      const auto words = words_of(row, key);
      if (words.empty()) continue;
      auto known = std::find_if(flags.begin(), flags.end(), [&](const auto& f) { return f.first == words; });
      if (known == flags.end()) known = flags.insert(flags.end(), {words, {}});
      known->second.push_back(table.name());
    }
  }
  for (const auto& [words, names] : flags)
    print_line("flag", words + (names.size() == tables ? "" : "  [" + enumerated(names) + "]"));
  if (flags.empty()) print_line("flag", "no flag of another program" + (why_none.empty() ? "" : ": " + why_none));
}

std::string place(const options::Origin& origin) { return origin.layer == 0 ? "default" : text(origin); }

/// Whether the only mistake is that the length of the run is missing, as in a recipe that is a base of others.
bool can_tell(const options::Report& report) {
  const auto findings = report.findings();
  return std::all_of(findings.begin(), findings.end(),
                     [](const auto& f) { return f.option == "training_config.training_iters"; });
}

struct ReadRecipe {
  std::string file;
  recipe::Recipe recipe;
  options::Report report;
};

/// Throws ConfigError if a value may be missing because a file could not be read completely: the default is then not
/// the run's value.
ReadRecipe read_whole(RecipeArguments arguments, const CommandContext& context) {
  ReadRecipe read;
  read.recipe = read_recipe_or_run(arguments, context, read.report);
  read.file = arguments.file;
  if (!read.report.complete()) read.report.must_be_good();
  return read;
}

void print_value(const std::string& key, const ReadRecipe& read) {
  const auto& [file, recipe, report] = read;
  std::cout << "in " << file << "\n";
  for (const auto& finding : report.findings())
    if (finding.option == key) print_line("mistake", options::text_of(finding));
  const auto* value = recipe.resolved.at(key);
  if (value == nullptr) {
    print_line("value", "none: it belongs to a type that is not selected");
    return;
  }
  const auto words = text(*value);
  print_line("value", value->wrong ? "none: what was given is wrong" : words.empty() ? "empty" : words);
  print_line("from", place(value->origin));
  for (const auto& item : value->items)
    if (item.origin.layer > 0 && text(item.origin) != text(value->origin))
      print_line("from", text(item, ": ", item.origin));
  if (!can_tell(report)) {
    if (!report.concerns(key)) print_line("mistakes", text(report.findings().size(), "; `tessera check` lists them"));
    return;
  }
  if (const auto instead = recipe.derived(key))
    print_line("taken", instead->value.empty() ? instead->how : text(instead->value, " (derived: ", instead->how, ")"));
  for (const auto& idle : recipe.without_effect())
    if (idle.option == key) print_line("effect", "none: " + idle.why);
}

struct ExplainArguments {
  std::string key;
  RecipeArguments recipe;
};

void explain(const ExplainArguments& arguments, const CommandContext& context) {
  const auto facts = recipe::all_facts(context.registries);
  const auto found = option_named(arguments.key, facts);
  if (arguments.recipe.file.empty() && !arguments.recipe.sets.empty())
    throw ConfigError("--set overrides a value of a recipe; give a recipe");
  std::optional<ReadRecipe> read;
  if (!arguments.recipe.file.empty()) read = read_whole(arguments.recipe, context);
  print_facts(found);
  print_flags(found.key(), found.in[0].second->no_flag, context.mappings());
  if (read) print_value(found.key(), *read);
}

}  // namespace

void add_explain_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("explain", "Explain an option, and its value in a recipe or run");
  const auto arguments = std::make_shared<ExplainArguments>();
  command->add_option("KEY", arguments->key, "The option, as group.key")->required()->type_name("");
  command
      ->add_option("RECIPE", arguments->recipe.file,
                   "Show its value in this recipe, script, run folder or checkpoint, and where that was set")
      ->type_name("");
  add_set_arguments(*command, arguments->recipe.sets);
  add_foreign_arguments(*command, arguments->recipe.foreign);
  command->callback([arguments, &context] { explain(*arguments, context); });
}

}  // namespace tessera::cli
