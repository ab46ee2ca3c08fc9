#pragma once

#include <string>

#include "framework/options/mappings.h"
#include "framework/options/schema.h"

namespace tessera::cli {

/// The folder of the adapter that `input` names: an adapter_config.json of PEFT, or a folder that has one. Empty: it
/// names something else.
std::string adapter_folder(const std::string& input);

/// A recipe with the group lora_config of an adapter of PEFT, to be laid on one that says model and data; it starts
/// from the adapter if its tensors are there. Logs what became of every key. Throws ConfigError that names every key
/// that cannot be converted.
std::string recipe_of_adapter(const std::string& folder, const options::Facts& facts,
                              const options::Mappings& mappings);

}  // namespace tessera::cli
