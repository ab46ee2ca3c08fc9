#include "framework/recipe/peft_adapter.h"

namespace tessera::recipe {

const AdapterReader& peft_reader(const Registries& registries) {
  if (!registries.adapters) throw ConfigError(checkpoint::no_interop);
  return *registries.adapters;
}

options::Value AdapterDescription::group() const {
  auto group = lora_config;
  group.set("use_lora", options::Value::of("true", lora_config.origin));
  return group;
}

OpenedAdapter open_peft_adapter(const Recipe& recipe, const std::filesystem::path& folder,
                                const checkpoint::OpenedCheckpoint& base) {
  return peft_reader(*recipe.registries).open(folder, recipe, base);
}

}  // namespace tessera::recipe
