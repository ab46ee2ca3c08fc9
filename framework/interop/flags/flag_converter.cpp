// The conversion of a command line by a table's rows.
#include <algorithm>
#include <set>

#include "framework/base/error.h"
#include "framework/interop/flags/derived_flags.h"
#include "framework/interop/flags/flag_table.h"
#include "framework/interop/flags/python_number.h"
#include "framework/options/same.h"

namespace tessera::flags {
namespace {

constexpr int not_given = 1, implied = 2, given = 3, overruling = 4, of_file = 5;  // layers
const std::string left_out_mark = " not given";                                    // behind a flag, as a source

/// Whether `value` asks for what is not built.
bool asks_for_planned(const std::string& to, const options::Value& value, const options::Facts& facts) {
  const auto* option = option_at(to, facts);
  if (!option || !option->planned) return false;
  const auto& neutral = option->neutral;
  const auto words = text(value);
  if (std::find(neutral.begin(), neutral.end(), words) != neutral.end()) return false;
  char *end = nullptr, *other_end = nullptr;  // 0 is 0.0
  const auto number = std::strtod(words.c_str(), &end);
  return words.empty() || *end != 0 || std::none_of(neutral.begin(), neutral.end(), [&](const auto& n) {
           return !n.empty() && std::strtod(n.c_str(), &other_end) == number && *other_end == 0;
         });
}

/// Whether a table's word leads to one that the option at `to` does not have yet. The words of a list of words, as
/// "list of core_attn / mlp", stand in its type.
bool lacks_word(const std::string& to, const std::string& word, const options::Facts& facts) {
  const auto* option = option_at(to, facts);
  if (!option) return false;
  const auto& choices = option->choices;
  if (!choices.empty()) return std::find(choices.begin(), choices.end(), word) == choices.end();
  return option->type.find(" / ") != std::string::npos &&
         (option->type + " ").find(" " + word + " ") == std::string::npos;
}

/// The choice that leaves `option` without effect, as "optimizer_type sgd"; empty when it has one.
std::string barred_by(const std::string& option, const options::Value& group,
                      const std::vector<options::SchemaFacts>& schemas) {
  std::string bar;
  for (const auto& schema : schemas) {
    if (std::none_of(schema.options.begin(), schema.options.end(), [&](const auto& o) { return o.name == option; }))
      continue;
    const auto* chosen = group.find(schema.key);
    if (!chosen || chosen->scalar == schema.type) return "";
    bar = schema.key + " " + chosen->scalar;
  }
  return bar;
}

void leave_out_unchosen(options::Value& recipe, const options::Facts& facts, options::Report& report) {
  for (auto& [name, group] : recipe.fields) {
    const auto schemas = facts.find(name);
    if (schemas == facts.end()) continue;
    std::erase_if(group.fields, [&report, &schemas, group = group](const auto& field) {
      const auto bar = barred_by(field.name, group, schemas->second);
      auto settings = field.value.items;  // of a list each item has its own flag
      settings.push_back(field.value);
      for (const auto& setting : settings)
        if (!bar.empty() && setting.origin.layer >= given)
          report.note(setting.origin, text(field.name, " has no effect with ", bar));
      return !bar.empty();
    });
  }
}

options::Value list_of(const std::vector<std::string>& values, const options::Origin& origin) {
  options::Value list;
  list.kind = options::Value::Kind::list;
  list.origin = origin;
  for (const auto& value : values) list.items.push_back(options::Value::of(value, origin));
  return list;
}

/// One command line on its way into a recipe.
class Converter {
 public:
  Converter(const FlagTable& table, const options::Facts& facts, options::Report& report)
      : table_(table), facts_(facts), report_(report) {
    for (const auto& row : table_.rows())
      if (!row.absent.empty() && row.section.empty())
        out_.recipe.set(row.to, single(row.to, row.absent, {row.flag + left_out_mark, 0, "", not_given}));
  }

  /// Keys of files that are among the flags; the others have the values that the program assumes.
  void expect(const std::vector<GivenFlag>& flags) {
    for (const auto& flag : flags) given_keys_.insert(flag.flag);
  }

