#include "framework/cli/recipe_arguments.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>

#include "framework/checkpoint/find.h"
#include "framework/interop/flags/flag_words.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/log/log.h"
#include "framework/options/environment.h"
#include "framework/options/yaml.h"
#include "framework/recipe/imported_recipe.h"
#include "framework/recipe/saved_model.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

const log::Logger recipe_logger("recipe");

/// Splits "NAME=value" into name and value.
std::pair<std::string, std::string> pair_of(const std::string& words, const char* option) {
  const auto equals = words.find('=');
  if (equals == 0 || equals == std::string::npos)
    throw ConfigError(text(option, " ", words, ": a name, = and a value were expected"));
  return {words.substr(0, equals), words.substr(equals + 1)};
}

/// The recipe saved in a run folder, or in a checkpoint of our format; empty if `folder` is neither.
std::string recipe_in(const fs::path& folder) {
  for (const auto& file : {folder / checkpoint::recipe_blob, folder / "blobs" / checkpoint::recipe_blob})
    if (fs::exists(file)) return file.string();
  return "";
}

}  // namespace

void add_set_arguments(Command& command, std::vector<std::string>& sets) {
  command.add_option("--set", sets, "Set one option, overriding the recipe; may be repeated")
      ->type_name("group.key=value")
      ->one_value_each();
}

void add_target_arguments(Command& command, std::vector<std::string>& sets) {
  struct Target {
    const char *flag, *option, *program;
    bool is_list = false;
  };
  const char *megatron = "Megatron-LM's tools/checkpoint/convert.py", *mindspeed = "MindSpeed-LLM's convert_ckpt.py";
  for (const auto& target : std::initializer_list<Target>{
           {"--target-tensor-parallel-size", "parallel_config.tensor_model_parallel_size", megatron},
           {"--target-pipeline-parallel-size", "parallel_config.pipeline_model_parallel_size", megatron},
           {"--target-expert-parallel-size", "parallel_config.expert_model_parallel_size", megatron},
           {"--make-vocab-size-divisible-by", "model_config.make_vocab_size_divisible_by", megatron},
           {"--num-layers-per-virtual-pipeline-stage", "parallel_config.num_layers_per_virtual_pipeline_stage",
            mindspeed},
           {"--num-layer-list", "parallel_config.num_layer_list", mindspeed, true}}) {
    const std::string option = target.option;
    const bool is_list = target.is_list;
    command
        .add_option(
            target.flag,
            [&sets, option, is_list](const std::string& value) {
              sets.push_back(text(option, "=", is_list ? "[" + value + "]" : value));
            },
            text("Sets ", option.substr(option.find('.') + 1), " of ", option.substr(0, option.find('.')),
                 ", as the flag of ", target.program))
        ->type_name(is_list ? "N,N,..." : "N");
  }
}

void add_ignore_key_argument(Command& command, std::vector<std::string>& keys) {
  command
      .add_option(
          "--ignore-key", keys,
          "Key of the config.json of Hugging Face Transformers to read as if it were not there; may be repeated")
      ->type_name("NAME")
      ->one_value_each();
}

void add_foreign_arguments(Command& command, ForeignArguments& arguments) {
  command
      .add_option("--from", arguments.from,
                  "Program and release whose flags the script uses: megatron@core_v0.12.1, ...; default: detected")
      ->type_name("PROGRAM");
  command.add_option("--arg", arguments.positional, "Positional argument of the script; may be repeated")
      ->type_name("N=value")
      ->one_value_each();
  command.add_option("--env", arguments.environment, "Environment variable of the script; may be repeated")
      ->type_name("NAME=value")
      ->one_value_each();
}

flags::SourceOptions source_options(const ForeignArguments& arguments) {
  flags::SourceOptions options{arguments.from, {}};
  for (const auto& words : arguments.positional) {
    const auto [number, value] = pair_of(words, "--arg");
    if (number.find_first_not_of("0123456789") != std::string::npos || number.size() > 4 || std::stoi(number) == 0)
      throw ConfigError(text("--arg ", words, ": arguments have numbers from 1"));
    options.inputs.arguments[std::stoi(number)] = value;
  }
  for (const auto& words : arguments.environment) {
    const auto [name, value] = pair_of(words, "--env");
    options.inputs.environment.insert_or_assign(name, value);
  }
  return options;
}

void add_recipe_arguments(Command& command, RecipeArguments& arguments) {
  command.add_option("RECIPE", arguments.file, "The recipe, a .yaml file, or another program's launch script")
      ->required()
      ->type_name("");
  add_set_arguments(command, arguments.sets);
  add_foreign_arguments(command, arguments.foreign);
  add_verbose_argument(command, arguments.verbose);
}

void add_verbose_argument(Command& command, bool& verbose) {
  command.add_flag("--verbose", verbose,
                   "Print all notes, also on what is accepted for compatibility and has no effect");
}

std::string without_effect_summary(std::size_t count, const std::string& what) {
  return text(count, " ", what, count == 1 ? " is" : "s are", " accepted for compatibility and ",
              count == 1 ? "has" : "have", " no effect; --verbose lists ", count == 1 ? "it" : "them");
}

