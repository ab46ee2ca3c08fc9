#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/options/value.h"

namespace tessera::golden {

/// Go through an arguments.json of a model case, "dest" name by "dest" name of Megatron-LM's arguments: `set` is called
/// with the path of each option of ours that one says, "moe_config.moe_router_topk", and its value. What an argument
/// says is in mappings/flags/megatron.yaml, in the row of its flag; those that config.json, the tensors or the curve
/// say too are passed over. Throws ConfigError, naming the argument, for one without a row or whose row refuses it.
void read_arguments(const nlohmann::json& arguments,
                    const std::function<void(const std::string& path, const options::Value& value)>& set);

}  // namespace tessera::golden
