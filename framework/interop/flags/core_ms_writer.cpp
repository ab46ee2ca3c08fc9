#include "framework/interop/flags/core_ms_writer.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/interop/flags/recipe_writer.h"
#include "framework/options/same.h"

namespace tessera::flags {
namespace {

/// What `table` calls our option, and the value in its words.
std::string their_name(const std::string& path, const options::Value& table) {
  const auto* renamed = table.find("renamed");
  const auto* name = renamed ? renamed->find(path) : nullptr;
  return name ? name->scalar : path.substr(path.find('.') + 1);
}
options::Value in_their_words(const std::string& path, options::Value value, const options::Value& table) {
  const auto* words = table.find("words");
  const auto* own = words ? words->find(path) : nullptr;
  const auto* theirs = own ? own->find(value.scalar) : nullptr;
  if (theirs && value.kind == options::Value::Kind::scalar) value.scalar = theirs->scalar;
  return value;
}

/// The value of an option. If it is null and null means nothing there, or is no default there, its derived default.
options::Value without_null(const recipe::Recipe& recipe, const std::string& path, const options::Value& value,
                            const options::Value& their_default) {
  if (value.kind != options::Value::Kind::none || their_default.kind == options::Value::Kind::none) return value;
  const auto derived = recipe.derived(path);
  return derived && !derived->value.empty() ? options::Value::of(derived->value, value.origin) : value;
}

/// Whether a recipe says all that `settings`, "group.key": value, say; the empty set says nothing.
bool says(const options::Value& recipe, const options::Value& settings) {
  return !settings.fields.empty() &&
         std::all_of(settings.fields.begin(), settings.fields.end(), [&recipe](const auto& setting) {
           const auto* there = recipe.at(setting.name);
           return there && options::same(*there, setting.value);
         });
}

void drop(options::Value& recipe, const std::string& path) {
  const auto dot = path.find('.');
  for (auto& group : recipe.fields)
    if (group.name == path.substr(0, dot))
      std::erase_if(group.value.fields, [&](const auto& field) { return field.name == path.substr(dot + 1); });
}

/// Writes the nested form: takes options from `left` and puts them where their paths say.
class Nested {
 public:
  Nested(const options::Value& resolved, options::Value shown, const options::Value& table)
      : resolved_(resolved), left_(std::move(shown)), table_(table) {}

  options::Value write() {
    for (const auto& [path, row] : table_.find("paths")->fields) {
      if (path.find('*') != std::string::npos) continue;
      if (const auto* to = row.find("to")) move(path, *to, row.find("and"));
      if (const auto* means = row.find("means")) mean(path, *means);
    }
    operators("fused"), operators("nofused");
    out_.lay(left_);
    std::erase_if(out_.fields, [](const auto& group) { return group.value.fields.empty(); });
    return std::move(out_);
  }

 private:
  /// A path that speaks of two options can say only what both are.
  void move(const std::string& path, const options::Value& to, const options::Value* also) {
    const auto* value = left_.at(to.scalar);
    const auto* whole = resolved_.at(to.scalar);
    if (!value && also && left_.at(also->scalar)) value = whole;
    if (!value || (also && !options::same(*whole, *resolved_.at(also->scalar)))) return;
    out_.set(path, *value);
    drop(left_, to.scalar);
    if (also) drop(left_, also->scalar);
  }

  void mean(const std::string& path, const options::Value& means) {
    for (const auto& [word, settings] : means.fields) {
      const bool news = std::any_of(settings.fields.begin(), settings.fields.end(),
                                    [&](const auto& setting) { return left_.at(setting.name) != nullptr; });
      if (!news || !says(resolved_, settings)) continue;
      out_.set(path, options::Value::of(word, {}));
      for (const auto& setting : settings.fields) drop(left_, setting.name);
      return;
    }
  }

  void operators(const std::string& how) {
    std::string list;
    for (const auto& [word, settings] : table_.find("operators")->fields) {
      const auto* own = settings.find(how);
      const bool news = own && std::any_of(own->fields.begin(), own->fields.end(),
                                           [&](const auto& setting) { return left_.at(setting.name) != nullptr; });
      if (!news || !says(resolved_, *own)) continue;
      list += (list.empty() ? "" : ", ") + word;
      for (const auto& setting : own->fields) drop(left_, setting.name);
    }
    if (!list.empty()) out_.set("accelerate_config.precision." + how + "_operators", options::Value::of(list, {}));
  }

  const options::Value& resolved_;
  options::Value left_, out_;
  const options::Value& table_;
};

}  // namespace

options::Value write_flat_core_ms(const recipe::Recipe& recipe, const options::Mappings& mappings,
                                  options::Report& report) {
  const auto table = mappings.table("recipes/core_ms.yaml");
  const auto ours = what_differs(recipe.resolved, {}, recipe.facts);
  options::Value out;
  out.kind = options::Value::Kind::group;
  for (const auto& [group, options] : recipe.resolved.fields)
    for (const auto& [name, value] : options.fields) {
      const auto path = group + "." + name;
      const auto theirs = their_name(path, table);
      const auto* keys = table.find("groups")->find(group);
      const auto* usual = keys ? keys->find(theirs) : nullptr;
      const bool differs = ours.at(path) != nullptr;
      if (!usual && differs)
        report.problem(value.origin, path, text("MindSpeed-Core-MS has no key for ", path, " ", value));
      if (!usual) continue;
      const auto said = without_null(recipe, path, value, *usual);
      const auto words = in_their_words(path, said, table);
      if (said.kind != options::Value::Kind::none && (differs || !options::same(*usual, words)))
        out.set(group + "." + theirs, words);
    }
  return out;
}

options::Value write_nested_core_ms(const options::Value& resolved, const options::Facts& facts,
                                    const options::Mappings& mappings, options::Report& report) {
  const auto table = mappings.table("recipes/nested.yaml");
  auto out = Nested(resolved, what_differs(resolved, {}, facts), table).write();
  for (const auto& [group, options] : out.fields)
    if (facts.count(group))
      for (const auto& [name, value] : options.fields)
        if (name != "llm")
          report.note(value.origin,
                      text("the nested recipe has no path for ", group, ".", name, "; it is in ", group, " beside it"));
  return out;
}

}  // namespace tessera::flags
