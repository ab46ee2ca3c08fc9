#include "framework/model/architecture.h"

namespace tessera::model {

void register_gpt(ModelRegistry&);
void register_cross_entropy(ObjectiveRegistry&);

ModelRegistry models() {
  ModelRegistry registry("model_type", "gpt", "Model architecture.");
  registry.when_changed(options::Change::weights);
  register_gpt(registry);
  return registry;
}

ObjectiveRegistry objectives() {
  ObjectiveRegistry registry("objective", "cross_entropy", "The function that training minimises.");
  registry.when_changed(options::Change::told);
  registry.no_flag("only Tessera has it");
  register_cross_entropy(registry);
  return registry;
}

}  // namespace tessera::model
