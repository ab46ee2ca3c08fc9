#pragma once

#include <filesystem>
#include <string>

#include "framework/recipe/adapter_reader.h"
#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// The reader of adapters of PEFT that `registries` has. Throws ConfigError if this program has none.
const AdapterReader& peft_reader(const Registries& registries);

/// Opens an adapter folder of PEFT for the model of `recipe` with the weights `base`, as AdapterReader::open.
OpenedAdapter open_peft_adapter(const Recipe& recipe, const std::filesystem::path& folder,
                                const checkpoint::OpenedCheckpoint& base);

/// What to say of an adapter in `folder` that calls its base `named`, if no folder of the path `base` is called so;
/// empty: one is, or it names none. The name is all that PEFT keeps of a base; shapes are compared when it is opened.
std::string note_of_other_base(const std::filesystem::path& folder, const std::string& named, const std::string& base);

}  // namespace tessera::recipe
