#pragma once

#include <optional>

#include "framework/parallel/parallel_options.h"

namespace tessera {

/// How many layers of a chunk the backward pass computes again: the first `layers` of it wholly; of the following ones
/// attention in the first `attention`, and the gather of sequence parallelism in the first `gather`.
struct ChunkRecompute {
  std::int64_t layers = 0, attention = 0, gather = 0;
  bool operator==(const ChunkRecompute&) const = default;
};

/// What lies between two exchanges of a pipeline: some layers that follow each other, perhaps none. The first chunk of
/// the model has the embedding, the last one the final norm, the head and the loss.
struct Chunk {
  bool embedding = false;
  std::int64_t first_layer = 0;  ///< in the numbering of the whole model
  std::int64_t layers = 0;
  bool loss = false;
  std::optional<ChunkRecompute> recompute = {};  ///< where lists say it; else model_config does

  std::int64_t end_layer() const { return first_layer + layers; }
  bool operator==(const Chunk&) const = default;
};

/// Which stage holds what. Chunks are named [stage][chunk]; the forward pass goes through chunk 0 of all stages, then
/// through chunk 1 of all, and so on: so do the numbers of layers.
///
/// Sources: Megatron-LM core_v0.12.1, validation of arguments and get_transformer_layer_offset, and its later
/// PipelineParallelLayerLayout; MindSpeed-Core-MS r0.1.0 for num_layer_list, automatic shares and the standalone
/// embedding stage.
class LayerPlan {
 public:
  /// Where a chunk is.
  struct Place {
    std::int64_t stage = 0, chunk = 0;
    bool operator==(const Place&) const = default;
  };

  /// Everything in one chunk.
  explicit LayerPlan(std::int64_t layers = 0);
  /// As the options say. Throws ConfigError with all mistakes, a line each.
  LayerPlan(const ParallelOptions& options, std::int64_t layers);

  /// What is wrong with the cut of so many layers. Empty: the plan can be made.
  static std::vector<Mistake> mistakes(const ParallelOptions& options, std::int64_t layers);

  std::int64_t stages() const { return static_cast<std::int64_t>(chunks_.size()); }
  std::int64_t chunks() const { return static_cast<std::int64_t>(chunks_[0].size()); }  ///< on each stage
  std::int64_t layers() const { return layers_; }                                       ///< of the whole model
  const Chunk& at(std::int64_t stage, std::int64_t chunk) const;
  /// The chunks of one stage.
  const std::vector<Chunk>& stage(std::int64_t stage) const;
  std::int64_t layers_of_stage(std::int64_t stage) const;
  /// How many layers each chunk has, [stage][chunk].
  std::vector<std::vector<std::int64_t>> layers_by_chunk() const;
  Place of_layer(std::int64_t layer) const;

  /// Whether a layer does nothing and has no weights (noop_layers).
  bool noop(std::int64_t layer) const;
  const std::vector<std::int64_t>& noop_layers() const { return noops_; }  ///< in rising order

  /// The chunk that gets this one's output; none after the last.
  std::optional<Place> after(Place place) const;
  /// The chunk whose output this one gets; none before the first.
  std::optional<Place> before(Place place) const;

  /// A line for each stage: "stage 0 | embedding, layers 0-3 | layers 8-11".
  std::string drawing() const;

 private:
  std::vector<std::vector<Chunk>> chunks_;
  std::int64_t layers_ = 0;
  std::vector<std::int64_t> noops_;
};

}  // namespace tessera
