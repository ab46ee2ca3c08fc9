#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/options/value.h"
#include "framework/tensor/weight_part.h"

namespace tessera::megatron {

/// The parts of a model's weights that each tensor-parallel rank has, [rank], by the names of the weights.
using TensorParallelParts = std::vector<std::map<std::string, WeightPart>>;

/// Those of the model that `recipe` describes, of which only model_config and moe_config are read, with `rows` rows of the vocabulary,
/// on so many ranks: constructs the model of every rank, without memory for weights. Throws ConfigError if model_config
/// describes no model, or one that cannot be divided over so many ranks.
TensorParallelParts tensor_parallel_parts(const options::Value& recipe, std::int64_t rows, std::int64_t ranks);

}  // namespace tessera::megatron
