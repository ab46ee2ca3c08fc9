#include "framework/recipe/module_aliases.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "framework/model/model.h"
#include "framework/recipe/build.h"
#include "framework/recipe/recipe.h"

namespace tessera::recipe {
namespace {

constexpr std::array<const char*, 2> places = {"{layer}", "{expert}"};

/// One module of ours and its names there, with places for numbers.
struct AliasRow {
  std::string table;
  std::string ours;
  std::vector<training::ModuleAlias> theirs;
};
using Numbers = std::array<std::string, places.size()>;

/// Without ".weight"; nothing: it is no weight.
std::optional<std::string> module_of(const std::string& tensor) {
  const std::string end = ".weight";
  if (!tensor.ends_with(end)) return std::nullopt;
  return tensor.substr(0, tensor.size() - end.size());
}

std::string replaced(std::string name, const std::string& what, const std::string& by) {
  for (auto at = name.find(what); at != std::string::npos; at = name.find(what, at + by.size()))
    name.replace(at, what.size(), by);
  return name;
}

/// The numbers in `name` at the places of `row`; nothing if it is another name.
std::optional<Numbers> numbers_in(std::string_view row, std::string_view name) {
  Numbers numbers;
  while (!row.empty()) {
    const auto* place =
        row[0] != '{' ? places.end()
                      : std::find_if(places.begin(), places.end(), [&](const char* p) { return row.starts_with(p); });
    if (place == places.end()) {
      if (name.empty() || name[0] != row[0]) return std::nullopt;
      row.remove_prefix(1), name.remove_prefix(1);
      continue;
    }
    const auto digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0) return std::nullopt;
    numbers[static_cast<std::size_t>(place - places.begin())] = name.substr(0, digits);
    row.remove_prefix(std::string_view(*place).size()), name.remove_prefix(digits);
  }
  if (!name.empty()) return std::nullopt;
  return numbers;
}

/// `name` with "#" instead of each place for a number and of each number: numbers_in(row, name) finds numbers only if
/// both become the same. Models have tens of thousands of names, so rows of the tables are looked up by it.
std::string without_numbers(std::string name) {
  for (const auto* place : places) name = replaced(std::move(name), place, "#");
  std::string out;
  for (const auto c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) out += c;
    if (digit && !out.ends_with('#')) out += '#';
  }
  return out;
}

/// The parameter that Transformers 5 has for a weight of all experts of a layer, from the module of one expert in files
/// and the table's names of modules; nothing: it is no weight of an expert. `from`: number of modules there.
std::optional<std::string> parameter_of_experts(const options::Value& table, std::string module, std::size_t from,
                                                const std::string& ours) {
  const std::string experts = ".experts.";
  if (const auto* renamed = table.find("modules"))
    for (const auto& [file, name] : renamed->fields)
      module = replaced(module, "." + file + ".", "." + name.scalar + ".");
  const auto at = module.find(experts);
  if (at == std::string::npos || ours.find(".local_experts.") == std::string::npos) return std::nullopt;
  const bool down = ours.ends_with(".linear_fc2");
  if (!down && from != 2) return std::nullopt;
  return module.substr(0, at + experts.size()) + (down ? "down_proj" : "gate_up_proj");
}

/// `names` as modules of Transformers may also spell them: with other beginnings, which the table has.
std::vector<training::ModuleAlias> other_spellings(const options::Value& table,
                                                   const std::vector<training::ModuleAlias>& names) {
  std::vector<training::ModuleAlias> all;
  const auto* spellings = table.find("spellings");
  for (auto alias : names)
    for (std::size_t i = 0; spellings && i < spellings->fields.size(); ++i) {
      const auto& [begin, other] = spellings->fields[i];
      if (!alias.name.starts_with(begin)) continue;
      alias.name = other.scalar + alias.name.substr(begin.size());
      all.push_back(alias);
      break;
    }
  return all;
}

void add_weights(const std::string& name, const options::Value& table, std::vector<AliasRow>& rows) {
  const auto* tensors = table.find("tensors");
  if (!tensors) return;
  for (const auto& [tensor, row] : tensors->fields) {
    const auto ours = module_of(tensor);
    const auto* from = row.find("from");
    if (!ours || !from) continue;
    auto& added = rows.emplace_back(AliasRow{name, *ours, {}});
    if (from->kind == options::Value::Kind::scalar) added.theirs.push_back({module_of(from->scalar).value_or(""), 0});
    for (std::size_t i = 0; i < from->items.size(); ++i)
      added.theirs.push_back({module_of(from->items[i].scalar).value_or(""), i + 1});
    std::erase_if(added.theirs, [](const auto& alias) { return alias.name.empty(); });
    if (added.theirs.empty()) continue;
    if (auto parameter = parameter_of_experts(table, added.theirs[0].name, added.theirs.size(), *ours))
      added.theirs.push_back({std::move(*parameter), 0, true});
    const auto others = other_spellings(table, added.theirs);
    added.theirs.insert(added.theirs.end(), others.begin(), others.end());
  }
}

/// By without_numbers of our name.
using AliasRows = std::map<std::string, std::vector<AliasRow>>;

