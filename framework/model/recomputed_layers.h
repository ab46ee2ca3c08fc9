#pragma once

#include "framework/model/gpt_options.h"
#include "framework/model/model.h"

namespace tessera::model {

// Decides which layers of a pipeline chunk the backward pass recomputes. Layers are counted from the chunk's first
// layer, without no-op layers. Sources: Megatron-LM core, TransformerBlock; MindSpeed, recompute_common.

/// Whether layers of the chunk are recomputed fully. If so, the layers of multi-token prediction are too.
bool recomputes_layers(const GptOptions& o, const parallel::ModelChunk& chunk);
/// Number of layers, from the chunk's first layer on, that are recomputed fully, each on its own: with recompute_method
/// block, or by the recompute lists (ModelChunk::recompute). May exceed the number of layers of the chunk.
std::int64_t layers_recomputed_alone(const GptOptions& o, const parallel::ModelChunk& chunk);

/// hidden_size from which on a layer is wide.
constexpr std::int64_t wide_layers = 2048;

/// Whether layer `at` recomputes the norms before its branches (recomputes_norms) or the activation function of its
/// feed-forward network (recomputes_activation). `at` nullopt: a layer of multi-token prediction; options that limit
/// the number of layers do not include it. `adapted`: the model has adapters; then both are the default of
/// wide layers, because products with frozen weights need no inputs, and those of the adapters get them again.
bool recomputes_norms(const GptOptions& o, const parallel::ModelChunk& chunk, std::optional<std::int64_t> at,
                      bool adapted);
bool recomputes_activation(const GptOptions& o, const parallel::ModelChunk& chunk, std::optional<std::int64_t> at,
                           bool adapted);

}  // namespace tessera::model
