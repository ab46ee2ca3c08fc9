#include "framework/interop/flags/flag_table.h"

#include <algorithm>
#include <cctype>

#include "framework/base/error.h"
#include "framework/interop/flags/derived_flags.h"
#include "framework/interop/flags/python_number.h"

namespace tessera::flags {
namespace {

const std::string table_folder = "flags/";

std::string dest_of(const std::string& flag) {
  auto name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

FlagRow::Takes takes_of(const options::Value& row, const std::string& word, bool bare) {
  if (word.empty()) return bare ? FlagRow::Takes::none : FlagRow::Takes::one;
  if (word == "none") return FlagRow::Takes::none;
  if (word == "one") return FlagRow::Takes::one;
  if (word == "optional") return FlagRow::Takes::optional;
  if (word == "many") return FlagRow::Takes::many;
  throw ConfigError(text(row.origin, ": takes is none, one, optional or many, not '", word, "'"));
}

FlagRow read_row(const std::string& flag, const options::Value& row) {
  const auto word = [&row](const char* name) {
    const auto* value = row.find(name);
    return value ? value->scalar : std::string();
  };
  FlagRow out;
  out.flag = flag;
  out.dest = word("dest").empty() ? dest_of(flag) : word("dest");
  out.to = word("to");
  out.absent = word("absent");
  if (row.find("ignored"))
    out.kind = FlagRow::Kind::ignored, out.why = word("ignored");
  else if (row.find("refused"))
    out.kind = FlagRow::Kind::refused, out.why = word("refused");
  else if (row.find("value"))
    out.kind = FlagRow::Kind::fixed, out.fixed = word("value");
  else if (const auto* words = row.find("words")) {
    out.kind = FlagRow::Kind::words;
    for (const auto& [theirs, ours] : words->fields) out.words.emplace_back(theirs, ours.scalar);
    if (const auto* refused = row.find("refused_words"))
      for (const auto& [theirs, why] : refused->fields) out.refused_words.emplace_back(theirs, why.scalar);
  }
  if (const auto* settings = row.find("settings")) {
    if (out.kind == FlagRow::Kind::same && out.to.empty()) out.kind = FlagRow::Kind::settings;
    for (const auto& [theirs, options] : settings->fields) {
      auto& said = out.settings.emplace_back(theirs, std::vector<std::pair<std::string, std::string>>()).second;
      for (const auto& [option, value] : options.fields) said.emplace_back(option, value.scalar);
    }
    if (const auto* refused = row.find("refused_words"); refused && out.refused_words.empty())
      for (const auto& [theirs, why] : refused->fields) out.refused_words.emplace_back(theirs, why.scalar);
  }
  if (row.find("derived")) out.kind = FlagRow::Kind::derived, out.rule = word("derived");
  if (const auto* also = row.find("also"))
    for (const auto& [option, implied] : also->fields) out.also.emplace_back(option, implied.scalar);
  if (const auto* options = row.find("also_to"))
    for (const auto& option : options->items) out.also_to.push_back(option.scalar);
  if (const auto* always = row.find("always"))
    for (const auto& [option, implied] : always->fields) out.always.emplace_back(option, implied.scalar);
  if (out.kind == FlagRow::Kind::same && out.to.empty()) out.kind = FlagRow::Kind::implied;
  out.takes = takes_of(row, word("takes"), out.kind == FlagRow::Kind::fixed || out.kind == FlagRow::Kind::implied);
  return out;
}

constexpr int not_given = 1, implied = 2, given = 3, overruling = 4;  // layers

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

/// Whether an option is a number, or a list of numbers: "list of 2 float", "int or null".
bool takes_numbers(const options::OptionFacts& option) {
  auto type = option.type;
  for (const std::string list = "list of "; type.rfind(list, 0) == 0;) {
    type.erase(0, list.size());
    type.erase(0, type.find_first_not_of("0123456789 "));
  }
  const auto word = type.substr(0, type.find_first_of(" ,"));
  return word == "int" || word == "float";
}

options::Value list_of(const std::vector<std::string>& values, const options::Origin& origin) {
  options::Value list;
  list.kind = options::Value::Kind::list;
  list.origin = origin;
  for (const auto& value : values) list.items.push_back(options::Value::of(value, origin));
  return list;
}

bool is_row_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])));
}

