#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/interop/tables/config_table.h"

namespace tessera::tables {
namespace {

std::string words_of(const Json& json) { return json.is_string() ? json.string() : json.dump(); }

/// Nothing is said by null, and by false or nothing under a name that nobody knows.
bool says_nothing(const Json& json) { return json.is_null() || json == false || json.empty() || json == ""; }

constexpr int most_levels = 16;

/// Whether a value lies within more than `levels` lists and objects.
bool goes_deeper(const Json& json, int levels) {
  const auto deeper = [&](const Json& inner) { return levels == 0 || goes_deeper(inner, levels - 1); };
  if (json.is_array()) return std::any_of(json.begin(), json.end(), deeper);
  if (!json.is_object()) return false;
  const auto all = json.items();
  return std::any_of(all.begin(), all.end(), [&](const auto& member) { return deeper(member.value); });
}

/// Null when the text is not a JSON object or goes deeper than any real config.json.
Json parsed(const std::string& words) {
  auto json = parse_json(words);
  return !json.is_object() || goes_deeper(json, most_levels) ? Json() : json.sorted();
}

bool same_number(const std::string& a, const std::string& b) {
  const auto x = parse_json(a), y = parse_json(b);
  return x.is_number() && y.is_number() && x.get<double>() == y.get<double>();
}

/// Whether one of the items of `list` is the word.
bool names_word(const options::Value& list, const std::string& word) {
  return std::any_of(list.items.begin(), list.items.end(), [&](const auto& item) { return item.scalar == word; });
}

const std::string left_out_mark = " (left out)";  ///< behind a key in messages about its default

/// Reads settings by the rows of one or two tables, collecting what cannot be read.
class ConfigReader {
 public:
  ConfigReader(std::string file, const options::Value& family, const options::Value* common,
               const std::vector<std::string>& left_out)
      : file_(std::move(file)),
        family_(family.find("config")),
        flattened_(family.find("flattened")),
        rows_(family, common),
        left_out_(left_out),
        open_(common == nullptr) {
    out_.ours.kind = options::Value::Kind::group;
    if (const auto* defaults = family.find("defaults")) out_.ours.lay(*defaults);
  }

  TableReading read(const Json& json, const options::Value* needed) {
    root_ = &json;
    walk(json, "");
    for (const auto& [key, option, words] : weak_)
      if (set_by_.count(option) == 0) set(key, option, words);
    if (family_ != nullptr)
      for (const auto& [key, row] : family_->fields)
        if (!seen(key)) take_absent(key, row);
    if (needed != nullptr)
      for (const auto& key : needed->items)
        if (!out_.ours.at(key.scalar)) problems_ += text("\n  nothing in it says ", key.scalar);
    if (!problems_.empty()) throw ConfigError(text(file_, ":", problems_, remedy()));
    tell();
    return std::move(out_);
  }

 private:
  void walk(const Json& json, const std::string& above) {
    for (const auto& [name, value] : json.items()) {
      if (above.empty() && value.is_object() && is_flattened(name)) {
        walk(value, "");
        continue;
      }
      const auto key = above.empty() ? name : above + "." + name;
      if (is_left_out(key)) {
        left_out_found_.push_back(key);
        continue;
      }
      seen_.push_back(key);
      take(key, value);
    }
  }

  bool is_flattened(const std::string& name) const {
    return flattened_ != nullptr && std::any_of(flattened_->items.begin(), flattened_->items.end(),
                                                [&](const auto& item) { return item.scalar == name; });
  }

  void take(const std::string& key, const Json& value) {
    if (const auto* row = rows_.find(key)) return value.is_null() ? take_null(key, *row) : apply(key, *row, value);
    if (value.is_null()) return;
    if (rows_.without_effect(key))
      told_.push_back(key);
    else if (value.is_object())
      walk(value, key);
    else if (!open_ && !says_nothing(value))
      refuse(key, words_of(value), "no row of the tables in mappings/models says what it means");
  }

