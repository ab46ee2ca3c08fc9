#include "framework/model/architecture.h"

namespace tessera::model {

void register_gpt(ModelRegistry&);

ModelRegistry models() {
  ModelRegistry registry("model_type", "gpt", "Model architecture.");
  registry.when_changed(options::Change::weights);
  register_gpt(registry);
  return registry;
}

}  // namespace tessera::model