  void take(const GivenFlag& flag) {
    const auto* row = table_.find(flag.flag);
    layer_ = row && !row->section.empty() ? of_file : given;
    if (refused_files_.count(flag.at.source) != 0) return;
    out_.flags.push_back({flag});
    if (!row)
      end(FlagStatus::unknown, flag.flag.starts_with("-") ? "unknown flag" : "unknown key",
          options::did_you_mean(flag.flag, table_.flags()));
    else if (row->kind == FlagRow::Kind::ignored)
      ignore(row->why);
    else if (row->kind == FlagRow::Kind::refused)
      end(FlagStatus::refused, row->why);
    else
      follow(*row);
    if (row && row->kind == FlagRow::Kind::keys) sections_.insert(row->keys);
    if (!row || !row->decides || out_.flags.back().status != FlagStatus::refused) return;
    refused_files_.insert(flag.at.source);
    sections_.erase(row->section);
  }

  Conversion finish() {
    for (const auto& section : sections_) take_absent(section);
    for (const auto& [index, row] : derived_) derive(index, *row);
    for (const auto& [index, row] : agreeing_) compare(out_.flags[index], row->to);
    for (const auto& row : table_.rows())
      if (!row.missing.empty() && !out_.recipe.at(row.to))
        report_.note({row.flag + left_out_mark, 0, "", not_given}, row.missing);
    std::erase_if(out_.flags, [](const auto& flag) {
      return flag.status == FlagStatus::mapped && flag.given.at.source.ends_with(left_out_mark);
    });
    leave_out_unchosen(out_.recipe, facts_, report_);
    return std::move(out_);
  }

 private:
  options::Origin origin() const {
    auto at = out_.flags.back().given.at;
    at.layer = layer_;
    return at;
  }

  /// Keys that are not in the file, although the map that they belong into is.
  void take_absent(const std::string& section) {
    for (const auto& row : table_.rows())
      if (row.section == section && !row.absent.empty() && given_keys_.count(row.flag) == 0 && has_map_of(row.flag))
        take({row.flag, {row.absent}, {row.flag + left_out_mark, 0, "", 0}});
  }

  bool has_map_of(const std::string& key) const {
    const auto map = key.substr(0, key.rfind('.') + 1);
    return std::any_of(given_keys_.begin(), given_keys_.end(), [&](const auto& one) { return one.starts_with(map); });
  }

  void ignore(const std::string& why) {
    out_.flags.back().status = FlagStatus::ignored;
    out_.flags.back().why = why;
    report_.note(origin(), message(why));
  }

  /// With the flag's name, where the place does not say it.
  std::string message(const std::string& why) const {
    const auto& flag = out_.flags.back().given;
    return flag.at.source == flag.flag ? why : text(flag.flag, ": ", why);
  }

  void end(FlagStatus status, const std::string& why, const std::string& hint = "") {
    out_.flags.back().status = status;
    out_.flags.back().why = hint.empty() ? why : why + "; " + hint;
    report_.problem(origin(), out_.flags.back().given.flag, message(why), hint);
  }

  /// Their parser makes numbers of words with int() and float(), which take more spellings than a recipe.
  std::vector<std::string> values_of(const FlagRow& row) const {
    auto values = out_.flags.back().given.values;
    const auto* option = option_at(row.to, facts_);
    if (row.kind == FlagRow::Kind::same && option && takes_numbers(*option))
      for (auto& value : values) value = python_number(value);
    return values;
  }

  void follow(const FlagRow& row) {
    const auto values = values_of(row);
    const auto value = joined(values, " ");
    if (row.takes == FlagRow::Takes::none && !values.empty())
      return end(FlagStatus::refused, text("takes no value, but '", value, "' follows"));
    if (row.takes == FlagRow::Takes::one && values.empty()) return end(FlagStatus::refused, "a value is missing");
    if (row.takes != FlagRow::Takes::many && values.size() > 1)
      report_.note(origin(), message(text("takes one value; the words '", value, "' are read as one")));
    for (const auto& [word, refusal] : row.refused_words)
      if (word == value) return end(FlagStatus::refused, text("'", word, "' is refused: ", refusal));
    for (const auto& [word, what] : row.noted)
      if (word == value) report_.note(origin(), message(text(value, " ", what)));
    const bool one_of_settings = !row.settings.empty() && row.kind != FlagRow::Kind::words;
    if (one_of_settings && !settings_of(row, value) && value.find('$') == std::string::npos)
      return end(FlagStatus::refused, text("no counterpart for '", value, "'"));
    if (row.kind == FlagRow::Kind::only && !is_one_of(row.only, value))
      return end(FlagStatus::refused,
                 text("'", value, "' is refused, only ", joined(row.only, " or "), " is accepted: ", row.why));
    imply(row, value);
    if (row.kind == FlagRow::Kind::derived) derived_.emplace_back(out_.flags.size() - 1, &row);
    if (row.kind == FlagRow::Kind::agrees) agreeing_.emplace_back(out_.flags.size() - 1, &row);
    if (row.kind == FlagRow::Kind::adds && value == "true") add_item(row);
    if (row.kind == FlagRow::Kind::adds && value != "true" && value != "false")
      return end(FlagStatus::refused, text("takes true or false, not '", value, "'"));
    if (row.kind == FlagRow::Kind::same && row.nullable && value == "null")
      set(row.to, null_value());
    else if (row.kind == FlagRow::Kind::same)
      set(row.to, row.takes == FlagRow::Takes::many && wants_list(row.to, values) ? list_of(values, origin())
                                                                                  : single(row.to, value, origin()));
    else if (row.kind == FlagRow::Kind::fixed)
      set(row.to, options::Value::of(row.fixed, origin()));
    else if (row.kind == FlagRow::Kind::words)
      set_words(row, row.takes == FlagRow::Takes::many ? values : std::vector<std::string>{value});
  }

