#pragma once

#include <filesystem>

#include "framework/recipe/adapter_reader.h"
#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// The reader of adapters of PEFT that `registries` has. Throws ConfigError if this program has none.
const AdapterReader& peft_reader(const Registries& registries);

/// Opens an adapter folder of PEFT for the model of `recipe` with the weights `base`, as AdapterReader::open.
OpenedAdapter open_peft_adapter(const Recipe& recipe, const std::filesystem::path& folder,
                                const checkpoint::OpenedCheckpoint& base);

}  // namespace tessera::recipe
