#include "framework/model/recomputed_layers.h"

#include <algorithm>

namespace tessera::model {
namespace {

/// How many layers of this chunk are among the first `count` layers: of this chunk, or with
/// enable_recompute_layers_per_pp_rank of all chunks of the rank, in the order first layer of every chunk, second layer
/// of every chunk, ...
std::int64_t in_chunk(const GptOptions& o, const parallel::ModelChunk& chunk, std::int64_t count) {
  if (!o.enable_recompute_layers_per_pp_rank) return count;
  return std::max<std::int64_t>(0, count - chunk.chunk + chunk.chunks - 1) / chunk.chunks;
}

std::int64_t recomputed_by_block(const GptOptions& o) {
  const bool block = o.recompute_granularity == Recomputation::full && o.recompute_method == RecomputedLayers::block;
  return block ? *o.recompute_num_layers : 0;
}

/// What is done where the options do not say. It took up to 6 % of a step of GPT-2 124M (width 768) with adapters; the
/// share falls as the width grows, because products have width times as many operations: to about 2 % at 2048.
bool recomputes_by_default(const GptOptions& o, const parallel::ModelChunk& chunk, bool adapted) {
  const bool together = !chunk.recompute && o.recompute_granularity == Recomputation::full &&
                        o.recompute_method != RecomputedLayers::block;  // then no layer is behind those
  return adapted && o.hidden_size >= wide_layers && !together;
}

/// Whether layer `at` is one of the `count` layers after the layers that are recomputed fully; `count` absent: one of
/// all layers after them.
bool behind_full(const GptOptions& o, const parallel::ModelChunk& chunk, std::optional<std::int64_t> at,
                 const std::optional<std::int64_t>& count) {
  if (!at) return !recomputes_layers(o, chunk) && !count;
  const auto full = layers_recomputed_alone(o, chunk);
  if (*at < full || !count) return *at >= full;
  return *at <
         (chunk.recompute ? full + in_chunk(o, chunk, *count) : in_chunk(o, chunk, recomputed_by_block(o) + *count));
}

}  // namespace

bool recomputes_layers(const GptOptions& o, const parallel::ModelChunk& chunk) {
  return chunk.recompute ? chunk.recompute->layers > 0 : o.recompute_granularity == Recomputation::full;
}

std::int64_t layers_recomputed_alone(const GptOptions& o, const parallel::ModelChunk& chunk) {
  return chunk.recompute ? chunk.recompute->layers : in_chunk(o, chunk, recomputed_by_block(o));
}

bool recomputes_norms(const GptOptions& o, const parallel::ModelChunk& chunk, std::optional<std::int64_t> at,
                      bool adapted) {
  return o.recomputes(RecomputedModule::layernorm) ||
         (o.recompute_norm.value_or(recomputes_by_default(o, chunk, adapted)) &&
          behind_full(o, chunk, at, o.recompute_norm_num_layers));
}

bool recomputes_activation(const GptOptions& o, const parallel::ModelChunk& chunk, std::optional<std::int64_t> at,
                           bool adapted) {
  return o.recompute_activation_function.value_or(recomputes_by_default(o, chunk, adapted)) &&
         behind_full(o, chunk, at, o.recompute_activation_function_num_layers);
}

}  // namespace tessera::model
