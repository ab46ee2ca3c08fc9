#include "framework/interop/flags/options_page.h"

#include <algorithm>
#include <cctype>

#include "framework/base/error.h"

namespace tessera::flags {
namespace {

std::string name_of(const options::Alias& alias) {
  return alias.item < 0 ? text("`", alias.name, "`") : text("`", alias.name, "` ([", alias.item, "])");
}

std::string default_of(const options::OptionFacts& option) {
  if (option.required) return "required";
  const auto words = text(option.default_value);
  return words.empty() ? "empty" : "`" + words + "`";
}

/// The options of a group, each once, with the types that it belongs to: several when they share it.
struct Row {
  std::string types;
  const options::OptionFacts* option;
};
/// The part of the page that an option is in.
enum class Part { options, compatible, planned };

Part part_of(const options::OptionFacts& option) {
  if (options::only_compatible(option)) return Part::compatible;
  return option.planned ? Part::planned : Part::options;
}

std::vector<Row> rows_of(const std::vector<options::SchemaFacts>& schemas, Part part) {
  std::vector<Row> rows;
  for (const auto& schema : schemas)
    for (const auto& option : schema.options) {
      if (part_of(option) != part) continue;
      const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
        return row.option->name == option.name && row.option->doc == option.doc && !schema.type.empty();
      });
      if (same == rows.end())
        rows.push_back({schema.type, &option});
      else
        same->types += ", " + schema.type;
    }
  return rows;
}

/// " No effect if `swiglu` is true."
std::string no_effect(const options::OptionFacts& option) {
  std::string all;
  for (const auto& why : option.no_effect_if) all += (all.empty() ? " No effect if " : ", or if ") + why;
  return all.empty() ? all : all + ".";
}

std::string table_row(const std::string& group, const Row& row, const FlagTable& flags) {
  const auto& option = *row.option;
  std::vector<std::string> names, from;
  for (const auto& alias : option.aliases) names.push_back(name_of(alias));
  for (const auto& flag : flags_to(flags, group + "." + option.name)) from.push_back("`" + flag + "`");
  const auto unit = option.unit.empty() ? "" : ", " + option.unit;
  return text("| `", option.name, "` | ", row.types, " | ", option.type, unit, " | ", default_of(option), " | ",
              joined(option.limits), " | ", joined(names), " | ", joined(from), " | ", without_tags(option.doc),
              no_effect(option), " |\n");
}

std::string planned_line(const std::string& group, const options::OptionFacts& option) {
  std::vector<std::string> names;
  for (const auto& alias : option.aliases) names.push_back(name_of(alias));
  std::string taken;
  for (const auto& value : option.neutral)
    taken += (taken.empty() ? "`" : " or `") + (value.empty() ? "''" : value) + "`";
  return text("- `", group, ".", option.name, "`: accepts only ", taken, ". ", without_tags(option.doc),
              names.empty() ? "" : " Also read: " + joined(names) + ".", "\n");
}

}  // namespace

std::string without_tags(std::string_view words) {
  std::string out;
  bool code = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == '`') code = !code;
    const char next = i + 1 < words.size() ? words[i + 1] : ' ';
    const bool tag = words[i] == '<' &&
                     (next == '/' || next == '!' || next == '?' || std::isalpha(static_cast<unsigned char>(next)) != 0);
    out += tag && !code ? "&lt;" : std::string(1, words[i]);
  }
  return out;
}

std::vector<std::string> flags_to(const FlagTable& flags, const std::string& key) {
  std::vector<std::string> all;
  for (const auto& row : flags.rows())
    if (row.option() == key) all.push_back(row.flag);
  return all;
}

std::string options_page(const options::Facts& facts, const FlagTable& flags) {
  std::string page =
      "# Options\n\nMade by `tessera options --markdown` from the declarations in the code; a test fails when this "
      "page "
      "is stale.\n\nA recipe is a YAML file of the groups below. *Only for* names the type that an option belongs to: "
      "it is read when that type is chosen. *Also read* are other spellings, which are noted when they are used.\n";
  std::string planned, compatible;
  for (const auto& [group, schemas] : facts) {
    const auto built = rows_of(schemas, Part::options);
    if (!built.empty())
      page += "\n## " + group +
              "\n\n| option | only for | type | default | limits | also read | Megatron | meaning |\n"
              "|---|---|---|---|---|---|---|---|\n";
    for (const auto& row : built) page += table_row(group, row, flags);
    for (const auto& row : rows_of(schemas, Part::planned)) planned += planned_line(group, *row.option);
    for (const auto& row : rows_of(schemas, Part::compatible)) compatible += planned_line(group, *row.option);
  }
  return page +
         "\n## Not implemented yet\n\nThese keys are known. A value that does not change the run is accepted, so that "
         "existing "
         "recipes load; any other is an error.\n\n" +
         planned +
         "\n## Accepted for compatibility\n\nThese keys have no effect: their values mean the same here, so that "
         "existing "
         "recipes load.\n\n" +
         compatible;
}

}  // namespace tessera::flags
