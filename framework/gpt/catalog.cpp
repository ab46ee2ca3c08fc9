#include "framework/gpt/catalog.h"

namespace tessera::gpt {

void register_gpt(data::DatasetRegistry&);
void register_mock(data::DatasetRegistry&);

void register_datasets(data::DatasetRegistry& registry) {
  register_gpt(registry);
  register_mock(registry);
}

}  // namespace tessera::gpt