AliasRows rows_of(const options::Mappings& mappings) {
  std::vector<AliasRow> rows;
  for (const auto& name : mappings.names())
    if (name.starts_with("weights/")) add_weights(name, mappings.table(name), rows);
  const auto core = mappings.table("modules/core_ms.yaml");
  if (const auto* modules = core.find("modules"))
    for (const auto& [ours, theirs] : modules->fields) rows.push_back({"", ours, {{theirs.scalar, 0}}});
  AliasRows by_name;
  for (auto& row : rows) {
    auto name = without_numbers(row.ours);
    by_name[std::move(name)].push_back(std::move(row));
  }
  return by_name;
}

/// The tensors that every model of a table of weights has.
std::vector<std::string> required_tensors(const options::Value& table) {
  std::vector<std::string> all;
  if (const auto* tensors = table.find("tensors"))
    for (const auto& [tensor, row] : tensors->fields)
      if (!row.find("when") && !row.find("unless") && !row.find("layers")) all.push_back(tensor);
  return all;
}

/// Of the tables of families whose required tensors are all among `parameters`, the one with most of them; of several
/// the plainest, that of a family whose table is like fewest others.
std::string nearest_table(const options::Mappings& mappings, const std::vector<std::string>& parameters) {
  std::string nearest;
  std::size_t most = 0;
  int likes = 0;
  std::map<std::string, std::vector<std::string_view>> by_name;
  for (const auto& parameter : parameters) by_name[without_numbers(parameter)].push_back(parameter);
  const auto has = [&](const auto& tensor) {
    const auto found = by_name.find(without_numbers(tensor));
    return found != by_name.end() &&
           std::any_of(found->second.begin(), found->second.end(),
                       [&](const auto& parameter) { return numbers_in(tensor, parameter).has_value(); });
  };
  for (const auto& name : mappings.names()) {
    if (!name.starts_with("models/")) continue;
    const auto family = mappings.table(name);
    const auto* weights = family.find("weights");
    if (!weights) continue;
    const auto tensors = required_tensors(mappings.table(weights->scalar));
    const auto own = mappings.likes(name);
    if (tensors.size() < most || (tensors.size() == most && own >= likes) ||
        !std::all_of(tensors.begin(), tensors.end(), has))
      continue;
    most = tensors.size();
    likes = own;
    nearest = weights->scalar;
  }
  return nearest;
}

std::vector<std::string> parameters_of(const Recipe& recipe) {
  std::vector<std::string> parameters;
  const auto model = recipe.architecture->build(whole_model(recipe, 1));  // the vocabulary's size changes no names
  for (const auto* parameter : model->parameters()) parameters.push_back(parameter->name);
  return parameters;
}

std::string own_table(const Recipe& recipe) {
  const auto& given = recipe.training.load_checkpoint;
  if (const auto* format = given ? recipe.formats.of(*given) : nullptr)
    if (auto table = format->weights_table(*given, recipe.mappings); !table.empty()) return table;
  return nearest_table(recipe.mappings, parameters_of(recipe));
}

/// The tables of a recipe, and which of them is the model's own.
struct AliasTables {
  Recipe recipe;
  AliasRows rows;
  std::once_flag once;
  std::string own;
};

/// `recipe` without what asks these functions itself.
Recipe without_plans(Recipe recipe) {
  recipe.adapters = nullptr;
  recipe.trained_layers = nullptr;
  return recipe;
}

/// The name under which the tables have `module`: a layer of multi-token prediction is made as those of the decoder.
std::string in_tables(const std::string& module) {
  const std::string begin = "mtp.layers.", middle = ".transformer_layer.";
  const auto at = module.find(middle);
  if (!module.starts_with(begin) || at == std::string::npos) return module;
  return "decoder.layers." + module.substr(begin.size(), at - begin.size()) + "." + module.substr(at + middle.size());
}

}  // namespace

training::ModuleList module_list(const Recipe& recipe) {
  return [plain = std::make_shared<const Recipe>(without_plans(recipe))] {
    std::vector<std::string> modules;
    for (const auto& parameter : parameters_of(*plain))
      if (auto module = module_of(parameter)) modules.push_back(std::move(*module));
    return modules;
  };
}

training::ModuleAliases module_aliases(const Recipe& recipe) {
  const auto tables = std::make_shared<AliasTables>();
  tables->recipe = without_plans(recipe);
  tables->rows = rows_of(recipe.mappings);
  return [tables](const std::string& module) {
    std::call_once(tables->once, [&] { tables->own = own_table(tables->recipe); });
    std::vector<training::ModuleAlias> all;
    const auto known = in_tables(module);
    const auto rows = tables->rows.find(without_numbers(known));
    if (rows == tables->rows.end()) return all;
    std::optional<Numbers> numbers;
    const std::string* read = nullptr;  // of what row the numbers are; most tables spell our names alike
    for (const auto& row : rows->second) {
      if (!read || *read != row.ours) numbers = numbers_in(row.ours, known);
      read = &row.ours;
      if (!numbers) continue;
      for (auto alias : row.theirs) {
        // Other programs number the layers of multi-token prediction behind those of the decoder.
        alias.name = replaced(alias.name, places[0], known == module ? (*numbers)[0] : "mtp" + (*numbers)[0]);
        alias.name = replaced(alias.name, places[1], (*numbers)[1]);
        alias.own = !row.table.empty() && row.table == tables->own;
        all.push_back(std::move(alias));
      }
    }
    return all;
  };
}

}  // namespace tessera::recipe
