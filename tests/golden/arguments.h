#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace tessera::golden {

/// What arguments.json of a case (Megatron-LM's names) says of the model and config.json may not know.
///
/// Throws ConfigError naming the first argument that nobody here understands, or whose value asks for what is not
/// built. Calls `set` with an option of model_config and its value, for each argument that differs from Megatron-LM's
/// default.
void read_arguments(const nlohmann::json& arguments,
                    const std::function<void(const std::string& option, const nlohmann::json& value)>& set);

}  // namespace tessera::golden
