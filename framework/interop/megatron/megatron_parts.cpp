#include "framework/interop/megatron/megatron_parts.h"

#include "framework/nn/weight_parts.h"
#include "framework/options/schema.h"

namespace tessera::megatron {

model::ModelParts megatron_model_parts(const checkpoint::CheckpointLayout& layout, std::int64_t rank) {
  return {.vocabulary = layout.vocabulary,
          .tensor = {static_cast<int>(layout.tensor_rank(rank)), static_cast<int>(layout.tensor)},
          .expert = {static_cast<int>(layout.expert_rank(rank)), static_cast<int>(layout.expert),
                     static_cast<int>(layout.expert_tensor_rank(rank)), static_cast<int>(layout.sharers_of_expert())}};
}

RankParts rank_parts(const options::Value& recipe, const checkpoint::CheckpointLayout& layout) {
  options::Report report;
  options::Group group(recipe, "model_config", report);
  const auto choice = model::models().read(group);
  const auto size = options::read_own<model::ModelSizeOptions>(group);
  options::Group experts(recipe, "moe_config", report);
  const auto moe = options::read_own<model::MoeOptions>(experts);
  options::Group visual(recipe, "vision_config", report);
  const auto vision = options::read_own<model::VisionOptions>(visual);
  report.must_be_good();
  const auto architecture = choice.make({size.seq_length, moe, vision});
  RankParts all;
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
    auto parts = megatron_model_parts(layout, rank);
    if (parts.vocabulary == 0) parts.vocabulary = size.vocab_size.value_or(0);
    const auto model = architecture->build(parts);
    auto& own = all.emplace_back();
    for (auto& part : nn::held_parts(model->parameters())) own.emplace(part.name, part);
  }
  return all;
}

}  // namespace tessera::megatron
