#include "framework/instructions/catalog.h"

namespace tessera::instructions {

void register_sft(data::DatasetRegistry&);
void register_instruction(data::DatasetRegistry&);

void register_datasets(data::DatasetRegistry& registry) {
  register_sft(registry);
  register_instruction(registry);
}

}  // namespace tessera::instructions
