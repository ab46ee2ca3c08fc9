#include "framework/cli/convert.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "framework/base/files.h"
#include "framework/cli/convert_adapter.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/interop/flags/conversion_report.h"
#include "framework/interop/flags/core_ms_writer.h"
#include "framework/interop/flags/flags_writer.h"
#include "framework/interop/flags/known_models.h"
#include "framework/interop/flags/megatron_rules.h"
#include "framework/interop/flags/recipe_writer.h"
#include "framework/log/log.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {
namespace {

const log::Logger convert_logger("convert");

namespace fs = std::filesystem;

constexpr int not_all_taken = 3;
const std::string flat_form = "mindspeed-core-ms", nested_form = "mindspeed-core-ms-nested";

struct ConvertArguments {
  std::vector<std::string> input;  ///< one file, or a list of flags
  std::string out, report, to;
  ForeignArguments foreign;
  bool allow_refused = false, verbose = false;
};

bool is_taken(const flags::ConvertedFlag& flag) {
  return flag.status == flags::FlagStatus::mapped || flag.status == flags::FlagStatus::ignored;
}

/// The flags printed beside an option that has another name there: "--adam-beta1, --adam-beta2".
class Comments {
 public:
  Comments(const flags::Source& source, const options::Value& shown) {
    for (const auto& flag : source.flags)
      for (const auto& to : flag.to) add(to, flag.given.flag);
    const auto said = comments_;
    for (const auto& flag : source.flags)
      for (const auto& to : flag.implied)
        if (!said.count(option_of(to))) add(to, flag.given.flag);
    for (const auto& [group, options] : shown.fields)
      for (const auto& [name, value] : options.fields) {
        const auto& origin = value.items.empty() ? value.origin : value.items.front().origin;
        if (origin.source.find(" not given") != std::string::npos) add(text(group, ".", name), origin.source);
      }
    std::erase_if(comments_, [](const auto& one) { return one.second == own_name(one.first); });
  }
  std::map<std::string, std::string> all() const { return comments_; }

