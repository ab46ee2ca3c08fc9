#include "framework/data/dataset.h"

namespace tessera::data {

DatasetRegistry dataset_registry() {
  DatasetRegistry registry("dataset_type", "gpt", "Dataset type.");
  registry.when_changed(options::Change::order);
  return registry;
}

void register_single(SamplerRegistry&);
void register_cyclic(SamplerRegistry&);

SamplerRegistry samplers() {
  SamplerRegistry registry("dataloader_type", "single", "Order of the training samples.");
  registry.when_changed(options::Change::order);
  register_single(registry);
  register_cyclic(registry);
  return registry;
}

}  // namespace tessera::data