/// What the line "name: ..." of a table's text says; reading all of it takes longer.
std::string name_in(const std::string& words) {
  const std::string key = "\nname: ";
  const auto at = ("\n" + words).find(key);
  if (at == std::string::npos) return "";
  const auto start = at + key.size() - 1;
  return words.substr(start, words.find_first_of("\r\n", start) - start);
}

/// One command line on its way into a recipe.
class Converter {
 public:
  Converter(const FlagTable& table, const options::Facts& facts, options::Report& report)
      : table_(table), facts_(facts), report_(report) {
    for (const auto& row : table_.rows())
      if (!row.absent.empty())
        out_.recipe.set(row.to, options::Value::of(row.absent, {row.flag + " not given", 0, "", not_given}));
  }

  void take(const GivenFlag& flag) {
    out_.flags.push_back({flag});
    const auto* row = table_.find(flag.flag);
    if (!row)
      end(FlagStatus::unknown, "unknown flag", options::did_you_mean(flag.flag, table_.flags()));
    else if (row->kind == FlagRow::Kind::ignored)
      ignore(row->why);
    else if (row->kind == FlagRow::Kind::refused)
      end(FlagStatus::refused, row->why);
    else
      follow(*row);
  }

  Conversion finish() {
    for (const auto& [index, row] : derived_) derive(index, *row);
    leave_out_unchosen(out_.recipe, facts_, report_);
    return std::move(out_);
  }

