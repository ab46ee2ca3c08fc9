#include "framework/gpt/catalog.h"

#include "framework/instructions/catalog.h"
#include "framework/multimodal/catalog.h"
#include "framework/recipe/registries.h"

namespace tessera::recipe {

data::DatasetRegistry datasets() {
  auto registry = data::dataset_registry();
  gpt::register_datasets(registry);
  instructions::register_datasets(registry);
  multimodal::register_datasets(registry);
  return registry;
}

}  // namespace tessera::recipe
