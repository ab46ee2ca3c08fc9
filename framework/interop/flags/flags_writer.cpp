#include "framework/interop/flags/flags_writer.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <functional>

#include "framework/base/error.h"
#include "framework/options/same.h"

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

std::vector<std::string> words_of(const options::Value& value) {
  if (value.kind != options::Value::Kind::list) return {text(value)};
  std::vector<std::string> words;
  for (const auto& item : value.items) words.push_back(text(item));
  return words;
}

/// Searches the flags that lead from their defaults to a recipe.
class Search {
 public:
  Search(const options::Value& wanted, const FlagTable& table, const options::Facts& facts)
      : wanted_(wanted), table_(table), facts_(facts) {
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
  }

  std::vector<GivenFlag> flags() const { return given_; }

  /// Whether what the flags say of `path` is not what is wanted.
  bool differs(const std::string& path) const {
    static const options::Value null;
    if (path.empty()) return false;
    const auto* want = at(wanted_, path);
    if (!want) return false;  // of a type that is not chosen
    const auto* have = at(now_, path);
    if (!have) have = usual(path);
    return !options::same(have ? *have : null, *want);
  }

 private:
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

  /// There it has no default, whatever ours is.
  bool must_be_said(const FlagRow& row) const {
    const bool given =
        std::any_of(given_.begin(), given_.end(), [&](const auto& flag) { return flag.flag == row.flag; });
    return !given && row.kind == FlagRow::Kind::same && row.absent.empty() && at(wanted_, row.to) != nullptr;
  }

  void say(const FlagRow& row) {
    const auto* want = at(wanted_, row.to);
    if (want->kind == options::Value::Kind::none) return;
    if (row.kind == FlagRow::Kind::same) {
      give(row, words_of(*want));
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
        const auto* want = at(wanted_, option);
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
      if (const auto* row = table_.find(flag.flag); row->kind == FlagRow::Kind::same && row->absent.empty()) {
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

  void try_again() {
    options::Report ignored;
    now_ = table_.convert(given_, facts_, ignored).recipe;
  }

  const options::Value& wanted_;
  const FlagTable& table_;
  const options::Facts& facts_;
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

WrittenFlags write_flags(const options::Value& resolved, const FlagTable& table, const options::Facts& facts,
                         const std::vector<std::string>& ours) {
  if (table.has_files())
    throw ConfigError(text(table.doc(),
                           " reads its model and its data from JSON files, which are not written; have "
                           "--to megatron, or another program whose flags say all"));
  Search search(resolved, table, facts);
  search.run();
  WrittenFlags out{search.flags(), {}};
  const auto place = [&table](const GivenFlag& flag) { return table.find(flag.flag) - table.rows().data(); };
  std::stable_sort(out.flags.begin(), out.flags.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  each(resolved, "", [&](const std::string& path, const options::Value& value) {
    if (value.kind != options::Value::Kind::none && !contains(ours, path) && search.differs(path))
      out.lost.push_back({.option = path,
                          .message = text("no flag of ", table.name(), " says ", path, " ", value),
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