 private:
  options::Origin origin() const {
    auto at = out_.flags.back().given.at;
    at.layer = given;
    return at;
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
    const bool one_of_settings = !row.settings.empty() && row.kind != FlagRow::Kind::words;
    if (one_of_settings && !settings_of(row, value) && value.find('$') == std::string::npos)
      return end(FlagStatus::refused, text("no counterpart for '", value, "'"));
    imply(row, value);
    if (row.kind == FlagRow::Kind::derived) derived_.emplace_back(out_.flags.size() - 1, &row);
    if (row.kind == FlagRow::Kind::same)
      set(row.to, row.takes == FlagRow::Takes::many && wants_list(row.to, values) ? list_of(values, origin())
                                                                                  : single(row.to, value));
    else if (row.kind == FlagRow::Kind::fixed)
      set(row.to, options::Value::of(row.fixed, origin()));
    else if (row.kind == FlagRow::Kind::words)
      set_words(row, row.takes == FlagRow::Takes::many ? values : std::vector<std::string>{value});
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
  options::Value single(const std::string& to, const std::string& value) const {
    const auto* option = option_at(to, facts_);
    if (!option || option->type.rfind("list of 2 ", 0) != 0 || value.find(',') == std::string::npos)
      return options::Value::of(value, origin());
    std::vector<std::string> items(1);
    for (const auto c : value)
      if (c == ',')
        items.emplace_back();
      else if (std::string("()[] ").find(c) == std::string::npos)
        items.back() += c;
    return list_of(items, origin());
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
      report_.note(value.origin, text("overridden: another flag sets ", to, " ", *there));
    else
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
      for (const auto& [option, value] : derived_settings(row.rule, joined(flag.given.values, " "), out_.recipe)) {
        auto at = flag.given.at;
        at.layer = given;
        const bool is_list = option.ends_with("[]");
        const auto name = option.substr(0, option.size() - (is_list ? 2 : 0));
        auto made = is_list ? list_of(split_at_commas(value), at) : options::Value::of(value, at);
        if (value == "null") made.kind = options::Value::Kind::none;
        flag.to.push_back(name);
        note_planned(flag, name, made);
        out_.recipe.set(name, made);
      }
    } catch (const ConfigError& error) {
      flag.status = FlagStatus::refused;
      flag.why = error.what();
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
  std::vector<std::pair<std::size_t, const FlagRow*>> derived_;  ///< given flags, by their index in out_.flags
};

}  // namespace

const options::OptionFacts* option_at(const std::string& path, const options::Facts& facts) {
  const auto dot = path.find('.');
  const auto group = facts.find(path.substr(0, dot));
  if (dot == std::string::npos || group == facts.end()) return nullptr;
  const auto name = path.substr(dot + 1, path.find('[') - dot - 1);
  for (const auto& schema : group->second)
    for (const auto& option : schema.options)
      if (option.name == name) return &option;
  return nullptr;
}

std::vector<GivenFlag> flags_of(const std::vector<std::string>& argv) {
  std::vector<GivenFlag> all;
  for (const auto& word : argv) {
    const auto equal = word.find('=');
    if (is_row_flag(word) && equal != std::string::npos)
      all.push_back({word.substr(0, equal), {word.substr(equal + 1)}, {word.substr(0, equal), 0, "", 0}});
    else if (is_row_flag(word))
      all.push_back({word, {}, {word, 0, "", 0}});
    else if (!all.empty())
      all.back().values.push_back(word);
    else
      throw ConfigError(text("'", word, "' comes before the first flag; expected a command line of flags"));
  }
  return all;
}

std::string word_of(FlagStatus status) {
  switch (status) {
    case FlagStatus::mapped:
      return "mapped";
    case FlagStatus::ignored:
      return "ignored";
    case FlagStatus::planned:
      return "planned";
    case FlagStatus::refused:
      return "refused";
    case FlagStatus::undecided:
      return "undecided";
    case FlagStatus::unknown:
      break;
  }
  return "unknown";
}

void FlagTable::add(const options::Value& table) {
  const auto word = [&table](const char* name) {
    const auto* value = table.find(name);
    return value ? value->scalar : std::string();
  };
  name_ = word("name");
  doc_ = word("doc");
  const auto put = [this](FlagRow row) {
    const auto there = std::find_if(rows_.begin(), rows_.end(), [&](const auto& r) { return r.flag == row.flag; });
    if (there == rows_.end())
      rows_.push_back(std::move(row));
    else
      *there = std::move(row);
  };
  if (word("spelled") == "underscores")
    for (auto& row : rows_) std::replace(row.flag.begin() + 2, row.flag.end(), '-', '_');
  if (const auto* removed = table.find("removed"))
    for (const auto& [flag, why] : removed->fields) {
      FlagRow row;
      row.flag = flag;
      row.dest = dest_of(flag);
      row.kind = FlagRow::Kind::refused;
      row.why = why.scalar;
      if (const auto* there = find(flag)) row.takes = there->takes;
      put(std::move(row));
    }
  if (const auto* flags = table.find("flags"))
    for (const auto& [flag, row] : flags->fields) put(read_row(flag, row));
}

FlagTable FlagTable::from(const options::Value& table) {
  FlagTable out;
  out.add(table);
  return out;
}

FlagTable FlagTable::from(const std::string& file, const options::Mappings& mappings) {
  std::vector<options::Value> tables;
  for (auto next = file; !next.empty();) {
    tables.push_back(mappings.table(table_folder + next));
    const auto* base = tables.back().find("base");
    next = base ? base->scalar : "";
    if (tables.size() > 10)
      throw ConfigError(text("mappings/", table_folder, file, ": its `base` tables form a cycle"));
  }
  FlagTable out;
  for (auto table = tables.rbegin(); table != tables.rend(); ++table) out.add(*table);
  return out;
}

FlagTable FlagTable::named(const std::string& name, const options::Mappings& mappings) {
  if (name == "megatron") return named(usual, mappings);
  std::string have;
  for (const auto& file : mappings.names()) {
    if (file.rfind(table_folder, 0) != 0) continue;
    const auto own = name_in(mappings.text(file));
    if (own == name) return from(file.substr(table_folder.size()), mappings);
    have += (have.empty() ? "" : ", ") + own;
  }
  throw ConfigError(text("no flags of '", name, "' are known; have ", have));
}

const FlagRow* FlagTable::find(const std::string& flag) const {
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const auto& r) { return r.flag == flag; });
  return row == rows_.end() ? nullptr : &*row;
}

std::vector<std::string> FlagTable::flags() const {
  std::vector<std::string> all;
  for (const auto& row : rows_) all.push_back(row.flag);
  return all;
}

Conversion FlagTable::convert(const std::vector<GivenFlag>& flags, const options::Facts& facts,
                              options::Report& report) const {
  Converter converter(*this, facts, report);
  for (const auto& flag : flags) converter.take(flag);
  return converter.finish();
}

options::Value FlagTable::convert(const std::vector<std::string>& argv, const options::Facts& facts,
                                  options::Report& report) const {
  return convert(flags_of(argv), facts, report).recipe;
}

}  // namespace tessera::flags
