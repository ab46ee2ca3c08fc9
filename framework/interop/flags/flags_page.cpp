#include "framework/interop/flags/flags_page.h"

#include <algorithm>
#include <cctype>

#include "framework/base/error.h"
#include "framework/interop/flags/derived_flags.h"
#include "framework/interop/flags/options_page.h"

namespace tessera::flags {
namespace {

const std::string page_folder = "flags/";
constexpr RowStatus all_row_statuses[] = {RowStatus::runs, RowStatus::ignored, RowStatus::planned, RowStatus::refused};

bool takes(const options::OptionFacts& option, const std::string& value) {
  const auto& taken = option.planned ? option.neutral : option.choices;
  if (!option.planned && taken.empty()) {  // the words of a list of words stand in its type
    const auto type = option.type + " ";
    return type.find(" / ") == std::string::npos || type.find(" " + value + " ") != std::string::npos;
  }
  return std::find(taken.begin(), taken.end(), value) != taken.end();
}

/// A name that Markdown leaves alone.
std::string code(const std::string& words) { return words.empty() ? "``" : "`" + words + "`"; }

/// Bars would end a cell.
std::string cell(const std::string& words) {
  std::string out;
  for (const auto c : without_tags(words)) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

/// The words of a row, those that are the same on both sides once.
std::string words_of(const FlagRow& row, const options::OptionFacts* option) {
  std::vector<std::string> all;
  for (const auto& [theirs, ours] : row.words)
    all.push_back((theirs == ours ? code(theirs) : code(theirs) + " → " + code(ours)) +
                  (option && !takes(*option, ours) ? " (planned)" : ""));
  return joined(all, ", ");
}

std::string refusals_of(const FlagRow& row) {
  std::vector<std::string> all;
  for (const auto& [theirs, why] : row.refused_words) all.push_back(code(theirs) + " (" + why + ")");
  return joined(all, ", ");
}

std::string settings_of(const std::vector<std::pair<std::string, std::string>>& settings) {
  std::vector<std::string> all;
  for (const auto& [option, value] : settings) all.push_back(code(option + ": " + value));
  return joined(all, ", ");
}

/// What a row says, in Markdown.
std::string meaning_of(const FlagRow& row, const options::Facts& facts) {
  if (row.kind == FlagRow::Kind::keys) return "a JSON file: keys of " + row.keys;
  if (row.kind == FlagRow::Kind::only) return text("only ", code(joined(row.only, "`, `")), ": ", row.why);
  if (!row.why.empty()) return row.why;
  const auto* option = option_at(row.to, facts);
  std::vector<std::string> parts;
  if (row.kind == FlagRow::Kind::fixed)
    parts.push_back(code(row.to + ": " + row.fixed));
  else if (row.kind == FlagRow::Kind::adds)
    parts.push_back(text("true: ", code(row.item), " in ", code(row.to)));
  else if (!row.to.empty())
    parts.push_back((row.kind == FlagRow::Kind::agrees ? "must be as " : "") + code(row.to) +
                    (row.words.empty() ? "" : ": " + words_of(row, option)));
  for (const auto& [word, settings] : row.settings)
    parts.push_back(code(word) + (settings.empty() ? ": nothing else" : ": " + settings_of(settings)));
  if (row.kind == FlagRow::Kind::derived) parts.push_back(describe_rule(row.rule));
  if (!row.refused_words.empty()) parts.push_back("refused: " + refusals_of(row));
  for (const auto& to : row.also_to) parts.push_back("also " + code(to) + " where no flag says otherwise");
  if (!row.also.empty()) parts.push_back("also " + settings_of(row.also) + " where no flag says otherwise");
  if (!row.always.empty()) parts.push_back("always " + settings_of(row.always));
  if (option && option->planned && status_of(row, facts) == RowStatus::planned) {
    std::vector<std::string> neutral;
    for (const auto& value : option->neutral) neutral.push_back(code(value));
    parts.push_back("only " + joined(neutral, " or ") + " is taken yet");
  }
  return joined(parts, "; ");
}

std::string file_name(const std::string& file) { return file.substr(page_folder.size()); }

std::vector<std::string> files_of(const options::Mappings& mappings) {
  std::vector<std::string> all;
  for (const auto& file : mappings.names())
    if (file.rfind(page_folder, 0) == 0) all.push_back(file);
  return all;
}

std::string counts_row(const FlagTable& table, const options::Facts& facts) {
  auto counts = count_by_status(table, facts);
  auto line = text("| ", table.name(), " | ", table.rows().size());
  for (const auto status : all_row_statuses) line += text(" | ", counts[status]);
  return line + " |\n";
}

/// Of a cell: "docs/rules.md#rec7" as a link from the page in docs/.
std::string with_links(std::string cell) {
  const std::string page = "docs/rules.md#";
  for (auto at = cell.find(page); at != std::string::npos; at = cell.find(page, at + 1)) {
    auto end = at + page.size();
    while (end < cell.size() && (std::isalnum(static_cast<unsigned char>(cell[end])) != 0 || cell[end] == '-')) ++end;
    auto rule = cell.substr(at + page.size(), end - at - page.size());
    const auto link = text("](rules.md#", rule, ")");
    for (auto& letter : rule) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    cell.replace(at, end - at, "[" + rule + link);
  }
  return cell;
}

/// The rows of flags, or of the keys of a section.
std::string rows_of(const FlagTable& table, const std::string& of_section, const options::Facts& facts) {
  auto page = text("| ", of_section.empty() ? "flag" : "key",
                   " | status | becomes, or why it is dropped or refused | not given |\n|---|---|---|---|\n");
  for (const auto& row : table.rows())
    if (row.section == of_section)
      page += text("| `", row.flag, "` | ", word_of(status_of(row, facts)), " | ",
                   with_links(cell(meaning_of(row, facts))), " | ", row.absent.empty() ? "" : code(row.absent), " |\n");
  return page;
}

std::string section(const std::string& file, const options::Facts& facts, const options::Mappings& mappings) {
  const auto tree = mappings.table(file);
  const auto own = FlagTable::from(tree);
  const auto* base = tree.find("base");
  auto page = text("\n## ", own.name(), "\n\n", own.doc(), ": `mappings/", file, "`");
  if (base) page += text("; what is not here is as in `", base->scalar, "`");
  page += ".\n\n" + rows_of(own, "", facts);
  if (const auto* keys = tree.find("keys"))
    for (const auto& [name, rows] : keys->fields)
      page += text("\n### ", own.name(), ": ", name, "\n\n", rows_of(own, name, facts));
  return page;
}

bool is_called(const FlagRow& row, const std::string& name) {
  return row.flag == name || row.dest == name || row.flag == "--" + name;
}

std::string plain(std::string words) {
  words.erase(std::remove(words.begin(), words.end(), '`'), words.end());
  return words;
}

std::string details_of(const FlagRow& row, const options::Facts& facts) {
  constexpr const char* words_after[] = {"no value", "one value", "one value or none", "values"};
  auto message =
      text("  ", row.flag, ": ", word_of(status_of(row, facts)), ", ", words_after[static_cast<int>(row.takes)],
           ", their name ", row.dest, "\n    ", plain(meaning_of(row, facts)), "\n");
  if (!row.absent.empty()) message += text("    not given: ", row.absent, "\n");
  if (const auto* option = option_at(row.to, facts)) message += text("    ", option->doc, "\n");
  return message;
}

}  // namespace

std::string word_of(RowStatus status) {
  switch (status) {
    case RowStatus::runs:
      return "runs";
    case RowStatus::ignored:
      return "ignored";
    case RowStatus::planned:
      return "planned";
    case RowStatus::refused:
      break;
  }
  return "refused";
}

RowStatus status_of(const FlagRow& row, const options::Facts& facts) {
  if (row.kind == FlagRow::Kind::ignored) return RowStatus::ignored;
  if (row.kind == FlagRow::Kind::refused) return RowStatus::refused;
  const auto* option = option_at(row.to, facts);
  if (!option || !option->planned) return RowStatus::runs;
  if (row.kind == FlagRow::Kind::fixed) return takes(*option, row.fixed) ? RowStatus::runs : RowStatus::planned;
  const bool harmless =
      row.kind == FlagRow::Kind::words &&
      std::all_of(row.words.begin(), row.words.end(), [&](const auto& word) { return takes(*option, word.second); });
  return harmless ? RowStatus::runs : RowStatus::planned;
}

std::map<RowStatus, int> count_by_status(const FlagTable& table, const options::Facts& facts) {
  std::map<RowStatus, int> counts;
  for (const auto& row : table.rows()) ++counts[status_of(row, facts)];
  return counts;
}

std::string flags_page(const options::Facts& facts, const options::Mappings& mappings) {
  std::string page =
      "# Flags of other programs\n\nMade by `tessera options --flags-markdown` from the tables in `mappings/flags/`; a "
      "test fails when this page is stale.\n\nA flag *runs* when it sets options that are implemented, or options that "
      "do "
      "not affect results. It is *ignored* when dropping it does not affect results; the reason is in parentheses: a "
      "[rule](rules.md) of Megatron-LM's argument validation, or the one program that reads it. It is *planned* when "
      "its option is not implemented yet: the value that does not affect the run is accepted, any other is refused by "
      "name. At a *refused* flag the converter stops and says what to do. `tessera options --flag --adam-beta2` prints "
      "one flag.\n\n"
      "| table | flags | run | ignored | planned | refused |\n|---|---|---|---|---|---|\n";
  const auto files = files_of(mappings);
  for (const auto& file : files) page += counts_row(FlagTable::from(file_name(file), mappings), facts);
  for (const auto& file : files) page += section(file, facts, mappings);
  return page;
}

std::string flag_details(const std::string& flag, const options::Facts& facts, const options::Mappings& mappings) {
  std::vector<std::pair<std::string, std::string>> messages;  // names of tables and what they say
  std::vector<std::string> known;
  for (const auto& file : files_of(mappings)) {
    const auto table = FlagTable::from(file_name(file), mappings);
    std::string here;
    for (const auto& row : table.rows()) {
      known.push_back(row.flag);
      if (is_called(row, flag)) here += details_of(row, facts);
    }
    const auto same = std::find_if(messages.begin(), messages.end(), [&](const auto& s) { return s.second == here; });
    if (same != messages.end())
      same->first += ", " + table.name();
    else if (!here.empty())
      messages.emplace_back(table.name(), here);
  }
  std::string all;
  for (const auto& [names, message] : messages) all += names + "\n" + message;
  if (!all.empty()) return all;
  const auto hint = options::did_you_mean(flag, known);
  throw ConfigError(text("no table has a flag '", flag, "'", hint.empty() ? "" : "; ", hint));
}

}  // namespace tessera::flags
