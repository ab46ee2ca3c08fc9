#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/checkpoint/layout.h"
#include "framework/model/model.h"
#include "framework/options/value.h"
#include "framework/tensor/weight_part.h"

namespace tessera::megatron {

/// The parts of a model's weights that each rank of a stage has, [rank] below CheckpointLayout::ranks(), by the names
/// of the weights.
using RankParts = std::vector<std::map<std::string, WeightPart>>;

/// The parts of a model that a rank of the layout constructs, its stages aside.
model::ModelParts megatron_model_parts(const checkpoint::CheckpointLayout& layout, std::int64_t rank);

/// Those of the model that `recipe` describes, of which only model_config and moe_config are read, with
/// layout.vocabulary rows of the vocabulary (0: as the recipe says), on the ranks of the layout without its stages:
/// constructs the model of every rank, without memory for weights. Throws ConfigError if model_config describes no
/// model, or one that cannot be divided over these ranks.
RankParts rank_parts(const options::Value& recipe, const checkpoint::CheckpointLayout& layout);

}  // namespace tessera::megatron
