#pragma once

#include <optional>
#include <string>
#include <vector>

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
/// embedding, the others receive the output of the chunk before; the last one has the final norm, the output layer and
/// the loss.
struct ModelChunk {
  bool embedding = false;
  std::int64_t first_layer = 0;  ///< index in the whole model
  std::int64_t layers = 0;       ///< number of layers, with no-op layers
  bool loss = false;
  std::optional<ChunkRecompute> recompute = {};  ///< set by the recompute lists; absent: model_config decides
  int chunk = 0, chunks = 1;                     ///< index of the chunk among the chunks of its stage, and their number
  std::vector<std::int64_t> noop = {};  ///< indices in the whole model of layers that do nothing (no-op layers)

  /// Index after the last layer.
  std::int64_t end_layer() const { return first_layer + layers; }
  bool operator==(const ModelChunk&) const = default;
};

/// A tower of a model: consecutive layers of one kind, such as an encoder or a decoder.
struct Tower {
  std::string name = "decoder";                    ///< its layers are named "<name>.layers.<index in the tower>"
  std::string option = "model_config.num_layers";  ///< the option with the number of its layers
  std::int64_t layers = 0;
  bool operator==(const Tower&) const = default;
};

/// The towers of a model in the order of the forward pass. Layers of the whole model are numbered through all of them.
class Towers {
 public:
  /// A model of one tower with `layers` layers.
  Towers(std::int64_t layers = 0) : towers_{{.layers = layers}} {}
  explicit Towers(std::vector<Tower> towers) : towers_(std::move(towers)) {}

  const std::vector<Tower>& all() const { return towers_; }
  std::int64_t layers() const;  ///< of all towers together
  /// The options with the numbers of layers, for messages: "num_layers", "encoder_layers + decoder_layers"; of the same
  /// name with their groups.
  std::string options() const;

  /// Consecutive layers of one tower: [first, first + layers) within it.
  struct Part {
    std::size_t tower = 0;
    std::int64_t first = 0, layers = 0;
    bool operator==(const Part&) const = default;
  };
  /// The layers of `chunk`, tower by tower. A tower of which it has none is left out.
  std::vector<Part> parts(const ModelChunk& chunk) const;
  /// Whether `chunk` has the first layer of a tower after the first tower.
  bool begins_tower(const ModelChunk& chunk) const;
  /// The layers of `chunk` in words: "0-3"; of a model with several towers "encoder 4-5, decoder 0". Empty: no layers.
  std::string told(const ModelChunk& chunk) const;

 private:
  std::vector<Tower> towers_;
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
  explicit LayerPlan(const Towers& towers = {});
  /// The plan that the options describe, for a model with these towers. A chunk may have layers of several towers.
  /// Throws ConfigError with all mistakes, one per line.
  LayerPlan(const ParallelOptions& options, const Towers& towers);

  /// Returns what is wrong with the options for a model with these towers; empty: the plan can be made.
  static std::vector<options::Finding> mistakes(const ParallelOptions& options, const Towers& towers);

  std::int64_t stages() const { return static_cast<std::int64_t>(chunks_.size()); }
  std::int64_t chunks() const { return static_cast<std::int64_t>(chunks_[0].size()); }  ///< chunks per stage
  std::int64_t layers() const { return towers_.layers(); }                              ///< layers of the whole model
  const Towers& towers() const { return towers_; }
  /// The functions below throw BugError for a stage, chunk or layer outside the plan.
  const ModelChunk& at(std::int64_t stage, std::int64_t chunk) const;
  /// The chunks of one stage.
  const std::vector<ModelChunk>& stage(std::int64_t stage) const;
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
  Towers towers_;
  std::vector<std::vector<ModelChunk>> chunks_;
  std::vector<std::int64_t> noops_;
};

}  // namespace tessera::parallel