  /// A row of the family says what null stands for: a value; `none`: the option is not set; `absent`: the key is left
  /// out. Without this, or with `refused` in a table that is like another one, null is not a value of the key.
  void take_null(const std::string& key, const options::Value& row) {
    if (open_ || family_ == nullptr || family_->find(key) == nullptr || row.find("ignored") != nullptr) return;
    const auto* meaning = row.find("null_is");
    if (meaning == nullptr || meaning->scalar == "refused")
      return refuse(key, "null", "this is not a value of it; leave the key out for its default, or give a value");
    if (meaning->scalar == "absent") return take_absent(key, row);
    if (meaning->scalar != "none") return apply(key, row, meaning->scalar);
    if (const auto* to = row.find("to"); to != nullptr && to->kind == options::Value::Kind::scalar) unset(to->scalar);
  }

  /// What the family means where the key is left out.
  void take_absent(const std::string& key, const options::Value& row) {
    if (row.find("ignored") != nullptr) return;  // of a table that this one is like
    if (const auto* required = row.find("required"); required != nullptr) return check_required(key, row, *required);
    const auto* absent = row.find("absent");
    if (absent == nullptr) return;
    if (absent->kind == options::Value::Kind::none) {  // a default of the table that this one is like does not hold
      if (const auto* to = row.find("to")) unset(to->scalar);
      return;
    }
    if (row.find("only") != nullptr)
      check_only(key + left_out_mark, row, {absent->scalar});
    else
      apply(key + left_out_mark, row, absent->scalar);
  }

  /// A key that some words under its `by` keys need. `required: {word: ""}` refuses a file without it, `{word: option}`
  /// takes the value of another option of ours.
  void check_required(const std::string& key, const options::Value& row, const options::Value& required) {
    const auto* by = row.find("by");
    const auto* instead = by == nullptr ? nullptr : branch(*by, required);
    if (instead == nullptr) return;
    const auto word = words_of(*chosen_word(*by));
    if (instead->scalar.empty()) {
      problems_ += text("\n  ", key, " is left out: ", word, " needs it, and Transformers has no default");
      return;
    }
    const auto* value = out_.ours.at(instead->scalar);
    if (value == nullptr) return;
    out_.notes.push_back(text(file_, ": ", key, " is left out: ", *value, " is taken, which is ", instead->scalar,
                              ", as in Transformers 5"));
    apply(key, row, value->scalar);
  }

  void apply(const std::string& key, const options::Value& row, const Json& value) {
    if (row.find("ignored") != nullptr) return;
    if (row.find("only") != nullptr) {
      std::vector<std::string> items;
      if (value.is_array())
        for (const auto& item : value) items.push_back(words_of(item));
      else
        items.push_back(words_of(value));
      return check_only(key, row, items);
    }
    const auto* to = row.find("to");
    if (const auto* by = row.find("by"); by != nullptr && to != nullptr) {
      to = branch(*by, *to);
      if (to == nullptr) return;  // a word that has no use for this key
    }
    if (to == nullptr) throw ConfigError(text(row.origin, ": a row has 'to', 'only' or 'ignored'"));
    auto words = words_of(value);
    if (const auto* unset = row.find("unset"); unset != nullptr && names_word(*unset, words)) return;
    if (const auto* translation = row.find("words")) {
      const auto* ours = translation->find(words);
      if (ours == nullptr) return refuse(key, words, text("have ", *translation));
      words = ours->scalar;
      if (words.empty()) return;  // a word that says nothing about the option
    }
    if (row.find("weak") != nullptr) {
      weak_.push_back({key, to->scalar, words});
      return;
    }
    if (to->kind == options::Value::Kind::scalar) set(key, to->scalar, words);
    if (row.find("list") != nullptr) return set_list(key, to->scalar, value);
    for (const auto& item : to->items) set(key, item.scalar, words);
    if (const auto* also = row.find("also"))
      for (const auto& [name, constant] : also->fields) set(key, name, constant.scalar);
  }

  /// What `to` says for the word under one of the keys of `by`; null when it says nothing.
  const options::Value* branch(const options::Value& by, const options::Value& to) const {
    const auto* word = chosen_word(by);
    return word == nullptr ? nullptr : to.find(words_of(*word));
  }
  const Json* chosen_word(const options::Value& by) const {
    for (const auto& key : by.items)
      if (const auto* word = at(*root_, key.scalar);
          word != nullptr && !is_left_out(key.scalar) && !is_left_out(key.scalar.substr(0, key.scalar.find('.'))))
        return word;
    return nullptr;
  }
  bool is_left_out(const std::string& key) const {
    return std::find(left_out_.begin(), left_out_.end(), key) != left_out_.end();
  }
  static const Json* at(const Json& json, const std::string& path) {
    const auto dot = path.find('.');
    const auto* found = json.find(path.substr(0, dot));
    if (found == nullptr || found->is_null()) return nullptr;
    if (dot == std::string::npos) return &*found;
    return found->is_object() ? at(*found, path.substr(dot + 1)) : nullptr;
  }

