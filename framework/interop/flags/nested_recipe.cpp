#include "framework/interop/flags/nested_recipe.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "framework/base/error.h"
#include "framework/interop/flags/flag_table.h"
#include "framework/interop/flags/python_number.h"
#include "framework/options/option_type.h"
#include "framework/options/same.h"

namespace tessera::flags {
namespace {

const char* const nested = "recipes/nested.yaml";
const char* const core_ms = "recipes/core_ms_flat.yaml";

std::string parent_of(const std::string& path) { return path.substr(0, std::min(path.rfind('.'), path.size())); }
std::string last_name_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

bool begins(const std::string& words, const std::string& with) { return words.rfind(with, 0) == 0; }

/// "a, b" or [a, b].
std::vector<options::Value> listed_values(const options::Value& value) {
  if (value.kind == options::Value::Kind::list) return value.items;
  std::vector<options::Value> all;
  std::string word;
  for (const char c : value.scalar + ",") {
    if (c == ',' && !word.empty()) all.push_back(options::Value::of(word, value.origin));
    if (c == ',') word.clear();
    if (c != ',' && c != ' ' && c != '\t') word += c;
  }
  return all;
}

/// true for True, yes and on; other words as they are.
std::string plain(const options::Value& value) {
  bool flag = false;
  return options::OptionType<bool>::read(value, flag) ? (flag ? "true" : "false") : text(value);
}

/// Their reader makes a number of 183_105.
options::Value as_number(options::Value value) {
  if (value.kind == options::Value::Kind::scalar) value.scalar = python_number(value.scalar);
  for (auto& item : value.items) item = as_number(std::move(item));
  return value;
}

bool is_called(const options::OptionFacts& option, const std::string& name) {
  return option.name == name || std::any_of(option.aliases.begin(), option.aliases.end(),
                                            [&name](const auto& alias) { return alias.name == name; });
}

/// Whether the option at `path`, which may be another name of it, takes no numbers: a folder may be called 2024_01.
bool takes_text(const std::string& path, const options::Facts& facts) {
  const auto dot = path.find('.');
  const auto group = facts.find(path.substr(0, dot));
  if (dot == std::string::npos || group == facts.end()) return false;
  const auto name = path.substr(dot + 1);
  for (const auto& schema : group->second)
    for (const auto& option : schema.options)
      if (is_called(option, name)) return !takes_numbers(option);
  return false;
}

bool is_empty(const options::Value& value) {
  return value.wrong || value.kind == options::Value::Kind::none ||
         (value.kind == options::Value::Kind::scalar && value.scalar.empty());
}

class Translation {
 public:
  Translation(const options::Value& table, const options::Value& tree, const options::Facts& facts,
              options::Report& report)
      : table_(table), tree_(tree), facts_(facts), report_(report) {
    for (const auto& [path, row] : table_.find("paths")->fields) {
      rows_[path] = &row;
      for (auto above = parent_of(path); maps_.insert(above).second;) above = parent_of(above);
    }
    out_.kind = options::Value::Kind::group;
    out_.origin = tree.origin;
  }

  options::Value run() {
    for (const auto& [name, value] : tree_.fields) take(name, value);
    if (const auto* defaults = table_.find("defaults"))
      for (const auto& one : defaults->items) assume(one);
    if (const auto* assumed = table_.find("assumed"))
      for (const auto& one : assumed->items)
        if (assume(one)) report_.note(tree_.origin, one.find("why")->scalar);
    overrule();
    return std::move(out_);
  }

 private:
  /// What stands at `path` of the tree.
  void take(const std::string& path, const options::Value& value) {
    const auto row = rows_.find(path);
    const auto every = rows_.find(parent_of(path) + ".*");
    if (row != rows_.end())
      follow(*row->second, path, value);
    else if (every != rows_.end())
      set(parent_of(every->second->find("to")->scalar) + "." + last_name_of(path), value);
    else if (maps_.count(path))
      take_map(path, value);
    else if (below_a_root(path))
      unknown(path, value);
    else
      set(path, value);  // ours
  }

  bool below_a_root(const std::string& path) const {
    const auto* roots = table_.find("roots");
    return roots && std::any_of(roots->items.begin(), roots->items.end(),
                                [&](const auto& root) { return begins(path, root.scalar + "."); });
  }

