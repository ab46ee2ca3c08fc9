#include "framework/interop/flags/source.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/interop/flags/forms.h"
#include "framework/interop/flags/guess.h"
#include "framework/interop/flags/json_keys.h"
#include "framework/options/environment.h"
#include "framework/options/yaml.h"

namespace tessera::flags {
namespace {

namespace fs = std::filesystem;

bool is_yaml(const std::string& file) {
  const auto ending = fs::path(file).extension();
  return ending == ".yaml" || ending == ".yml";
}

/// Each scalar of a recipe, with the name of its option.
template <class See>
void each_scalar(options::Value& value, const std::string& name, const See& see) {
  if (value.kind == options::Value::Kind::scalar) see(name, value);
  for (auto& item : value.items) each_scalar(item, name, see);
  for (auto& field : value.fields) each_scalar(field.value, field.name, see);
}

std::string upper(std::string words) {
  for (auto& c : words) c = std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::toupper(c)) : '_';
  return words;
}

bool is_name(const std::string& words) {
  return !words.empty() && !std::isdigit(static_cast<unsigned char>(words[0])) &&
         std::all_of(words.begin(), words.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

/// Where the unknown that begins at words[at], a '$' or '`', ends.
std::size_t end_of_unknown(const std::string& words, std::size_t at) {
  if (words[at] == '`') return std::min(words.find('`', at + 1), words.size() - 1) + 1;
  const char open = at + 1 < words.size() ? words[at + 1] : ' ';
  if (open == '{' || open == '(') {
    int depth = 0;
    for (auto i = at + 1; i < words.size(); ++i) {
      depth += (words[i] == '{' || words[i] == '(') - (words[i] == '}' || words[i] == ')');
      if (depth == 0) return i + 1;
    }
    return words.size();
  }
  auto end = at + 1;
  while (end < words.size() && (std::isalnum(static_cast<unsigned char>(words[end])) || words[end] == '_')) ++end;
  return end;
}

/// The variable that replaces an unknown value of a script: "${NAME}", "$4", "$(date)".
std::string variable_of(const std::string& unknown, const std::string& option) {
  const bool braces = unknown.size() > 3 && unknown[1] == '{';
  const auto inside = braces ? unknown.substr(2, unknown.size() - 3) : unknown.substr(1);
  if (is_name(inside)) return inside;
  const auto dash = inside.find(":-");
  if (braces && dash != std::string::npos && is_name(inside.substr(0, dash))) return inside;
  if (!inside.empty() && std::all_of(inside.begin(), inside.end(), [](unsigned char c) { return std::isdigit(c); }))
    return "ARG_" + inside;
  return upper(option);
}

/// What to do about the ${NAME} in `words` that the environment does not have: ${ARG_3} is the third argument.
std::string remedy_for_unknowns(const std::string& words) {
  std::string answers;
  for (auto at = words.find("${"); at != std::string::npos; at = words.find("${", at + 1)) {
    auto name = words.substr(at + 2, end_of_unknown(words, at) - at - 3);
    if (!is_name(name) || std::getenv(name.c_str()) != nullptr) continue;
    const std::string argument = "ARG_";
    const bool positional = name.rfind(argument, 0) == 0;
    answers += (answers.empty() ? "" : " and ") +
               (positional ? text("--arg ", name.substr(argument.size()), "=VALUE") : text("--env ", name, "=VALUE"));
  }
  return answers.empty() ? "set it, or give --env NAME=value or --arg N=value" : "give " + answers;
}

std::string named(const std::string& words, const std::string& option) {
  std::string out;
  for (std::size_t i = 0; i < words.size();) {
    if (words[i] != '$' && words[i] != '`') {
      out += words[i++];
      continue;
    }
    const auto end = end_of_unknown(words, i);
    out += text("${", variable_of(words.substr(i, end - i), option), "}");
    i = end;
  }
  return out;
}

/// What a YAML file is, its bases and the environment aside. A file that is no YAML is a recipe that says so.
RecipeForm form_of_file(const std::string& file, const options::Mappings& mappings) {
  try {
    options::Report unheard;
    return form_of(options::parse_yaml(read_file(file), file, unheard), mappings);
  } catch (const std::exception&) {
    return RecipeForm::flat;
  }
}

Source::Kind kind_of(RecipeForm form) {
  switch (form) {
    case RecipeForm::nested:
    case RecipeForm::core_ms:
      return Source::Kind::nested;
    case RecipeForm::br_master:
    case RecipeForm::megatron_yaml:
    case RecipeForm::arguments:
      return Source::Kind::yaml_arguments;
    case RecipeForm::model_args:
      return Source::Kind::model_args;
    case RecipeForm::other:
      return Source::Kind::other;
    case RecipeForm::none:
    case RecipeForm::flat:
      break;
  }
  return Source::Kind::recipe;
}

Source::Kind kind_of(const std::string& file, const options::Mappings& mappings) {
  std::error_code failed;
  if (fs::is_directory(file, failed)) return Source::Kind::recipe;  // which says that it is one
  return is_yaml(file) ? kind_of(form_of_file(file, mappings)) : Source::Kind::script;
}

/// What would become of the flags of branches that were not taken.
void judge_elsewhere(Source& source, const FlagTable& table, const options::Facts& facts) {
  std::vector<GivenFlag> flags;
  for (const auto& flag : source.launch->elsewhere) flags.push_back(flag.given);
  options::Report unheard;
  auto converted = table.convert(flags, facts, unheard).flags;
  for (std::size_t i = 0; i < converted.size(); ++i)
    source.elsewhere.emplace_back(std::move(converted[i]), source.launch->elsewhere[i].condition);
}

/// Takes those flags out of `flags` that a condition decides which is not known. Flags that change nothing here stay:
/// conditions that decide no others do not matter.
std::vector<GivenFlag> take_undecided(Source& source, std::vector<GivenFlag>& flags, const FlagTable& table) {
  const auto has_effect = [&table](const std::string& flag) {
    const auto* row = table.find(flag);
    return row == nullptr || row->kind != FlagRow::Kind::ignored;
  };
  std::erase_if(source.undecided, [&](Undecided& one) {
    if (!one.decides_run()) return true;
    std::erase_if(one.flags, [&](const auto& flag) { return !has_effect(flag); });
    std::erase_if(one.otherwise, [&](const auto& flag) { return !has_effect(flag.flag); });
    return !one.decides_run();
  });
  std::vector<GivenFlag> decided, undecided;
  for (auto& flag : flags) {
    const bool open = std::any_of(source.undecided.begin(), source.undecided.end(), [&flag](const auto& one) {
      return std::find(one.flags.begin(), one.flags.end(), flag.flag) != one.flags.end();
    });
    (open ? undecided : decided).push_back(std::move(flag));
  }
  flags = std::move(decided);
  return undecided;
}

/// Adds the flags that an unknown condition decides, as undecided, and reports each such condition as a problem.
void tell_undecided(Source& source, const std::vector<GivenFlag>& flags, options::Report& report) {
  for (const auto& one : source.undecided) {
    report.problem(one.at, "", text_of(one), remedy_for(one));
    for (const auto& flag : flags)
      if (std::find(one.flags.begin(), one.flags.end(), flag.flag) != one.flags.end() &&
          std::none_of(source.flags.begin(), source.flags.end(), [&flag](const auto& known) {
            return known.status == FlagStatus::undecided && known.given.flag == flag.flag;
          }))
        source.flags.push_back(
            {flag, FlagStatus::undecided, {}, {}, text("by '", one.condition, "', line ", one.at.line)});
  }
  if (!source.undecided.empty()) report.incomplete();  // what is missing now is no news
}

/// Exported variables that the table has rows for, as flags.
void add_environment(const Launch& launch, const FlagTable& table, std::vector<GivenFlag>& flags) {
  for (const auto& [name, value] : launch.environment)
    if (const auto key = "export " + name; table.find(key)) flags.push_back({key, {value}, launch.at});
}

/// `script`: the file that the flags are from; empty: none.
void convert_flags(Source& source, std::vector<GivenFlag> flags, const std::string& script, const options::Facts& facts,
                   const options::Mappings& mappings, options::Report& report) {
  const auto table = FlagTable::named(source.from, mappings);
  const auto undecided = take_undecided(source, flags, table);
  options::Report files;
  flags = with_keys_of_files(flags, table, script, files);
  source.broken_files = files.problems();
  report.add(files);
  if (source.launch) add_environment(*source.launch, table, flags);
  auto converted = table.convert(flags, facts, report);
  source.tree = std::move(converted.recipe);
  source.flags = std::move(converted.flags);
  if (source.launch && source.tree.origin.source == "default") source.tree.origin = source.launch->at;
  name_unknowns(source.tree);
  tell_undecided(source, undecided, report);
  if (source.launch && !source.launch->elsewhere.empty()) judge_elsewhere(source, table, facts);
}

/// What --from says, else what the flags show.
void choose_table(Source& source, const SourceOptions& options, const Launch& launch,
                  const options::Mappings& mappings) {
  if (options.from.empty()) {
    const auto guess = guess_source(launch, mappings);
    source.from = guess.table;
    source.from_why = guess.why;
  } else {
    source.from = options.from;
    source.from_why = "--from says so";
  }
}

void read_launch(Source& source, const std::string& file, const SourceOptions& options, const options::Facts& facts,
                 const options::Mappings& mappings, options::Report& report) {
  auto reading = read_launches(file, options.inputs, mappings, report);
  source.launches = reading.launches.size();
  source.files = std::move(reading.read);
  source.unknowns = std::move(reading.unknowns);
  source.undecided = std::move(reading.undecided);
  if (reading.launches.empty()) {
    if (!report.good()) report.incomplete();  // what is missing now is no news, and a default is no value of the run
    return;
  }
  source.launch = std::move(reading.launches.front());
  if (source.launches > 1)
    report.note(source.launch->at, text("this is the first of ", source.launches,
                                        " training runs that the script starts; only this one is read"));
  for (const auto& word : source.launch->stray)
    report.note(source.launch->at, text("'", word, "' belongs to no flag and is ignored"));
  choose_table(source, options, *source.launch, mappings);
  convert_flags(source, source.launch->flags, file, facts, mappings, report);
}

}  // namespace

std::string name_of(Source::Kind kind) {
  switch (kind) {
    case Source::Kind::recipe:
      return "recipe";
    case Source::Kind::script:
      return "launch script";
    case Source::Kind::model_args:
      return "MODEL_ARGS";
    case Source::Kind::yaml_arguments:
      return "arguments in YAML";
    case Source::Kind::nested:
      return "nested recipe";
    case Source::Kind::other:
      return "another program's configuration";
    case Source::Kind::flags:
      break;
  }
  return "flags";
}

bool is_foreign(const std::string& file, const options::Mappings& mappings) {
  return kind_of(file, mappings) != Source::Kind::recipe;
}

Source read_source(const std::string& file, const SourceOptions& options, const options::Facts& facts,
                   const options::Mappings& mappings, options::Report& report) {
  Source source;
  source.kind = kind_of(file, mappings);
  if (source.kind == Source::Kind::script || source.kind == Source::Kind::model_args) {
    read_launch(source, file, options, facts, mappings, report);
  } else {
    options::Report unheard;  // of a file that is not read
    const auto tree = options::read_yaml(file, {}, source.kind == Source::Kind::other ? unheard : report);
    if (const auto form = form_of(tree, mappings);
        (form == RecipeForm::none && report.good()) || form == RecipeForm::other)
      refuse_form(tree, mappings, report);
    auto read = read_any(tree, mappings, facts, report);
    source.tree = std::move(read.recipe);
    source.flags = std::move(read.flags);
  }
  return source;
}

Source read_flags(const std::vector<std::string>& argv, const SourceOptions& options, const options::Facts& facts,
                  const options::Mappings& mappings, options::Report& report) {
  Source source;
  source.kind = Source::Kind::flags;
  Launch launch;
  launch.flags = flags_of(argv);
  choose_table(source, options, launch, mappings);
  convert_flags(source, launch.flags, "", facts, mappings, report);
  return source;
}

void name_unknowns(options::Value& tree) {
  each_scalar(tree, "",
              [](const std::string& option, options::Value& value) { value.scalar = named(value.scalar, option); });
}

void expand_unknowns(options::Value& tree, options::Report& report) {
  each_scalar(tree, "", [&report](const std::string& option, options::Value& value) {
    try {
      value.scalar = options::expand_environment(value.scalar);
    } catch (const ConfigError& error) {
      report.problem(value.origin, option, error.what(), remedy_for_unknowns(value.scalar));
      value.wrong = true;
    }
  });
}

}  // namespace tessera::flags