  void set(const std::string& key, const std::string& option, const std::string& words) {
    const auto [before, fresh] = set_by_.emplace(option, std::pair(key, words));
    if (!fresh && before->second.second != words && !same_number(before->second.second, words))
      return refuse(key, words,
                    text("but ", before->second.first, " is ", before->second.second, ", and both mean ", option));
    out_.ours.set(option, options::Value::of(words, {file_, 0, "", 1}));
  }
  /// Gives an option that was set the items of a list of numbers.
  void set_list(const std::string& key, const std::string& option, const Json& value) {
    const options::Origin origin{file_, 0, "", 1};
    options::Value list;
    list.kind = options::Value::Kind::list;
    list.origin = origin;
    if (!value.is_array()) return refuse(key, words_of(value), "a list of numbers was expected");
    for (const auto& item : value) list.items.push_back(options::Value::of(words_of(item), origin));
    out_.ours.set(option, std::move(list));
  }
  /// Removes a default of the family, unless another key gives the option.
  void unset(const std::string& option) {
    if (set_by_.count(option) != 0) return;
    if (option.find('.') != std::string::npos && out_.ours.at(option) != nullptr)
      out_.ours.set(option, options::Value{});
    else
      std::erase_if(out_.ours.fields, [&](const auto& field) { return field.name == option; });
  }

  void check_only(const std::string& key, const options::Value& row, const std::vector<std::string>& given) {
    const auto& allowed = *row.find("only");
    for (const auto& words : given)
      if (!names_word(allowed, words)) {
        const auto* why = row.find("why");
        return refuse(key, words, why != nullptr ? why->scalar : "not implemented");
      }
  }

  void refuse(const std::string& key, const std::string& words, const std::string& why) {
    problems_ += text("\n  ", key, " is ", words, ": ", why);
    if (refused_.empty() && !key.ends_with(left_out_mark)) refused_ = key;
  }
  std::string remedy() const {
    if (refused_.empty()) return "";
    return text("\n  to read the file as if a key were not in it: --ignore-key ", refused_,
                ", or training_config.ignore_config_keys: [", refused_, "] in a recipe");
  }
  bool seen(const std::string& key) const { return std::find(seen_.begin(), seen_.end(), key) != seen_.end(); }

  void tell() {
    const auto note = [&](const std::vector<std::string>& keys, const char* why) {
      if (!keys.empty()) out_.notes.push_back(text(file_, ": ", why, joined(keys)));
    };
    note(told_, "ignored, because they do not change the model: ");
    note(left_out_found_, "read as if these keys were not in it, as asked: ");
    std::vector<std::string> absent;
    for (const auto& key : left_out_)
      if (std::find(left_out_found_.begin(), left_out_found_.end(), key) == left_out_found_.end())
        absent.push_back(key);
    note(absent, "has none of these keys, which are to be ignored: ");
  }

  std::string file_;
  const Json* root_ = nullptr;
  const options::Value *family_, *flattened_;
  ConfigRows rows_;
  const std::vector<std::string>& left_out_;  ///< keys that the user asks to ignore
  bool open_;                                 ///< keys without a row are left alone
  TableReading out_;
  std::vector<std::string> seen_, told_, left_out_found_;
  struct Weak {
    std::string key, option, words;
  };
  std::vector<Weak> weak_;  ///< rows that count where no other says the option
  std::map<std::string, std::pair<std::string, std::string>> set_by_;  ///< our option -> their key and what it says
  std::string problems_, refused_;                                     ///< refused_: the first key that was refused
};

}  // namespace

TableReading read_by_table(const std::string& json, const std::string& speaker, const options::Value& table,
                           const options::Value* common, const std::vector<std::string>& left_out) {
  const auto given = parsed(json);
  if (!given.is_object()) throw ConfigError(text(speaker, ": is not a JSON object"));
  return ConfigReader(speaker, table, common, left_out).read(given, table.find("needed"));
}

}  // namespace tessera::tables