 private:
  static std::string option_of(const std::string& to) { return to.substr(0, to.find('[')); }
  /// The flag that has the option's name.
  static std::string own_name(const std::string& option) {
    auto name = option.substr(option.find('.') + 1);
    std::replace(name.begin(), name.end(), '_', '-');
    return "--" + name;
  }
  void add(const std::string& to, const std::string& words) {
    auto& comment = comments_[option_of(to)];
    if (comment.find(words) == std::string::npos) comment += (comment.empty() ? "" : ", ") + words;
  }
  std::map<std::string, std::string> comments_;
};

/// What cannot be converted, as comments: options at the place of the option, flags without an option at the end.
void shut(const flags::Source& source, const options::Value& shown, flags::RecipeText& around) {
  for (const auto& flag : source.flags) {
    if (is_taken(flag)) continue;
    const auto before = around.shut.size();
    if (flag.status == flags::FlagStatus::planned)
      for (const auto* options : {&flag.to, &flag.implied})
        for (const auto& to : *options)
          if (shown.at(to))
            around.shut[to] = text(flag.given.flag, " is ", flags::word_of(flag.status), ": ", flag.why);
    if (around.shut.size() > before) continue;
    if (around.tail.empty()) around.tail.emplace_back("Not taken over:");
    std::string values;
    for (const auto& value : flag.given.values) values += " " + value;
    around.tail.push_back(text("  ", flag.given.flag, values, "  # ", flags::word_of(flag.status), ": ", flag.why));
  }
  for (const auto& one : source.undecided) {
    if (around.tail.empty()) around.tail.emplace_back("Not taken over:");
    around.tail.push_back(text("  ", text(one.at), ": ", flags::text_of(one), "; ", flags::remedy_for(one)));
    for (const auto& flag : one.otherwise) {
      std::string values;
      for (const auto& value : flag.values) values += " " + value;
      around.tail.push_back(
          text("  ", flag.flag, values, "  # undecided: where '", one.condition, "' falls otherwise"));
    }
  }
}

/// Defaults of the other program that have no effect in this run are not written, such as loss scale options without
/// fp16.
void drop_idle_defaults(options::Value& tree, const recipe::Registries& registries) {
  options::Report unheard;
  const auto idle = recipe::read_recipe(tree, registries, unheard).without_effect();
  for (auto& [name, group] : tree.fields)
    std::erase_if(group.fields, [&idle, group_name = name](const auto& field) {
      return field.value.origin.source.find(" not given") != std::string::npos &&
             std::any_of(idle.begin(), idle.end(),
                         [&](const auto& one) { return one.option == group_name + "." + field.name; });
    });
}

/// Whether a run may take what its recipe leaves out from the folder that it loads, as from the config.json of Hugging
/// Face Transformers. A folder that is not here may be such a one.
bool takes_model_of_folder(const options::Value& tree, const recipe::Registries& registries) {
  const auto *folder = tree.at("training_config.load_checkpoint"), *own = tree.at("training_config.output_dir");
  if (folder == nullptr || folder->kind != options::Value::Kind::scalar || folder->scalar.empty()) return false;
  if (own != nullptr && own->scalar == folder->scalar) return false;  // the checkpoints of the run itself
  const auto* format = registries.formats.of(folder->scalar);
  if (format == nullptr) return !fs::exists(folder->scalar);
  try {
    std::vector<std::string> unheard;
    return format->model_config(folder->scalar, registries.mappings, unheard).has_value();
  } catch (const Error&) {
    return true;
  }
}

/// Writes what was given of the model although it is the default: what a recipe leaves out is taken from the folder.
void keep_what_was_given(const options::Value& tree, const options::Facts& facts, options::Value& shown) {
  for (const std::string group : {"model_config", "vision_config", "moe_config"})
    if (const auto* options = tree.find(group))
      for (const auto& [name, value] : options->fields) {
        const auto path = group + "." + name;
        const auto* option = flags::option_at(path, facts);
        if (shown.at(path) == nullptr && (option == nullptr || !option->planned)) shown.set(path, value);
      }
}

std::string recipe_text(const flags::Source& source, const std::string& name, const std::string& recipe,
                        const options::Facts& facts, const recipe::Registries& registries) {
  auto tree = source.tree;
  drop_idle_defaults(tree, registries);
  const bool has_folder = takes_model_of_folder(tree, registries);
  // A base would say what the folder says otherwise.
  const auto model = has_folder ? flags::KnownModel{} : flags::known_model(tree, facts);
  flags::answer_base(tree, model.tree, facts);
  auto shown = flags::what_differs(tree, model.tree, facts);
  if (has_folder) keep_what_was_given(tree, facts, shown);
  flags::RecipeText around{flags::head_of(source, name, recipe), model.name};
  around.comments = Comments(source, shown).all();
  shut(source, shown, around);
  flags::make_paths_variables(shown);
  return flags::write_recipe(shown, facts, around);
}

/// Keeps a file that the user may have edited: renames `file` to `<file>.<n>` with the first unused n.
void keep_older(const fs::path& file) {
  int number = 1;
  const auto kept = [&] { return fs::path(text(file.string(), ".", number)); };
  while (fs::exists(fs::symlink_status(kept()))) ++number;
  rename_or_exchange(file, kept());
  convert_logger.info(
      text("note: ", file.string(), " was there with other content, which is now in ", kept().string()));
}

/// The name may be that of a device or a pipe, or of a link to a file elsewhere.
void write(const std::string& file, const std::string& words) {
  if (file.empty() || file == "-") {
    std::cout << words;
  } else if (!fs::is_regular_file(file)) {
    write_output(file, words);
  } else if (const auto path = fs::canonical(file); read_file(path) != words) {
    keep_older(path);
    write_file_atomic(path, words);
  }
}

/// Notes that are not in the table of flags.
void print_notes(const flags::Source& source, const options::Report& report) {
  for (const auto& note : report.notes())
    if (!tells_of_ignored_flag(note, source.flags)) convert_logger.info("note: " + note);
}

/// What depends on the caller of the script: conditions first, then values that become variables of the recipe.
void print_unknowns(const flags::Source& source) {
  for (const auto& one : source.undecided)
    convert_logger.warning(text(one.at, ": ", flags::text_of(one), "; ", flags::remedy_for(one)));
  for (const auto& line : flags::caller_values(source))
    convert_logger.info((source.undecided.empty() ? "note: " : "") + line);
}

/// A recipe in one of MindSpeed-Core-MS's forms.
void write_as_core_ms(const ConvertArguments& arguments, const recipe::Recipe& recipe, const options::Facts& facts,
                      CommandContext& context) {
  options::Report report;
  const bool nested = arguments.to == nested_form;
  const auto tree = nested ? flags::write_nested_core_ms(recipe.resolved, facts, context.mappings(), report)
                           : flags::write_flat_core_ms(recipe, context.mappings(), report);
  for (const auto& line : report.notes()) convert_logger.info("note: " + line);
  for (const auto& line : report.problems()) convert_logger.error(line);
  flags::RecipeText around{{text("From ", arguments.input[0], ", for MindSpeed-Core-MS, by tessera convert.")}, ""};
  if (!report.good()) around.head.emplace_back("Omitted, because it has no such key:");
  for (const auto& finding : report.findings()) around.head.push_back("  " + finding.message);
  if (!report.good() && !arguments.allow_refused) {
    context.exit_code = not_all_taken;
    convert_logger.error(
        "no recipe is written; with --allow-refused it is written without them, and lists them in comments");
    return;
  }
  write(arguments.out, flags::write_recipe(tree, facts, around));
}

/// A recipe as a launch script of the program that `--to` names.
void write_as_flags(const ConvertArguments& arguments, const recipe::Recipe& recipe, CommandContext& context) {
  const auto table =
      flags::FlagTable::named(arguments.to == "megatron" ? flags::FlagTable::usual : arguments.to, context.mappings());
  const auto flags = flags::write_flags(recipe, table, {});
  options::Report stops;
  if (table.name() == flags::FlagTable::usual)
    flags::check_megatron_rules(flags.flags, 0, table, context.registries, stops);
  std::vector<std::string> head{text("From ", arguments.input[0], ", for ", table.doc(), ", by tessera convert.")};
  const auto tell = [&head](const std::string& what, const std::vector<options::Finding>& findings) {
    if (!findings.empty()) head.push_back(what);
    for (const auto& finding : findings) {
      convert_logger.error(options::text_of(finding));
      head.push_back("  " + finding.message);
    }
  };
  tell("Omitted, because there is no such flag:", flags.lost);
  tell("Not accepted by that program:", stops.findings());
  if ((!flags.lost.empty() || !stops.good()) && !arguments.allow_refused) {
    context.exit_code = not_all_taken;
    convert_logger.error("no script is written; with --allow-refused it is written, and lists this in comments");
    return;
  }
  const auto ranks = parallel::fewest_ranks(recipe.parallel);
  write(arguments.out, flags::write_script(flags, text("torchrun --nproc_per_node ", ranks), "pretrain_gpt.py", head));
}

void add_files(const options::Value& value, std::set<std::string>& files) {
  files.insert(value.origin.source);
  for (const auto& item : value.items) add_files(item, files);
  for (const auto& field : value.fields) add_files(field.value, files);
}

/// No output may be a file that was read: the input, its bases, scripts that it reads.
void check_outputs(const ConvertArguments& arguments, const flags::Source& source) {
  std::set<std::string> files(arguments.input.begin(), arguments.input.end());
  add_files(source.tree, files);
  files.insert(source.files.begin(), source.files.end());
  std::vector<std::filesystem::path> outputs;
  for (const auto& file : {arguments.out, arguments.report})
    if (!file.empty() && file != "-") outputs.emplace_back(file);
  refuse_overwriting(std::vector<std::filesystem::path>(files.begin(), files.end()), outputs);
}

/// A recipe has only options that are known: none is lost without a word. What it lacks, a base may give.
void check_names(const flags::Source& source, const recipe::Registries& registries, options::Report& report) {
  if (source.kind != flags::Source::Kind::recipe && source.kind != flags::Source::Kind::nested) return;
  if (!report.good()) return;
  options::Report heard;
  heard.incomplete();
  recipe::read_recipe(source.tree, registries, heard);
  for (const auto& finding : heard.findings()) report.problem(finding);
}

void write_recipe_of_adapter(const ConvertArguments& arguments, const std::string& folder, const options::Facts& facts,
                             const options::Mappings& mappings) {
  if (!arguments.to.empty() || !arguments.report.empty() || !arguments.foreign.from.empty())
    throw ConfigError(text(arguments.input[0], ": is an adapter of PEFT, for which convert takes only --output; leave ",
                           !arguments.to.empty()       ? "--to"
                           : !arguments.report.empty() ? "--report"
                                                       : "--from",
                           " out"));
  write(arguments.out, recipe_of_adapter(folder, facts, mappings));
}

/// A recipe without what a file says would be another run.
void must_have_files(const flags::Source& source) {
  std::string all;
  for (const auto& problem : source.broken_files) all += (all.empty() ? "" : "\n") + problem;
  if (!all.empty()) throw ConfigError(all);
}

void convert(const ConvertArguments& arguments, CommandContext& context) {
  const auto facts = recipe::all_facts(context.registries);
  const auto mappings = context.mappings();
  const bool flags = arguments.input.front().rfind("-", 0) == 0;
  if (!flags && arguments.input.size() > 1)
    throw ConfigError(text("convert takes one file; remove '", arguments.input[0], "' and '", arguments.input[1],
                           "', or put flags after --"));
  if (const auto folder = flags ? "" : adapter_folder(arguments.input[0]); !folder.empty())
    return write_recipe_of_adapter(arguments, folder, facts, mappings);
  const auto name = flags ? "the command line" : arguments.input[0];
  options::Report report;
  const auto options = source_options(arguments.foreign);
  auto source = flags ? flags::read_flags(arguments.input, options, facts, mappings, report)
                      : flags::read_source(arguments.input[0], options, facts, mappings, report);
  take_model_of_folder(source, context, report);
  check_outputs(arguments, source);
  if (source.flags.empty()) check_names(source, context.registries, report);
  if (!arguments.to.empty()) {
    auto tree = source.tree;
    flags::expand_unknowns(tree, report);
    const auto recipe = recipe::read_recipe(tree, context.registries, report);
    report.must_be_good();
    if (arguments.to == flat_form || arguments.to == nested_form)
      return write_as_core_ms(arguments, recipe, facts, context);
    return write_as_flags(arguments, recipe, context);
  }
  const auto recipe = arguments.out.empty() || arguments.out == "-" ? "recipe.yaml" : arguments.out;
  if (!arguments.report.empty()) write(arguments.report, flags::report_json(source, name, recipe, report));
  print_notes(source, report);
  if (source.flags.empty()) report.must_be_good();
  must_have_files(source);
  convert_logger.info(flags::report_table(source, arguments.verbose));
  for (const auto& stop : flags::megatron_stops(source, context.registries))
    if (stop.at.source != flags::no_flag) convert_logger.info("note: " + options::text_of(stop));
  print_unknowns(source);
  const bool all = source.undecided.empty() && std::all_of(source.flags.begin(), source.flags.end(), is_taken);
  if (!all && !arguments.allow_refused) {
    context.exit_code = not_all_taken;
    convert_logger.error(
        "no recipe is written; with --allow-refused it is written, and lists in comments what is not converted");
    return;
  }
  write(arguments.out, recipe_text(source, name, recipe, facts, context.registries));
}

}  // namespace

