#pragma once

#include <array>

#include "framework/parallel/mesh.h"
#include "framework/recipe/recipe.h"
#include "framework/resilience/coverage.h"
#include "framework/training/state/model_state.h"

namespace tessera::recipe {

/// What one rank of a run holds in memory.
struct RankFigures {
  parallel::MeshPlace place;
  std::int64_t parameters = 0;      ///< elements of its shards of the parameters
  training::StateBytes state = {};  ///< bytes of weights (frozen ones too), main gradients and optimizer state
  std::int64_t kept = 0;   ///< bytes of the state file that holds its state if resilience_config.policy is memory
  std::int64_t saved = 0;  ///< bytes of trained weights and optimizer state that it writes to a checkpoint
  std::array<std::int64_t, 2> copy = {};  ///< bytes of a copy of its shards on another rank: dense layers, experts
};

/// How a run is divided over ranks, computed without a run. All numbers are exact.
struct LayoutFigures {
  parallel::Mesh mesh;
  parallel::LayerPlan plan;
  std::vector<RankFigures> ranks;
  parallel::PipelineShape shape;  ///< of one step on one replica
  /// [stage][chunk]: number of weight elements that a token is multiplied with.
  std::vector<std::vector<double>> costs;
  std::vector<double> flops = {};  ///< [stage]: floating-point operations of one step of the run, as Figures has them
  std::int64_t experts = 0;        ///< experts of each mixture-of-experts layer; 0: the model has none
  std::vector<resilience::SharedShard> shards = {};  ///< state shards that are replicated, and the ranks that hold them

  /// Pipeline bubble: the fraction of time that stages wait, with `costs` as the time of a chunk.
  double bubble() const;
};

/// Computes the figures of a run of `world` ranks, for which check_ranks finds no mistake. Makes the chunks of every
/// stage, without memory for weights, and counts them. Reads tokenizer files. Throws ConfigError if one is missing.
LayoutFigures layout_figures(const Recipe& recipe, std::int64_t world);

/// The layers of one stage, chunk by chunk: "embedding, 0-3 | 16-19".
std::string layers_told(const parallel::LayerPlan& plan, std::int64_t stage);

}  // namespace tessera::recipe