  static bool is_one_of(const std::vector<std::string>& all, const std::string& value) {
    return std::any_of(all.begin(), all.end(), [&value](const auto& one) {
      return options::same(options::Value::of(one, {}), options::Value::of(value, {}));
    });
  }

  options::Value null_value() const {
    options::Value null;
    null.origin = origin();
    return null;
  }

  void add_item(const FlagRow& row) {
    const auto* there = out_.recipe.at(row.to);
    auto items = there && there->origin.layer == layer_ ? *there : list_of({}, origin());
    items.items.push_back(options::Value::of(row.item, origin()));
    set(row.to, std::move(items));
  }

  /// What a file says twice must be the same, also in one of our options.
  void compare(ConvertedFlag& flag, const std::string& option) {
    const auto value = joined(flag.given.values, " ");
    const auto* there = out_.recipe.at(option);
    if (!there || options::same(*there, options::Value::of(value, {}))) return;
    flag.status = FlagStatus::refused;
    flag.why = text("is ", value, ", but ", option, " is ", *there, " by ", there->origin, "; both must be the same");
    report_.problem(flag.given.at, flag.given.flag, text(flag.given.flag, ": ", flag.why), "");
  }

  void set_words(const FlagRow& row, const std::vector<std::string>& values) {
    std::vector<std::string> ours;
    std::string lacking;
    for (const auto& value : values) {
      const auto word =
          std::find_if(row.words.begin(), row.words.end(), [&](const auto& w) { return w.first == value; });
      for (const auto& [refused, why] : row.refused_words)  // of several words
        if (refused == value) return end(FlagStatus::refused, text("'", value, "' is refused: ", why));
      const bool unknown = value.find('$') != std::string::npos;  // what the caller will say
      if (word == row.words.end() && !unknown)
        return end(FlagStatus::refused, text("no counterpart for '", value, "'"));
      ours.push_back(word == row.words.end() ? value : word->second);
      if (!unknown && lacks_word(row.to, ours.back(), facts_)) lacking = value;
    }
    const bool list = row.takes == FlagRow::Takes::many && wants_list(row.to, values);
    set(row.to, list ? list_of(ours, origin()) : options::Value::of(ours[0], origin()));
    if (lacking.empty()) return;
    out_.flags.back().status = FlagStatus::planned;
    out_.flags.back().why = text(row.to, " has no '", lacking, "' yet.");
  }

  /// One word is a list only where the option is one: [5], but text_document.
  bool wants_list(const std::string& to, const std::vector<std::string>& values) const {
    const auto* option = option_at(to, facts_);
    return values.size() != 1 || !option || option->type.rfind("list", 0) == 0;
  }

  /// "127,0" and "(127, 0)" are two items where the option is a pair.
  options::Value single(const std::string& to, const std::string& value, const options::Origin& at) const {
    const auto* option = option_at(to, facts_);
    if (!option || option->type.rfind("list of 2 ", 0) != 0 || value.find(',') == std::string::npos)
      return options::Value::of(value, at);
    std::vector<std::string> items(1);
    for (const auto c : value)
      if (c == ',')
        items.emplace_back();
      else if (std::string("()[] ").find(c) == std::string::npos)
        items.back() += c;
    return list_of(items, at);
  }

