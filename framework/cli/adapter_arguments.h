#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/cli/command.h"
#include "framework/recipe/saved_model.h"

namespace tessera::cli {

/// [--adapter NAME=FOLDER ...]: adapters to use a model with, each beside its weights.
void add_adapter_arguments(Command& command, std::vector<std::string>& given);

/// Calls `use` with the model of `folder` and an empty name; with adapters, first with the name "base", then with that
/// of each adapter and the model with it. All adapters are opened before the first call; one model is in memory at a
/// time. Throws ConfigError for an argument that is not NAME=FOLDER and a name given twice, and as recipe::open_adapted
/// and load_trained do.
void for_each_adapter(const std::string& folder, const std::vector<std::string>& given,
                      const recipe::Registries& registries,
                      const std::function<void(const std::string& name, const recipe::TrainedModel& model)>& use);

}  // namespace tessera::cli