void add_convert_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("convert", "Convert another program's launch script or flags to a recipe");
  const auto arguments = std::make_shared<ConvertArguments>();
  command
      ->add_option(
          "INPUT", arguments->input,
          "A launch script, a MODEL_ARGS file, a nested recipe, an adapter_config.json of PEFT or its folder; or after "
          "-- the flags themselves")
      ->required()
      ->type_name("");
  command->add_option("-o,--output", arguments->out, "Path of the recipe; default: standard output")->type_name("FILE");
  command
      ->add_option("--report", arguments->report,
                   "JSON file with the status of every flag: converted, ignored or refused")
      ->type_name("FILE");
  add_foreign_arguments(*command, arguments->foreign);
  command
      ->add_option("--to", arguments->to,
                   "Write for another program instead: a launch script (megatron, megatron@main, ...), or a recipe of "
                   "MindSpeed-Core-MS (mindspeed-core-ms, mindspeed-core-ms-nested)")
      ->type_name("PROGRAM")
      ->suggest({"megatron", flat_form, nested_form});
  command->add_flag("--allow-refused", arguments->allow_refused,
                    "Write unsupported flags to the recipe as comments, instead of failing");
  add_verbose_argument(*command, arguments->verbose);
  command->callback([arguments, &context] { convert(*arguments, context); });
}

}  // namespace tessera::cli
