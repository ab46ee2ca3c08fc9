#include "framework/interop/flags/flags_writer.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "framework/base/error.h"
#include "framework/interop/flags/megatron_rules.h"
#include "framework/options/same.h"
#include "framework/recipe/describe.h"

namespace tessera::flags {
namespace {

/// What a recipe has at "group.key" or "group.key[0]"; null when it says nothing.
const options::Value* at(const options::Value& recipe, const std::string& path) {
  const auto bracket = path.find('[');
  const auto* value = recipe.at(path.substr(0, bracket));
  if (!value || bracket == std::string::npos) return value;
  const auto item = static_cast<std::size_t>(std::stoul(path.substr(bracket + 1)));
  return item < value->items.size() ? &value->items[item] : nullptr;
}

/// Whether null, an empty list or an empty text, which a flag does not say.
bool is_nothing(const options::Value& value) {
  const bool list = value.kind == options::Value::Kind::list;
  return value.kind == options::Value::Kind::none || (list ? value.items.empty() : value.scalar.empty());
}

/// A list as one word of a command line: a pair as Python's tuple, numbers with commas, other lists as Python's.
std::string one_word(const options::Value& list, const std::string& type) {
  std::string items;
  for (const auto& item : list.items) items += (items.empty() ? "" : ",") + text(item);
  const auto begins = [&type](const char* with) { return type.rfind(with, 0) == 0; };
  if (begins("list of 2 ")) return "(" + items + ")";
  return begins("list of ") && !begins("list of list") ? items : text(list);
}

/// Without the brackets and blanks of a list, which are spelled in several ways.
std::string bare(const options::Value& list) {
  auto words = text(list);
  std::erase_if(words, [](char c) { return std::strchr("[]() ", c) != nullptr; });
  return words;
}

/// Whether `have`, which may be a list in one word, says the same as `want`.
bool agree(const options::Value& have, const options::Value& want) {
  return options::same(have, want) || (want.kind == options::Value::Kind::list && bare(have) == bare(want));
}

/// The options of a recipe as another program is told them. A run that saves only at the end has an interval as long as
/// the run; one that gives neither an interval nor a folder is not told to save, as a script without --save.
options::Value wanted_of(const recipe::Recipe& recipe) {
  auto wanted = recipe.resolved;
  const std::string interval = "training_config.save_interval", folder = "training_config.output_dir";
  const auto *given = wanted.at(interval), *place = wanted.at(folder);
  if (given == nullptr || place == nullptr) return wanted;
  if (given->kind != options::Value::Kind::none && !options::same(*given, options::Value::of("0", {}))) return wanted;
  const auto steps = recipe.training.training_iters;
  const auto length = steps > 0 ? steps : recipe.batch.train_samples.value_or(0);  // not less than the steps
  if (place->origin.layer == 0)
    wanted.set(folder, {});
  else if (length > 0)
    wanted.set(interval, options::Value::of(text(length), given->origin));
  return wanted;
}

/// Searches the flags that lead from their defaults to a recipe.
class Search {
 public:
  Search(const recipe::Recipe& recipe, const FlagTable& table)
      : wanted_(wanted_of(recipe)), table_(table), facts_(recipe.facts) {
    for (const auto& row : table.rows()) {
      if (row.to.empty()) continue;
      if (!row.absent.empty() || row.empty_text) with_default_.insert(row.to);
      if (const auto found = recipe.derived(row.option()); found && !found->value.empty())
        derived_.insert_or_assign(
            row.option(), Derived{options::Value::of(found->value, {}), recipe::has_effect(recipe, row.option())});
    }
    try_again();
  }

  /// Flags that say an option themselves come first; what they imply may then need others, and those that only imply
  /// come last.
  void run() {
    for (int pass = 0; pass < 3; ++pass)
      for (const auto& row : table_.rows())
        if (!row.to.empty() && (differs(row.to) || must_be_said(row))) say(row);
    for (const auto& row : table_.rows())
      if (row.kind == FlagRow::Kind::implied && helps(row)) give(row, {});
    drop_needless();
    complete();
  }

  std::vector<GivenFlag> flags() const { return given_; }

  /// The wanted value of an option, or its derived default if it is null. Null pointer: the option is of a type that is
  /// not chosen.
  const options::Value* wanted(const std::string& path) const {
    const auto* want = at(wanted_, path);
    if (want == nullptr || want->kind != options::Value::Kind::none) return want;
    const auto found = derived_.find(path);
    return found == derived_.end() ? want : &found->second.value;
  }

  /// Whether what the flags say of `path` is not what is wanted.
  bool differs(const std::string& path) const {
    static const options::Value null;
    const auto* want = path.empty() || without_effect_.count(path) != 0 ? nullptr : at(wanted_, path);
    if (!want) return false;
    const auto* have = at(now_, path);
    if (!have) have = usual(path);
    if (!have) have = &null;
    if (want->kind != options::Value::Kind::none) return !agree(*have, *want);
    if (have->kind == options::Value::Kind::none) return false;
    const auto found = derived_.find(path);
    return found == derived_.end() || (found->second.matters && !agree(*have, found->second.value));
  }

