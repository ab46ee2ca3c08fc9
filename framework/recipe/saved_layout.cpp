#include "framework/recipe/saved_layout.h"

#include "framework/model/gpt_options.h"

namespace tessera {

CheckpointLayout saved_layout(const Recipe& recipe, std::int64_t data_ranks) {
  CheckpointLayout layout;
  layout.tensor = recipe.parallel.tensor_model_parallel_size;
  layout.data = data_ranks;
  layout.distributed_optimizer = recipe.shares_optimizer();
  layout.layers = recipe.layer_plan().layers_by_chunk();
  return layout;
}

bool is_gated(const Recipe& recipe) {
  const auto* gpt = recipe.model.options<GptOptions>();
  return gpt != nullptr && is_gated(gpt->feed_forward());
}

}  // namespace tessera
