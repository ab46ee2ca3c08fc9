#pragma once

#include <array>

#include "framework/parallel/mesh.h"
#include "framework/recipe/recipe.h"
#include "framework/resilience/coverage.h"
#include "framework/training/model_state.h"

namespace tessera::recipe {

/// What one rank of a run holds.
struct RankFigures {
  parallel::MeshPlace place;
  std::int64_t parameters = 0;      ///< elements of its own parts of them
  training::StateBytes state = {};  ///< weights, main gradients and optimizer state, as they lie in memory
  std::int64_t kept = 0;            ///< bytes of the state file that has them under resilience_config.policy memory
  std::array<std::int64_t, 2> copy = {};  ///< bytes of a copy of its shards of each part, on another rank
};

/// How a run is divided over ranks, before anything runs. All numbers are exact.
struct LayoutFigures {
  parallel::Mesh mesh;
  parallel::LayerPlan plan;
  std::vector<RankFigures> ranks;
  parallel::PipelineShape shape;           ///< of a whole step on one replica
  std::vector<std::vector<double>> costs;  ///< [stage][chunk]: elements of the weights that a token is multiplied with
  std::int64_t experts = 0;                ///< of each mixture of experts; 0: the model has none
  std::vector<resilience::SharedShard> shards = {};  ///< state that ranks have alike

  /// Fraction of the time that stages wait, by these costs.
  double bubble() const;
};

/// Of a run of `world` ranks, which check_ranks finds no mistake in. Counts the real models: constructs the chunks of
/// every stage, without memory for weights. Reads tokenizer files; throws ConfigError for what is missing there.
LayoutFigures layout_figures(const Recipe& recipe, std::int64_t world);

/// "embedding, 0-3 | 16-19": the layers of one stage, chunk by chunk.
std::string layers_told(const parallel::LayerPlan& plan, std::int64_t stage);

}  // namespace tessera::recipe