  void take_map(const std::string& path, const options::Value& value) {
    if (value.kind == options::Value::Kind::group)
      for (const auto& field : value.fields) take(path + "." + field.name, field.value);
    else if (!is_empty(value))
      report_.problem(value.origin, path, text(path, " is a map, not '", value, "'"),
                      "write its keys below it, indented");
  }

  void unknown(const std::string& path, const options::Value& value) {
    std::vector<std::string> beside;
    std::string elsewhere;
    for (const auto& [known, row] : rows_) {
      const auto inside = parent_of(path) + ".";
      if (begins(known, inside))
        beside.push_back(known.substr(inside.size(), known.find('.', inside.size()) - inside.size()));
      if (last_name_of(known) == last_name_of(path)) elsewhere = parent_of(known);
    }
    auto hint = options::did_you_mean(last_name_of(path), beside);
    if (hint.empty() && !elsewhere.empty()) hint = text("it belongs in ", elsewhere);
    std::string all;
    for (const auto& name : std::set<std::string>(beside.begin(), beside.end()))
      all += (all.empty() ? "" : ", ") + name;
    report_.problem(value.origin, path,
                    text("no key '", last_name_of(path), "' in ", parent_of(path), " of a nested recipe"),
                    hint.empty() ? "have " + all : hint);
  }

  void follow(const options::Value& row, const std::string& path, const options::Value& value) {
    if (is_empty(value)) return;
    if (const auto* noted = row.find("noted"))
      if (const auto* what = noted->find(plain(value)))
        report_.note(value.origin, text(path, " ", value, " ", what->scalar));
    if (const auto* means = row.find("means"))
      mean(*means, path, value);
    else if (const auto* list = row.find("operators"))
      operators(list->scalar, value);
    else if (const auto* why = row.find("ignored"))
      report_.note(value.origin, text(path, " is left out: ", why->scalar));
    else
      for (const auto& [kind, to] : row.fields) set(to.scalar, value);
  }

  void mean(const options::Value& means, const std::string& path, const options::Value& value) {
    std::string have;
    for (const auto& [word, settings] : means.fields) {
      have += (have.empty() ? "" : ", ") + word;
      if (word != plain(value)) continue;
      for (const auto& [option, setting] : settings.fields)
        set(option, options::Value::of(setting.scalar, value.origin));
      return;
    }
    report_.problem(value.origin, path, text(path, " is '", value, "', which has no counterpart"),
                    "take one of " + have);
  }

  void operators(const std::string& list, const options::Value& value) {
    const auto& known = table_.find("operators")->fields;
    std::vector<std::string> names;
    for (const auto& entry : known) names.push_back(entry.name);
    for (const auto& word : listed_values(value)) {
      const auto entry = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.name == word.scalar; });
      const auto [before, first] = operators_.insert({word.scalar, list});
      if (entry == known.end())
        report_.problem(word.origin, list + "_operators", text("no operator '", word, "'"),
                        options::did_you_mean(word.scalar, names));
      else if (!first && before->second != list)
        report_.problem(word.origin, list + "_operators",
                        text("'", word, "' is in fused_operators and in nofused_operators"), "take it out of one");
      else
        for (const auto& [option, setting] : entry->value.find(list)->fields)
          set(option, options::Value::of(setting.scalar, word.origin), true);
    }
  }

  /// A weak setting yields to any other; of two that are not, the higher layer wins.
  void set(const std::string& to, const options::Value& value, bool weak = false) {
    if (value.kind == options::Value::Kind::none && table_.find("nulls")) return;
    const auto* there = out_.at(to);
    const bool yields = there && weak_.count(to) != 0;
    if (value.kind == options::Value::Kind::group && !value.fields.empty()) {
      for (const auto& field : value.fields) set(to + "." + field.name, field.value, weak);
    } else if (!there || yields || (!weak && value.origin.layer > there->origin.layer)) {
      if (weak)
        weak_.insert(to);
      else
        weak_.erase(to);
      out_.set(to, takes_text(to, facts_) ? value : as_number(value));
    } else if (!weak && value.origin.layer == there->origin.layer && plain(value) != plain(*there)) {
      report_.problem(value.origin, to, text(to, " is ", value, " here, but ", *there, " by ", there->origin),
                      "keep one of them");
    }
  }

