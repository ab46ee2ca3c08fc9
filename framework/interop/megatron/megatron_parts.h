#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/checkpoint/layout.h"
#include "framework/model/architecture.h"
#include "framework/options/value.h"
#include "framework/tensor/weight_part.h"

namespace tessera::megatron {

/// The parts of a model's weights that each rank of a stage holds: [rank], below CheckpointLayout::ranks(), by the name
/// of the weight.
using RankParts = std::vector<std::map<std::string, WeightPart>>;

/// The parts of a model that rank `rank` of the layout makes, without regard to pipeline stages.
model::ModelParts megatron_model_parts(const checkpoint::CheckpointLayout& layout, std::int64_t rank);

/// The parts of the model that `recipe` describes, on the ranks of the layout, without regard to pipeline stages. Only
/// model_config and moe_config of the recipe are read; the vocabulary has layout.vocabulary rows (0: as the recipe
/// says). Makes the model of every rank, without memory for weights. Throws ConfigError if model_config describes no
/// model, or one that cannot be divided over these ranks.
RankParts rank_parts(const options::Value& recipe, const checkpoint::CheckpointLayout& layout);

}  // namespace tessera::megatron
