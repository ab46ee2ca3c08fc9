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
  expect_same(model,
              {{p + "tensor_model_parallel_size=4"},
               {p + "tensor_model_parallel_size=2", p + "sequence_parallel=true", p + "pipeline_model_parallel_size=2"},
               {p + "context_parallel_size=4", p + "zero_level=z1"},
               {p + "context_parallel_size=2", p + "cp_comm_type=a2a", p + "tensor_model_parallel_size=2"}});
  Lines rounded = model;
  for (const char* line : {"round_alibi=true", "scale_alibi=true", "group_query_attention=true", "num_query_groups=2",
                           "recompute_granularity=selective"})
    rounded.push_back(m + line);
  expect_same(rounded, {{p + "tensor_model_parallel_size=4"}, {p + "context_parallel_size=4"}});
}

/// With four ranks each key head has a copy: its square counts once.
TEST_F(RunsOfRanks, WithOneNormOverAllHeadsAndNormsBehindTheLayersHaveTheLossesOfOneRank) {
  expect_same({m + "position_embedding_type=rope", m + "normalization=RMSNorm", m + "use_pre_norm=false",
               m + "use_sandwich_norm=true", m + "qk_layernorm=true", m + "qk_layernorm_all_heads=true",
               m + "group_query_attention=true", m + "num_query_groups=2", m + "add_bias_linear=false",
               "training_config.use_distributed_optimizer=true"});
}

TEST_F(RunsOfRanks, WithParallelBranchesAndABiasOfTheOutputLayerHaveTheLossesOfOneRank) {
  for (const std::string untied : {"true", "false"})
    expect_same({m + "position_embedding_type=rope", m + "rotary_percent=0.5", m + "use_parallel_residual=true",
                 m + "shared_parallel_norm=true", m + "output_layer_has_bias=true",
                 m + "untie_embeddings_and_output_weights=" + untied, m + "embedding_dropout_rate=0.3"});
}

TEST_F(RunsOfRanks, WithPositionsBehindAnOffsetHaveTheLossesOfOneRank) {
  expect_same({m + "position_embedding_offset=2", m + "hidden_act=relu", m + "embedding_padding_token=3"});
}

TEST_F(RunsOfRanks, WithLongropeHaveTheLossesOfOneRank) {
  expect_same({m + "position_embedding_type=rope", m + "rope_scaling_type=longrope",
               m + "rope_scaling_original_max_position_embeddings=9", m + "rope_scaling_short_factor=[1.0, 1.5]",
               m + "rope_scaling_long_factor=[2.0, 5.0]"});
}

TEST_F(RunsOfRanks, WithBiasesAndBoundsOfExpertsHaveTheLossesOfOneRank) {
  expect_same_on(
      {{},
       {p + "expert_model_parallel_size=4"},
       {p + "tensor_model_parallel_size=2", p + "sequence_parallel=true", p + "expert_model_parallel_size=2"},
       {p + "tensor_model_parallel_size=2", p + "sequence_parallel=true", p + "expert_tensor_parallel_size=1",
        p + "expert_model_parallel_size=4"},
       {p + "pipeline_model_parallel_size=2", p + "expert_model_parallel_size=2", p + "zero_level=z1"}},
      {m + "num_experts=4", m + "add_bias_linear=false", m + "mlp_has_bias=true", m + "hidden_act=quick_geglu",
       m + "activation_func_clamp_value=1.5", m + "glu_linear_offset=1", m + "softmax_type=learnable",
       m + "ffn_hidden_size=16", "moe_config.moe_router_load_balancing_type=none"});
}

}  // namespace
}  // namespace tessera::recipe
