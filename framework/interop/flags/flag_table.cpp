#include "framework/interop/flags/flag_table.h"

#include <algorithm>
#include <cctype>

#include "framework/base/error.h"

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

bool is_true(const options::Value* value) { return value && value->scalar == "true"; }

/// What rows of keys say beside what rows of flags say, and what makes a flag name a file of keys.
void read_kinds_of_keys(const options::Value& row, FlagRow& out) {
  out.nullable = is_true(row.find("nullable"));
  out.optional = is_true(row.find("optional"));
  out.decides = is_true(row.find("decides"));
  if (const auto* keys = row.find("keys")) {
    out.kind = FlagRow::Kind::keys, out.keys = keys->scalar;
  } else if (const auto* only = row.find("only")) {
    out.kind = FlagRow::Kind::only;
    for (const auto& value : only->items) out.only.push_back(value.scalar);
    if (const auto* why = row.find("why")) out.why = why->scalar;
  } else if (const auto* item = row.find("adds")) {
    out.kind = FlagRow::Kind::adds, out.item = item->scalar;
  } else if (is_true(row.find("agrees"))) {
    out.kind = FlagRow::Kind::agrees;
  }
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
  out.empty_text = row.find("absent") != nullptr && out.absent.empty();
  out.missing = word("missing");
  out.theirs = word("theirs");
  if (row.find("ignored"))
    out.kind = FlagRow::Kind::ignored, out.why = word("ignored");
  else if (row.find("refused"))
    out.kind = FlagRow::Kind::refused, out.why = word("refused");
  else if (row.find("value"))
    out.kind = FlagRow::Kind::fixed, out.fixed = word("value");
  else if (const auto* words = row.find("words")) {
    out.kind = FlagRow::Kind::words;
    for (const auto& [theirs, ours] : words->fields) out.words.emplace_back(theirs, ours.scalar);
    if (const auto* noted = row.find("noted"))
      for (const auto& [theirs, what] : noted->fields) out.noted.emplace_back(theirs, what.scalar);
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
  read_kinds_of_keys(row, out);
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

bool takes_numbers(const options::OptionFacts& option) {
  auto type = option.type;
  for (const std::string list = "list of "; type.rfind(list, 0) == 0;) {
    type.erase(0, list.size());
    type.erase(0, type.find_first_not_of("0123456789 "));
  }
  const auto word = type.substr(0, type.find_first_of(" ,"));
  return word == "int" || word == "float";
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
  if (const auto* sections = table.find("keys"))
    for (const auto& [section, rows] : sections->fields)
      for (const auto& [key, words] : rows.fields) {
        auto row = read_row(key, words);
        row.dest = key;
        row.section = section;
        put(std::move(row));
      }
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

bool FlagTable::has_files() const {
  return std::any_of(rows_.begin(), rows_.end(), [](const auto& row) { return !row.section.empty(); });
}

}  // namespace tessera::flags
