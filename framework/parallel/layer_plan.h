#pragma once

#include <optional>

#include "framework/parallel/parallel_options.h"

namespace tessera::parallel {

/// Activation recomputation in one chunk. `layers`: the first layers of the chunk, recomputed completely. Of the layers
/// after those, `attention`: number of layers that recompute the attention core; `gather`: number of layers that repeat
/// the sequence-parallel all-gather.
struct ChunkRecompute {
  std::int64_t layers = 0, attention = 0, gather = 0;
  bool operator==(const ChunkRecompute&) const = default;
};

/// A model chunk (virtual pipeline stage): consecutive layers, possibly none. The first chunk of the model has the
/// embedding; the last one has the final norm, the output layer and the loss.
struct Chunk {
  bool embedding = false;
  std::int64_t first_layer = 0;  ///< index in the whole model
  std::int64_t layers = 0;
  bool loss = false;
  std::optional<ChunkRecompute> recompute = {};  ///< set by the recompute lists; absent: model_config decides

  /// Index after the last layer.
  std::int64_t end_layer() const { return first_layer + layers; }
  bool operator==(const Chunk&) const = default;
};

/// The assignment of a model's layers to pipeline stages. A chunk is addressed as [stage][chunk]. The forward pass goes
/// through chunk 0 of all stages, then through chunk 1 of all stages, and so on; layers are numbered in that order.
///
/// Sources: Megatron-LM core_v0.12.1 (argument validation, get_transformer_layer_offset) and its later
/// PipelineParallelLayerLayout; MindSpeed-Core-MS r0.1.0 for num_layer_list, the automatic division and the standalone
/// embedding stage.
class LayerPlan {
 public:
  /// Address of a chunk.
  struct ChunkIndex {
    std::int64_t stage = 0, chunk = 0;
    bool operator==(const ChunkIndex&) const = default;
  };

  /// A plan with all layers in one chunk.
  explicit LayerPlan(std::int64_t layers = 0);
  /// The plan that the options describe, for a model with `layers` layers. Throws ConfigError with all mistakes, one
  /// per line.
  LayerPlan(const ParallelOptions& options, std::int64_t layers);

  /// Returns what is wrong with the options for a model with `layers` layers; empty: the plan can be made.
  static std::vector<options::Finding> mistakes(const ParallelOptions& options, std::int64_t layers);

  std::int64_t stages() const { return static_cast<std::int64_t>(chunks_.size()); }
  std::int64_t chunks() const { return static_cast<std::int64_t>(chunks_[0].size()); }  ///< chunks per stage
  std::int64_t layers() const { return layers_; }                                       ///< layers of the whole model
  /// The functions below throw BugError for a stage, chunk or layer outside the plan.
  const Chunk& at(std::int64_t stage, std::int64_t chunk) const;
  /// The chunks of one stage.
  const std::vector<Chunk>& stage(std::int64_t stage) const;
  /// Number of layers in each chunk, [stage][chunk].
  std::vector<std::vector<std::int64_t>> layers_by_chunk() const;
  /// The chunk that contains a layer.
  ChunkIndex of_layer(std::int64_t layer) const;

  /// Whether the layer is a no-op without weights (option noop_layers).
  bool noop(std::int64_t layer) const;
  const std::vector<std::int64_t>& noop_layers() const { return noops_; }  ///< in ascending order

  /// The chunk that receives the output of this one; absent for the last.
  std::optional<ChunkIndex> after(ChunkIndex place) const;
  /// The chunk whose output this one receives; absent for the first.
  std::optional<ChunkIndex> before(ChunkIndex place) const;

  /// Text with one line per stage: "stage 0 | embedding, layers 0-3 | layers 8-11".
  std::string drawing() const;

 private:
  std::vector<std::vector<Chunk>> chunks_;
  std::int64_t layers_ = 0;
  std::vector<std::int64_t> noops_;
};

}  // namespace tessera::parallel
