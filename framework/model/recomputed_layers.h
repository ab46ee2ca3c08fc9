#pragma once

#include "framework/model/gpt_options.h"
#include "framework/model/model.h"

namespace tessera::model {

// Which layers of a pipeline chunk the backward pass computes again. Layers are counted from the chunk's first, without
// no-op layers. Sources: Megatron-LM core, TransformerBlock; MindSpeed, recompute_common.

/// Whether some of the chunk's layers are recomputed fully; those of multi-token prediction then are too.
bool recomputes_layers(const GptOptions& o, const ModelChunk& chunk);
/// The number of the chunk's layers, from its first, that are recomputed fully and one by one: those of
/// recompute_method block, or of the recompute lists. May be more than there are.
std::int64_t layers_recomputed_alone(const GptOptions& o, const ModelChunk& chunk);

/// Whether layer `at` recomputes the norms before its branches, or the activation function of its feed-forward network;
/// nullopt: a layer of multi-token prediction, which a number of layers does not include.
bool recomputes_norms(const GptOptions& o, const ModelChunk& chunk, std::optional<std::int64_t> at);
bool recomputes_activation(const GptOptions& o, const ModelChunk& chunk, std::optional<std::int64_t> at);

}  // namespace tessera::model
