#include "framework/interop/flags/spec_rule.h"

#include <string>

#include "framework/base/error.h"
#include "framework/options/report.h"
#include "framework/recipe/recipe.h"
#include "framework/recipe/rules.h"

namespace tessera::flags {

using recipe::tell;

void check_spec(const recipe::Recipe& recipe, options::Report& report) {
  const std::string spec = "model_config.spec",
                    advice = "leave spec out, and give the options that describe the layers";
  const auto* words = recipe.resolved.at(spec);
  if (words == nullptr || words->kind != options::Value::Kind::list) return;
  std::string name, names;
  for (const auto& word : words->items) name += (name.empty() ? "" : " ") + word.scalar;
  const auto table = recipe.mappings.table("flags/megatron.yaml");
  const auto* flags = table.find("flags");
  const auto* row = flags ? flags->find("--spec") : nullptr;
  if (!row || !row->find("settings") || !row->find("refused_words"))
    throw ConfigError(
        "flags/megatron.yaml has no row --spec with settings and refused_words, which model_config.spec needs; add it, "
        "or leave spec out");
  for (const auto& [known, settings] : row->find("settings")->fields) {
    names += (names.empty() ? "" : ", ") + known;
    if (known != name) continue;
    for (const auto& [option, value] : settings.fields)
      if (const auto* own = recipe.resolved.at(option); own == nullptr || text(*own) != value.scalar)
        tell(recipe, report, "spec", {spec, option},
             text("spec '", name, "' describes layers with ", option, " ", value.scalar, ", but that is ",
                  own == nullptr ? "not given" : text(*own)),
             text("give ", option, ": ", value.scalar, ", or leave spec out"));
    return;
  }
  if (const auto* refused = row->find("refused_words")->find(name))
    tell(recipe, report, "spec", {spec}, text("spec '", name, "' is refused: ", refused->scalar), advice);
  else
    tell(recipe, report, "spec", {spec},
         text("spec '", name, "' is not known, and Python modules are not run; known are: ", names), advice);
}

}  // namespace tessera::flags