 private:
  /// The default of an option that is null, and whether it has an effect in this run.
  struct Derived {
    options::Value value;
    bool matters;
  };

  const options::Value* usual(const std::string& path) const {
    const auto dot = path.find('.'), bracket = path.find('[');
    const auto group = facts_.find(path.substr(0, dot));
    if (group == facts_.end()) return nullptr;
    const auto name = path.substr(dot + 1, bracket == std::string::npos ? bracket : bracket - dot - 1);
    const options::Value* found = nullptr;
    for (const auto& schema : group->second) {
      const auto* chosen = schema.key.empty() ? nullptr : wanted_.at(group->first + "." + schema.key);
      for (const auto& option : schema.options)
        if (option.name == name && (!found || (chosen && chosen->scalar == schema.type))) found = &option.default_value;
    }
    if (!found || bracket == std::string::npos) return found;
    const auto item = static_cast<std::size_t>(std::stoul(path.substr(bracket + 1)));
    return item < found->items.size() ? &found->items[item] : nullptr;
  }

  bool is_given(const std::string& flag) const {
    return std::any_of(given_.begin(), given_.end(), [&flag](const auto& one) { return one.flag == flag; });
  }

  /// There it has no default, whatever ours is, and no other flag says it.
  bool must_be_said(const FlagRow& row) const {
    if (row.kind != FlagRow::Kind::same || with_default_.count(row.to) != 0) return false;
    const auto* want = at(wanted_, row.to);
    return want != nullptr && !is_nothing(*want) &&
           std::none_of(given_.begin(), given_.end(), [&row](const auto& flag) { return flag.at.source == row.to; });
  }

  std::vector<std::string> words_of(const options::Value& value, const FlagRow& row) const {
    if (value.kind != options::Value::Kind::list) return {text(value)};
    const auto* option = option_at(row.to, facts_);
    if (row.takes != FlagRow::Takes::many) return {one_word(value, option ? option->type : "")};
    std::vector<std::string> words;
    for (const auto& item : value.items) words.push_back(text(item));
    return words;
  }

  void say(const FlagRow& row) {
    const auto* want = wanted(row.to);
    if (want->kind == options::Value::Kind::none) return;
    if (row.kind == FlagRow::Kind::same) {
      give(row, words_of(*want, row));
    } else if (row.kind == FlagRow::Kind::fixed && options::same(options::Value::of(row.fixed, {}), *want)) {
      give(row, {});
    } else if (row.kind == FlagRow::Kind::words) {
      const bool list = want->kind == options::Value::Kind::list;
      std::vector<std::string> words;
      for (const auto& item : list ? want->items : std::vector<options::Value>{*want}) {
        const auto found = std::find_if(row.words.begin(), row.words.end(), [&](const auto& word) {
          return options::same(options::Value::of(word.second, {}), item);
        });
        if (found == row.words.end()) return;
        words.push_back(found->first);
      }
      give(row, std::move(words));
    }
  }

  /// Whether all that `row` implies is wanted and something of it is not there yet.
  bool helps(const FlagRow& row) const {
    bool any = false;
    for (const auto* list : {&row.also, &row.always})
      for (const auto& [option, value] : *list) {
        const auto* want = wanted(option);
        if (!want || !options::same(options::Value::of(value, {}), *want)) return false;
        any = any || differs(option);
      }
    return any;
  }

  void give(const FlagRow& row, std::vector<std::string> values) {
    std::erase_if(given_, [&row](const auto& flag) { return flag.flag == row.flag; });
    const auto& option = !row.to.empty() ? row.to : (row.also.empty() ? row.always : row.also).front().first;
    given_.push_back({row.flag, std::move(values), {option, 0, "", 0}});
    try_again();
  }

  std::size_t differences() const {
    std::size_t count = 0;
    for (const auto& row : table_.rows()) count += differs(row.to);
    return count;
  }

  /// A flag that says only what another implies.
  void drop_needless() {
    for (std::size_t i = 0; i < given_.size();) {
      const auto before = differences();
      const auto flag = given_[i];
      if (const auto* row = table_.find(flag.flag);
          row->kind == FlagRow::Kind::same && with_default_.count(row->to) == 0) {
        ++i;
        continue;
      }
      given_.erase(given_.begin() + static_cast<std::ptrdiff_t>(i));
      try_again();
      if (differences() <= before) continue;
      given_.insert(given_.begin() + static_cast<std::ptrdiff_t>(i), flag);
      try_again();
      ++i;
    }
  }

