#include "framework/multimodal/catalog.h"

namespace tessera::multimodal {

void register_mllm(data::DatasetRegistry&);

void register_datasets(data::DatasetRegistry& registry) { register_mllm(registry); }

}  // namespace tessera::multimodal
