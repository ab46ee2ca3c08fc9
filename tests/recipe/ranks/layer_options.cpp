// Options of single layers and factors between them, on layouts that cut the layers.
#include "tests/recipe/ranks/runs.h"

namespace tessera::recipe {
namespace {

TEST_F(RunsOfRanks, WithPositionsOfTheLayersOwnAndFactorsHaveTheLossesOfOneRank) {
  expect_same({m + "position_embedding_type=rope", m + "no_rope_freq=[0, 1, 0, 0]", m + "sliding_window=5",
               m + "layer_types=[sliding_attention, full_attention]", m + "rope_local_base_freq=50",
               m + "embedding_multiplier=3", m + "residual_multiplier=0.5", m + "output_multiplier=0.7",
               m + "use_sandwich_norm=true"},
              {{p + "pipeline_model_parallel_size=4"}});
}

TEST_F(RunsOfRanks, WithBiasesByDistanceAndSinksHaveTheLossesOfOneRank) {
  const Lines model = {m + "position_embedding_type=alibi", m + "softmax_type=learnable", m + "embed_layernorm=true",
                       m + "sliding_window=7", m + "layer_types=[sliding_attention, full_attention]"};
  expect_same(model, {{p + "tensor_model_parallel_size=4"},
                      {p + "tensor_model_parallel_size=2", p + "use_sequence_parallel=true",
                       p + "pipeline_model_parallel_size=2"},
                      {p + "context_parallel_size=4", p + "zero_level=z1"},
                      {p + "context_parallel_size=2", p + "cp_comm_type=a2a", p + "tensor_model_parallel_size=2"}});
  Lines rounded = model;
  for (const char* line : {"round_alibi=true", "scale_alibi=true", "group_query_attention=true", "num_query_groups=2",
                           "recompute_granularity=selective"})
    rounded.push_back(m + line);
  expect_same(rounded, {{p + "tensor_model_parallel_size=4"}, {p + "context_parallel_size=4"}});
}

}  // namespace
}  // namespace tessera::recipe
