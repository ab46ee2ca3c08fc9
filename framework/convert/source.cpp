#include "framework/convert/source.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/convert/forms.h"
#include "framework/convert/megatron_rules.h"
#include "framework/convert/model_args.h"
#include "framework/options/environment.h"
#include "framework/options/yaml.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool is_yaml(const std::string& file) {
  const auto ending = fs::path(file).extension();
  return ending == ".yaml" || ending == ".yml";
}

/// Each scalar of a recipe, with the name of its option.
template <class See>
void each_scalar(Value& value, const std::string& name, const See& see) {
  if (value.kind == Value::Kind::scalar) see(name, value);
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

/// The variable that stands for an unknown as a script has it: "${NAME}", "$4", "$(date)".
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
RecipeForm form_of(const std::string& file, const Mappings& mappings) {
  try {
    Report unheard;  // the reader of that form tells it again
    return form_of(parse_yaml(without_repeated_flags(read_file(file), file, unheard), file), mappings);
  } catch (const std::exception&) {
    return RecipeForm::flat;
  }
}

Source::Kind kind_of(RecipeForm form) {
  switch (form) {
    case RecipeForm::nested:
      return Source::Kind::nested;
    case RecipeForm::br_master:
    case RecipeForm::megatron_yaml:
      return Source::Kind::yaml_arguments;
    case RecipeForm::model_args:
      return Source::Kind::model_args;
    case RecipeForm::none:
    case RecipeForm::flat:
      break;
  }
  return Source::Kind::recipe;
}

Source::Kind kind_of(const std::string& file, const Mappings& mappings) {
  std::error_code failed;
  if (fs::is_directory(file, failed)) return Source::Kind::recipe;  // which says that it is one
  return is_yaml(file) ? kind_of(form_of(file, mappings)) : Source::Kind::script;
}

void convert_flags(Source& source, const std::vector<GivenFlag>& flags, const Facts& facts, const Mappings& mappings,
                   Report& report) {
  const auto table = FlagTable::named(source.from, mappings);
  auto converted = table.convert(flags, facts, report);
  source.tree = std::move(converted.recipe);
  source.fates = std::move(converted.fates);
  name_unknowns(source.tree);
  Report rules;
  if (source.from == FlagTable::usual) check_megatron_rules(flags, 0, rules);
  source.stops = rules.findings();
}

void choose_table(Source& source, const SourceOptions& options) {
  source.from = options.from.empty() ? FlagTable::usual : options.from;
  source.from_why = options.from.empty() ? "usual" : "--from says so";
}

void judge_elsewhere(Source& source, const Facts& facts, const Mappings& mappings) {
  std::vector<GivenFlag> flags;
  for (const auto& flag : source.launch->elsewhere) flags.push_back(flag.given);
  if (flags.empty()) return;
  Report unheard;
  auto fates = FlagTable::named(source.from, mappings).convert(flags, facts, unheard).fates;
  for (std::size_t i = 0; i < fates.size(); ++i)
    source.elsewhere.emplace_back(std::move(fates[i]), source.launch->elsewhere[i].condition);
}

void read_launch(Source& source, const std::string& file, const SourceOptions& options, const Facts& facts,
                 const Mappings& mappings, Report& report) {
  auto reading = read_launches(file, options.inputs, mappings, report);
  source.launches = reading.launches.size();
  source.unknowns = std::move(reading.unknowns);
  if (reading.launches.empty()) return;
  source.launch = std::move(reading.launches.front());
  if (source.launches > 1)
    report.note(source.launch->at, text("this is the first of ", source.launches,
                                        " trainings that are started here; the rest are not read"));
  for (const auto& word : source.launch->stray)
    report.note(source.launch->at, text("'", word, "' belongs to no flag and is passed over"));
  choose_table(source, options);
  convert_flags(source, source.launch->flags, facts, mappings, report);
  judge_elsewhere(source, facts, mappings);
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
    case Source::Kind::flags:
      break;
  }
  return "flags";
}

bool is_foreign(const std::string& file, const Mappings& mappings) {
  return kind_of(file, mappings) != Source::Kind::recipe;
}

Source read_source(const std::string& file, const SourceOptions& options, const Facts& facts, const Mappings& mappings,
                   Report& report) {
  Source source;
  source.kind = kind_of(file, mappings);
  if (source.kind == Source::Kind::script || source.kind == Source::Kind::model_args) {
    read_launch(source, file, options, facts, mappings, report);
  } else {
    auto read = read_any(read_yaml(file, {}, report), mappings, facts, report);
    source.tree = std::move(read.recipe);
    source.fates = std::move(read.fates);
  }
  return source;
}

Source read_flags(const std::vector<std::string>& argv, const SourceOptions& options, const Facts& facts,
                  const Mappings& mappings, Report& report) {
  Source source;
  source.kind = Source::Kind::flags;
  choose_table(source, options);
  convert_flags(source, flags_of(argv), facts, mappings, report);
  return source;
}

void name_unknowns(Value& tree) {
  each_scalar(tree, "", [](const std::string& option, Value& value) { value.scalar = named(value.scalar, option); });
}

void expand_unknowns(Value& tree, Report& report) {
  each_scalar(tree, "", [&report](const std::string& option, Value& value) {
    try {
      value.scalar = expand_environment(value.scalar);
    } catch (const ConfigError& error) {
      report.problem(value.origin, option, error.what(), "set it, or give --env NAME=value or --arg N=value");
      value.wrong = true;
    }
  });
}

}  // namespace tessera