bool tells_of_ignored_flag(const std::string& note, const std::vector<flags::ConvertedFlag>& flags) {
  return std::any_of(flags.begin(), flags.end(), [&note](const flags::ConvertedFlag& flag) {
    const auto end = flag.given.flag + ": " + flag.why;
    return flag.status == flags::FlagStatus::ignored && note.size() >= end.size() &&
           note.compare(note.size() - end.size(), end.size(), end) == 0;
  });
}

void log_notes(const std::vector<std::string>& notes, const std::vector<flags::ConvertedFlag>& flags, bool verbose) {
  std::size_t ignored = 0;
  for (const auto& note : notes) {
    if (!verbose && tells_of_ignored_flag(note, flags))
      ++ignored;
    else
      recipe_logger.info("note: " + note);
  }
  if (ignored > 0) recipe_logger.info("note: " + without_effect_summary(ignored, "flag"));
}

namespace {

void lay_below(options::Value& tree, const options::Value& below, const std::string& path) {
  if (below.kind == options::Value::Kind::group)
    for (const auto& [name, value] : below.fields) lay_below(tree, value, path.empty() ? name : path + "." + name);
  else if (!tree.at(path))
    tree.set(path, below);
}

}  // namespace

void take_model_of_folder(flags::Source& source, const CommandContext& context, options::Report& report) {
  const std::string option = "training_config.load_checkpoint";
  const auto* folder = source.tree.at(option);
  if (source.kind != flags::Source::Kind::yaml_arguments || !folder || source.tree.at("model_config.num_layers"))
    return;
  const auto at = folder->origin;
  const std::filesystem::path path = options::expand_environment(folder->scalar);
  if (!std::filesystem::exists(path / "config.json")) {
    const auto why = text("'", path.string(),
                          "' is no folder with a config.json, which the model_config of the recipe "
                          "comes from; download the model and give its folder");
    for (auto& flag : source.flags)
      if (std::find(flag.to.begin(), flag.to.end(), option) != flag.to.end()) {
        flag.status = flags::FlagStatus::refused;
        flag.why = why;
      }
    report.problem(at, option, why, "");
    return;
  }
  const auto config = hugging_face::read_hugging_face_config(path / "config.json", context.mappings());
  for (const auto& note : config.notes) report.note(at, note);
  lay_below(source.tree, hugging_face::recipe_with(config.model_config), "");
  for (const auto& set : hugging_face::folder_tokenizer_sets(path)) {
    const auto sign = set.find('=');
    if (!source.tree.at(set.substr(0, sign)))
      source.tree.set(set.substr(0, sign), options::Value::of(set.substr(sign + 1), at));
  }
}

recipe::Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, options::Report& report) {
  flags::Source unheard;
  return read_recipe(arguments, context, report, unheard);
}

recipe::Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, options::Report& report,
                           flags::Source& source) {
  if (!flags::is_foreign(arguments.file, context.mappings())) {
    const auto& foreign = arguments.foreign;
    if (!foreign.from.empty() || !foreign.positional.empty() || !foreign.environment.empty())
      throw ConfigError(text("--from, --arg and --env say how another program's launch script is read, and ",
                             arguments.file, " is a recipe; leave them out"));
    return recipe::read_recipe(arguments.file, arguments.sets, context.registries, report);
  }
  source = flags::read_source(arguments.file, source_options(arguments.foreign), recipe::all_facts(context.registries),
                              context.mappings(), report);
  take_model_of_folder(source, context, report);
  options::lay_sets(source.tree, arguments.sets, report);
  flags::expand_unknowns(source.tree, report);
  recipe::lay_on_given_model(source.tree, context.registries, report);
  return recipe::read_recipe(source.tree, context.registries, report);
}

options::Report problems_in_flags(const options::Report& report, const flags::Source& source,
                                  const CommandContext& context) {
  std::vector<flags::GivenFlag> given;
  for (const auto& flag : source.flags) given.push_back(flag.given);
  options::Report problems;
  std::optional<flags::FlagTable> table;
  if (!source.from.empty()) table = flags::FlagTable::named(source.from, context.mappings());
  for (auto finding : report.findings()) {
    if (table && !finding.rule.empty()) flags::FlagWords(*table, given).put_into(finding);
    problems.problem(std::move(finding));
  }
  return problems;
}

recipe::Recipe read_recipe_or_run(RecipeArguments& arguments, const CommandContext& context, options::Report& report) {
  if (!fs::is_directory(arguments.file)) return read_recipe(arguments, context, report);
  auto file = recipe_in(arguments.file);
  if (file.empty()) {
    const auto newest = checkpoint::find_checkpoints(arguments.file, context.registries.formats).front();
    file = recipe_in(newest.folder);
    if (file.empty())  // another program's: its configuration describes the model
      return recipe::saved_recipe(*checkpoint::open_checkpoint(newest, context.mappings()), context.registries,
                                  arguments.sets)
          .recipe;
  }
  arguments.file = file;
  return read_recipe(arguments, context, report);
}

recipe::Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context) {
  options::Report report;
  flags::Source source;
  auto recipe = read_recipe(arguments, context, report, source);
  log_notes(report.notes(), source.flags, arguments.verbose);
  problems_in_flags(report, source, context).must_be_good();
  return recipe;
}

}  // namespace tessera::cli
