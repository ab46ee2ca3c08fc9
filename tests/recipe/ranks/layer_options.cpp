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

}  // namespace
}  // namespace tessera::recipe