  void note_planned(ConvertedFlag& flag, const std::string& to, const options::Value& value) const {
    if (!asks_for_planned(to, value, facts_)) return;
    flag.status = FlagStatus::planned;
    flag.why = option_at(to, facts_)->doc + " Not implemented yet.";
  }

  void set(const std::string& to, options::Value value) {
    auto& flag = out_.flags.back();
    (value.origin.layer == implied ? flag.implied : flag.to).push_back(to);
    note_planned(flag, to, value);
    const auto* there = out_.recipe.at(to);
    if (there && there->origin.layer > value.origin.layer)
      return report_.note(value.origin, text("overridden: another flag sets ", to, " ", *there));
    const bool beaten = there && value.origin.layer == of_file && there->origin.layer >= given &&
                        there->origin.layer < of_file && !options::same(*there, value);
    if (beaten)
      report_.note(value.origin, text(flag.given.flag, " takes precedence: ", to, " is ", value, ", not ", *there,
                                      " as a flag says"));
    out_.recipe.set(to, std::move(value));
  }

  using Settings = std::vector<std::pair<std::string, std::string>>;

  /// What the word says besides; null where its row says nothing of it.
  static const Settings* settings_of(const FlagRow& row, const std::string& word) {
    const auto found =
        std::find_if(row.settings.begin(), row.settings.end(), [&](const auto& s) { return s.first == word; });
    return found == row.settings.end() ? nullptr : &found->second;
  }

  /// Rows that depend on other flags, now that all of these are known.
  void derive(std::size_t index, const FlagRow& row) {
    auto& flag = out_.flags[index];
    try {
      for (const auto& [option, value] :
           derived_settings(row.rule, joined(flag.given.values, " "), out_.recipe, out_.flags)) {
        auto at = flag.given.at;
        at.layer = row.section.empty() ? given : of_file;
        if (option.empty()) {
          if (derived_notes_.insert(value).second) report_.note(at, value);  // once of two keys that are read together
          continue;
        }
        const bool is_list = option.ends_with("[]");
        const auto name = option.substr(0, option.size() - (is_list ? 2 : 0));
        auto made = is_list ? list_of(split_at_commas(value), at) : options::Value::of(value, at);
        if (value == "null") made.kind = options::Value::Kind::none;
        flag.to.push_back(name);
        note_planned(flag, name, made);
        out_.recipe.set(name, made);
      }
    } catch (const ConfigError& error) {
      const bool said = std::any_of(out_.flags.begin(), out_.flags.end(),
                                    [&error](const auto& other) { return other.why == error.what(); });
      flag.status = FlagStatus::refused;
      flag.why = error.what();
      if (said) return;  // by the other of two keys that are read together
      report_.problem(flag.given.at, flag.given.flag,
                      flag.given.at.source == flag.given.flag ? flag.why : text(flag.given.flag, ": ", flag.why), "");
    }
  }

  void imply(const FlagRow& row, const std::string& own_value) {
    auto settings = row.also;
    if (const auto* of_word = settings_of(row, own_value))
      settings.insert(settings.end(), of_word->begin(), of_word->end());
    for (const auto& option : row.also_to) settings.emplace_back(option, own_value);
    for (const auto& [option, value] : settings) {
      const auto* there = out_.recipe.at(option);
      if (there && there->origin.layer >= given) continue;
      auto at = origin();
      at.layer = implied;
      set(option, options::Value::of(value, at));
    }
    for (const auto& [option, value] : row.always) {
      auto at = origin();
      at.layer = overruling;
      set(option, options::Value::of(value, at));
    }
  }

  const FlagTable& table_;
  const options::Facts& facts_;
  options::Report& report_;
  Conversion out_;
  int layer_ = given;                                            ///< of the flag that is converted
  std::set<std::string> given_keys_, sections_, refused_files_;  ///< sections_: of files that are read
  std::set<std::string> derived_notes_;
  using Given = std::vector<std::pair<std::size_t, const FlagRow*>>;
  Given derived_, agreeing_;  ///< given flags, by their index in out_.flags
};

}  // namespace

Conversion FlagTable::convert(const std::vector<GivenFlag>& flags, const options::Facts& facts,
                              options::Report& report) const {
  Converter converter(*this, facts, report);
  converter.expect(flags);
  for (const auto& flag : flags) converter.take(flag);
  return converter.finish();
}

options::Value FlagTable::convert(const std::vector<std::string>& argv, const options::Facts& facts,
                                  options::Report& report) const {
  return convert(flags_of(argv), facts, report).recipe;
}

}  // namespace tessera::flags
