#include "framework/cli/adapter_arguments.h"

#include <algorithm>
#include <utility>

#include "framework/recipe/adapted_model.h"

namespace tessera::cli {
namespace {

const std::string of_base = "base";

using NamedFolder = std::pair<std::string, std::string>;

NamedFolder named_folder(const std::string& given) {
  const auto equals = given.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == given.size())
    throw ConfigError(text("--adapter ", given, ": expected NAME=FOLDER, as in --adapter chat=runs/chat_adapter"));
  return {given.substr(0, equals), given.substr(equals + 1)};
}

std::vector<NamedFolder> named_folders(const std::vector<std::string>& given) {
  std::vector<NamedFolder> all;
  for (const auto& one : given) {
    auto named = named_folder(one);
    if (named.first == of_base)
      throw ConfigError(text("--adapter ", one, ": the name base is that of the model without adapters; give another"));
    if (std::any_of(all.begin(), all.end(), [&](const auto& other) { return other.first == named.first; }))
      throw ConfigError(
          text("--adapter ", one, ": the name ", named.first, " is given twice; give each adapter its own"));
    all.push_back(std::move(named));
  }
  return all;
}

}  // namespace

void add_adapter_arguments(Command& command, std::vector<std::string>& given) {
  command
      .add_option("--adapter", given,
                  "Adapter folder of PEFT, or checkpoint of a run with adapters, that was trained on FOLDER; may be "
                  "repeated: the result is given for the model without adapters and with each of them")
      ->type_name("NAME=FOLDER")
      ->one_value_each();
}

void for_each_adapter(const std::string& folder, const std::vector<std::string>& given,
                      const recipe::Registries& registries,
                      const std::function<void(const std::string& name, const recipe::TrainedModel& model)>& use) {
  std::vector<std::pair<std::string, recipe::AdaptedModel>> adapters;
  for (const auto& [name, adapter] : named_folders(given))
    adapters.emplace_back(name, recipe::open_adapted(adapter, folder, registries));
  use(adapters.empty() ? "" : of_base, recipe::load_trained(folder, registries));
  for (const auto& [name, adapted] : adapters) use(name, recipe::load_adapted(adapted));
}

}  // namespace tessera::cli