  /// Whether the file says something at `path`, which is one of theirs or of ours.
  bool is_given(const std::string& path) const {
    const options::Value* const values[] = {tree_.at(path), out_.at(path)};
    return std::any_of(std::begin(values), std::end(values),
                       [](const auto* value) { return value != nullptr && !is_empty(*value); });
  }

  /// Whether the conditions of a default hold.
  bool applies(const options::Value& one) const {
    if (const auto* any = one.find("if_given"))
      if (std::none_of(any->items.begin(), any->items.end(), [&](const auto& path) { return is_given(path.scalar); }))
        return false;
    const auto* values = one.find("if");
    return values == nullptr || std::all_of(values->fields.begin(), values->fields.end(), [&](const auto& field) {
             const auto* value = out_.at(field.name);
             return value != nullptr && options::same(*value, field.value);
           });
  }

  /// Whether it was used.
  bool assume(const options::Value& one) {
    if (!applies(one)) return false;
    auto origin = tree_.origin;
    origin.layer = std::max(origin.layer, 1);
    const auto& unless = one.find("unless")->items;
    if (std::any_of(unless.begin(), unless.end(), [&](const auto& option) { return out_.at(option.scalar); }))
      return false;
    if (const auto* settings = one.find("set"))
      for (const auto& [option, value] : settings->fields)
        if (!out_.at(option)) out_.set(option, options::Value::of(value.scalar, origin));
    if (const auto* copies = one.find("copy"))
      for (const auto& [option, from] : copies->fields)
        if (const auto* value = out_.at(from.scalar))
          out_.set(option, options::Value::of(value->scalar, value->origin));
    return true;
  }

  void overrule() {
    const auto* rules = table_.find("overruled");
    for (const auto& [by, options] : rules ? rules->fields : std::vector<options::Value::Field>{}) {
      const auto* reason = out_.at(by);
      if (!reason || plain(*reason) != "true") continue;
      for (const auto& option : options.items) {
        const auto* value = out_.at(option.scalar);
        if (!value) continue;
        report_.note(value->origin, text(option, " ", *value, " is overridden by ", by));
        drop(option.scalar);
      }
    }
  }

  void drop(const std::string& option) {
    for (auto& [name, group] : out_.fields)
      if (name == parent_of(option))
        std::erase_if(group.fields, [&](const auto& field) { return field.name == last_name_of(option); });
  }

  const options::Value& table_;
  const options::Value& tree_;
  const options::Facts& facts_;
  options::Report& report_;
  std::map<std::string, const options::Value*> rows_;
  std::set<std::string> maps_;                    ///< paths that hold paths
  std::map<std::string, std::string> operators_;  ///< the list in which a word stood
  std::set<std::string> weak_;
  options::Value out_;
};

}  // namespace

options::Value read_nested(const options::Value& tree, const options::Mappings& mappings, const options::Facts& facts,
                           options::Report& report) {
  const auto table = mappings.table(nested);
  return Translation(table, tree, facts, report).run();
}

options::Value read_core_ms(const options::Value& tree, const options::Mappings& mappings, const options::Facts& facts,
                            options::Report& report) {
  report.note(tree.origin, text("read as a recipe of MindSpeed-Core-MS, with its defaults, because of ",
                                mark_of_core_ms(tree, mappings)));
  const auto table = mappings.table(core_ms);
  return Translation(table, tree, facts, report).run();
}

std::string mark_of_core_ms(const options::Value& tree, const options::Mappings& mappings) {
  const auto table = mappings.table(core_ms);
  for (const auto& mark : table.find("marks")->items) {
    const auto& key = mark.find("key")->scalar;
    const auto* value = tree.at(key);
    if (!value || is_empty(*value)) continue;
    const auto* words = mark.find("words");
    if (!words) return key;
    for (const auto& word : words->items)
      if (word.scalar == value->scalar) return key + " " + word.scalar;
  }
  return "";
}

}  // namespace tessera::flags
