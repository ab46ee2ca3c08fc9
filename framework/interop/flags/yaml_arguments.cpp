#include "framework/interop/flags/yaml_arguments.h"

#include <algorithm>
#include <map>
#include <set>

#include "framework/base/error.h"
#include "framework/options/option_type.h"

namespace tessera::flags {
namespace {

const char* const file = "recipes/arguments.yaml";
const char* const argument_groups[] = {"language_model", "model_parallel"};

std::string spelled(std::string flag) {
  flag.erase(0, std::min(flag.find_first_not_of('-'), flag.size()));
  std::replace(flag.begin(), flag.end(), '-', '_');
  return flag;
}

bool is_empty_argument(const options::Value& value) {
  return value.wrong || value.kind == options::Value::Kind::none ||
         (value.kind == options::Value::Kind::scalar && value.scalar.empty());
}

/// A bare flag whose argument is true without it, as --no-rope-fusion.
bool switches_off(const FlagRow& row) {
  const auto name = spelled(row.flag);
  return name != row.dest && (name.rfind("no_", 0) == 0 || name.rfind("disable_", 0) == 0);
}

std::vector<std::string> words_of(const options::Value& value, FlagRow::Takes takes) {
  if (takes != FlagRow::Takes::many) return {text(value)};
  std::vector<std::string> all;
  if (value.kind == options::Value::Kind::list)
    for (const auto& item : value.items) all.push_back(text(item));
  else
    for (std::size_t at = 0; at < value.scalar.size();) {
      const auto end = std::min(value.scalar.find(' ', at), value.scalar.size());
      if (end > at) all.push_back(value.scalar.substr(at, end - at));
      at = end + 1;
    }
  return all;
}

/// A layer above those that flags come to.
void raise(options::Value& value) {
  value.origin.layer += 10;
  for (auto& item : value.items) raise(item);
  for (auto& field : value.fields) raise(field.value);
}

/// The names of one program's file, read into the flags that give them.
class Reading {
 public:
  /// `names`: the flags of `flags` that stand for a name of which no flag of theirs speaks.
  Reading(const options::Value& table, const FlagTable& flags, std::set<std::string> names, const options::Facts& facts,
          options::Report& report)
      : flags_(flags), names_(std::move(names)), facts_(facts), report_(report) {
    for (const auto* group : argument_groups)
      if (const auto* list = table.at(text("groups.", group)))
        for (const auto& name : list->items) home_[name.scalar] = group;
    if (const auto* list = table.at("groups.top_level_too"))
      for (const auto& name : list->items) top_level_too_.insert(name.scalar);
  }

  Conversion run(const options::Value& tree, const options::Value* overruled) {
    options::Value ours;
    ours.kind = options::Value::Kind::group;
    for (const auto& [name, value] : tree.fields) {
      const bool group =
          std::find(std::begin(argument_groups), std::end(argument_groups), name) != std::end(argument_groups);
      if (facts_.count(name))
        ours.fields.push_back({name, value});
      else if (group && value.kind == options::Value::Kind::group)
        for (const auto& field : value.fields) take(field.name, field.value, name);
      else if (group && !is_empty_argument(value))
        refuse(value, name, text(name, " is a map of arguments, not '", value, "'"), "write them below it, indented");
      else if (!group)
        take(name, value, "");
    }
    auto out = flags_.convert(given_, facts_, report_);
    out.flags.insert(out.flags.end(), refused_.begin(), refused_.end());
    for (const auto& [by, options] : overruled ? overruled->fields : std::vector<options::Value::Field>{})
      for (const auto& option : options.items) overrule(out.recipe, by, option.scalar);
    raise(ours);
    out.recipe.lay(std::move(ours));
    out.recipe.origin = tree.origin;
    return out;
  }

 private:
  void take(const std::string& name, const options::Value& value, const std::string& group) {
    if (value.kind == options::Value::Kind::group) {
      for (const auto& field : value.fields) take(name + "." + field.name, field.value, group);
      return;
    }
    const auto top = name.substr(0, name.find('.'));
    const auto home = home_.find(top);
    const auto meant = home == home_.end() ? std::string() : home->second;
    const auto rows = rows_of(name);
    if (rows.empty())
      unknown(name, value);
    else if (meant != group && !(group.empty() && top_level_too_.count(top)))
      refuse(value, name,
             text("'", name, "' stands in ", group.empty() ? "no group" : group, ", but belongs ",
                  meant.empty() ? "into none" : "into " + meant),
             "move it there");
    else if (!is_empty_argument(value))
      give(rows, name, value);
  }

  /// Their program sets `option` where `by` is true, whatever the file says.
  void overrule(options::Value& recipe, const std::string& by, const std::string& option) {
    const auto* reason = recipe.at(by);
    const auto* value = recipe.at(option);
    bool on = false;
    if (!reason || !value || !options::OptionType<bool>::read(*reason, on) || !on) return;
    report_.note(value->origin, text(option, " ", *value, " is overridden by ", by));
    const auto dot = option.find('.');
    for (auto& [name, group] : recipe.fields)
      if (name == option.substr(0, dot))
        std::erase_if(group.fields, [&](const auto& field) { return field.name == option.substr(dot + 1); });
  }

  std::vector<const FlagRow*> rows_of(const std::string& name) const {
    std::vector<const FlagRow*> all, own;
    for (const auto& row : flags_.rows())
      if (row.dest == name) (names_.count(row.flag) ? own : all).push_back(&row);
    return own.empty() ? all : own;
  }