  /// Gives flags that change nothing and without which Megatron-LM would stop, such as --max-position-embeddings.
  void complete() {
    for (const auto* rule : broken_megatron_rules(given_))
      for (const auto& flag : rule->flags)
        if (completes(flag)) break;
  }

  /// Whether `flag`, which is given then, mends a rule of Megatron-LM and changes nothing that has an effect.
  bool completes(const std::string& flag) {
    const auto* row = table_.find(flag);
    using Kind = FlagRow::Kind;
    const bool sets =
        row != nullptr && (row->kind == Kind::same || row->kind == Kind::fixed || row->kind == Kind::implied);
    if (!sets || is_given(flag)) return false;
    const auto* want = row->to.empty() ? nullptr : wanted(row->to);
    const bool says = row->kind == FlagRow::Kind::same && want != nullptr && !is_nothing(*want);
    if (row->takes != FlagRow::Takes::none && !says) return false;
    const auto before = given_;
    const auto broken = broken_megatron_rules(given_).size(), differing = differences();
    const auto* option = option_at(row->to, facts_);
    if (option != nullptr && options::only_compatible(*option)) without_effect_.insert(row->to);
    give(*row, says ? words_of(*want, *row) : std::vector<std::string>{});
    if (broken_megatron_rules(given_).size() < broken && differences() <= differing) return true;
    without_effect_.erase(row->to);
    given_ = before;
    try_again();
    return false;
  }

  void try_again() {
    options::Report ignored;
    now_ = table_.convert(given_, facts_, ignored).recipe;
  }

  const options::Value wanted_;
  const FlagTable& table_;
  const options::Facts& facts_;
  std::set<std::string> with_default_;         ///< options for which the other program has a default
  std::map<std::string, Derived> derived_;     ///< of options that are null
  std::set<std::string> without_effect_ = {};  ///< options that only choose an implementation, of flags that complete
  std::vector<GivenFlag> given_;
  options::Value now_;
};

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

/// Each option of a recipe, with its path.
void each(const options::Value& value, const std::string& path,
          const std::function<void(const std::string&, const options::Value&)>& see) {
  if (value.kind != options::Value::Kind::group) return see(path, value);
  for (const auto& [name, field] : value.fields) each(field, path.empty() ? name : path + "." + name, see);
}

/// A word as Bash reads it back; ${NAME} stays a variable.
std::string shell_word(const std::string& word) {
  const auto safe = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_-+=.,/:%@^", c); };
  if (!word.empty() && std::all_of(word.begin(), word.end(), safe)) return word;
  std::string out = "\"";
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool variable = word.compare(i, 2, "${") == 0;
    if (std::strchr("\"\\`", word[i]) || (word[i] == '$' && !variable)) out += '\\';
    out += word[i];
  }
  return out + '"';
}

}  // namespace

WrittenFlags write_flags(const recipe::Recipe& recipe, const FlagTable& table, const std::vector<std::string>& ours) {
  if (table.has_files())
    throw ConfigError(text(table.doc(),
                           " reads its model and its data from JSON files, which are not written; have "
                           "--to megatron, or another program whose flags say all"));
  Search search(recipe, table);
  search.run();
  WrittenFlags out{search.flags(), {}};
  const auto place = [&table](const GivenFlag& flag) { return table.find(flag.flag) - table.rows().data(); };
  std::stable_sort(out.flags.begin(), out.flags.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  each(recipe.resolved, "", [&](const std::string& path, const options::Value& value) {
    const auto* wanted = search.wanted(path);
    if (wanted != nullptr && wanted->kind != options::Value::Kind::none && !contains(ours, path) &&
        search.differs(path))
      out.lost.push_back({.option = path,
                          .message = text("no flag of ", table.name(), " says ", path, " ", *wanted),
                          .at = value.origin});
  });
  return out;
}

std::string write_script(const WrittenFlags& flags, const std::string& launcher, const std::string& program,
                         const std::vector<std::string>& head) {
  std::string out = "#!/bin/bash\n";
  for (const auto& line : head) out += text(line.empty() ? "#" : "# ", line, "\n");
  std::vector<std::string> groups;
  for (const auto& flag : flags.flags) {
    const auto group = flag.at.source.substr(0, flag.at.source.find('.'));
    if (!contains(groups, group)) groups.push_back(group);
  }
  std::string all;
  for (const auto& group : groups) {
    auto name = group.substr(0, group.find("_config")) + "_ARGS";
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    out += text("\n", name, "=(\n");
    for (const auto& flag : flags.flags) {
      if (flag.at.source.substr(0, flag.at.source.find('.')) != group) continue;
      out += text("    ", flag.flag);
      for (const auto& value : flag.values) out += text(" ", shell_word(value));
      out += "\n";
    }
    out += ")\n";
    all += text(" \\\n    \"${", name, "[@]}\"");
  }
  return text(out, "\n", launcher, " ", program, all, "\n");
}

}  // namespace tessera::flags
