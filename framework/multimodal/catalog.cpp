#include "framework/multimodal/catalog.h"

namespace tessera::multimodal {

void register_mllm(data::DatasetRegistry&);

void register_datasets(data::DatasetRegistry& registry) {
  // One call for each type.
  register_mllm(registry);
}

}  // namespace tessera::multimodal