  void unknown(const std::string& name, const options::Value& value) {
    std::vector<std::string> known;
    for (const auto& row : flags_.rows()) known.push_back(row.dest);
    const auto hint = options::did_you_mean(name, known);
    refuse(value, name, text("no argument '", name, "' of ", flags_.doc()), hint.empty() ? "leave it out" : hint);
  }

  /// A problem, which is also among the converted arguments: nothing is lost without a word.
  void refuse(const options::Value& value, const std::string& name, const std::string& message,
              const std::string& advice) {
    report_.problem(value.origin, name, message, advice);
    const bool plain = value.kind == options::Value::Kind::scalar;
    refused_.push_back({{name, plain ? Words{value.scalar} : Words{}, value.origin},
                        FlagStatus::unknown,
                        {},
                        {},
                        text(message, "; ", advice)});
  }

  void give(const std::vector<const FlagRow*>& rows, const std::string& name, const options::Value& value) {
    bool on = false;
    const bool is_bool = options::OptionType<bool>::read(value, on);
    const FlagRow* chosen = nullptr;
    bool bare = false;
    for (const auto* row : rows) {
      const bool none = row->takes == FlagRow::Takes::none;
      bare = bare || none;
      const bool fits = none ? is_bool && on != switches_off(*row) : true;
      if (fits && (!chosen || spelled(row->flag) == name)) chosen = row;
    }
    const options::Origin at{value.origin.source, value.origin.line, value.origin.base_of, value.origin.layer};
    if (chosen && chosen->takes == FlagRow::Takes::none)
      given_.push_back({chosen->flag, {}, at});
    else if (chosen)
      given_.push_back({chosen->flag, is_bool ? Words{on ? "true" : "false"} : words_of(value, chosen->takes), at});
    else if (!is_bool)
      refuse(value, name, text(name, " takes true / false, not '", value, "'"),
             bare ? "give one of them" : "leave it out");
  }

  using Words = std::vector<std::string>;

  const FlagTable& flags_;
  std::set<std::string> names_;
  const options::Facts& facts_;
  options::Report& report_;
  std::map<std::string, std::string> home_;  ///< the group that a name belongs into
  std::set<std::string> top_level_too_;      ///< names that may also stand outside of their group
  std::vector<GivenFlag> given_;
  std::vector<ConvertedFlag> refused_;
};

/// `row` instead of the one of that flag.
void put(options::Value& table, const options::Value::Field& row) {
  auto& flags = table.fields.back().value.fields;
  const auto there = std::find_if(flags.begin(), flags.end(), [&](const auto& f) { return f.name == row.name; });
  if (there == flags.end())
    flags.push_back(row);
  else
    there->value = row.value;
}

/// A table of mappings/flags/ with all rows of its bases.
options::Value rows_with_bases(const std::string& name, const options::Mappings& mappings) {
  const auto own = mappings.table("flags/" + name);
  options::Value all;
  if (const auto* base = own.find("base"))
    all = rows_with_bases(base->scalar, mappings);
  else
    all.fields = {{"name", {}}, {"doc", {}}, {"flags", {}}};
  all.kind = all.fields.back().value.kind = options::Value::Kind::group;
  all.fields[0].value = *own.find("name");
  all.fields[1].value = *own.find("doc");
  for (const auto& row : own.find("flags")->fields) put(all, row);
  return all;
}

bool has_name(const options::Value& tree, const std::string& name) {
  if (tree.find(name)) return true;
  return std::any_of(std::begin(argument_groups), std::end(argument_groups), [&](const auto* group) {
    const auto* map = tree.find(group);
    return map && map->find(name);
  });
}

}  // namespace

Conversion read_yaml_arguments(const options::Value& tree, const std::string& program,
                               const options::Mappings& mappings, const options::Facts& facts,
                               options::Report& report) {
  const auto table = mappings.table(file);
  const auto& own = *table.at("programs." + program);
  auto rows = rows_with_bases(own.find("flags")->scalar, mappings);
  std::set<std::string> names;
  for (const auto* more : {own.find("groups") ? table.find("names") : nullptr, own.find("names")})
    for (const auto& row : more ? more->fields : std::vector<options::Value::Field>{})
      names.insert(row.name), put(rows, row);
  const auto flags = FlagTable::from(rows);
  return Reading(own, flags, names, facts, report).run(tree, table.find("overruled"));
}

bool has_signs(const options::Value& tree, const options::Value& signs) {
  const auto there = [&tree](const options::Value& key) { return tree.find(key.scalar) || tree.at(key.scalar); };
  const auto& keys = signs.find("keys")->items;
  const auto* any = signs.find("any");
  return std::all_of(keys.begin(), keys.end(), there) &&
         (!any || std::any_of(any->items.begin(), any->items.end(), there));
}

std::string program_of_yaml_arguments(const options::Value& tree, const options::Mappings& mappings) {
  const auto table = mappings.table(file);
  const bool has_groups = std::any_of(std::begin(argument_groups), std::end(argument_groups),
                                      [&](const auto* group) { return tree.find(group); });
  std::string usual;
  for (const auto& [program, own] : table.find("programs")->fields) {
    if (own.find("keys")) {
      if (!has_groups && has_signs(tree, own)) return program;
      continue;
    }
    if (!has_groups) continue;
    const auto* marks = own.find("marks");
    if (marks && std::any_of(marks->items.begin(), marks->items.end(),
                             [&tree](const auto& name) { return has_name(tree, name.scalar); }))
      return program;
    if (!marks) usual = program;
  }
  return usual;
}

}  // namespace tessera::flags
