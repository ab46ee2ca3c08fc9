#pragma once

#include "framework/gpt/catalog.h"

namespace tessera::gpt {

/// The registry with the dataset types of this component.
inline data::DatasetRegistry datasets() {
  auto registry = data::dataset_registry();
  register_datasets(registry);
  return registry;
}

}  // namespace tessera::gpt
