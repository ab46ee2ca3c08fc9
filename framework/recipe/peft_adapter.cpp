#include "framework/recipe/peft_adapter.h"

#include "framework/checkpoint/find.h"

namespace tessera::recipe {

const AdapterReader& peft_reader(const Registries& registries) {
  if (!registries.adapters) throw ConfigError(checkpoint::no_interop);
  return *registries.adapters;
}

OpenedAdapter open_peft_adapter(const Recipe& recipe, const std::filesystem::path& folder,
                                const checkpoint::OpenedCheckpoint& base) {
  return peft_reader(*recipe.registries).open(folder, recipe, base);
}

OpenedAdapter open_peft_adapter(const Recipe& recipe, const std::filesystem::path& folder) {
  const auto& given = recipe.training.load_checkpoint;
  if (!given)
    throw ConfigError(text(
        folder.string(), ": an adapter needs the model that it was trained on; give training_config.load_checkpoint"));
  const auto found = checkpoint::find_checkpoints(*given, recipe.formats);
  return open_peft_adapter(recipe, folder, *checkpoint::open_checkpoint(found.front(), recipe.mappings));
}

}  // namespace tessera::recipe
