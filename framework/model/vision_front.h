#pragma once

#include "framework/model/feature_cache.h"
#include "framework/model/gpt_options.h"
#include "framework/model/vision_tower.h"

namespace tessera::model {

/// The part of `chunk` that belongs to the text model behind a vision tower of `tower` layers: layers are numbered
/// within the text model, and `embedding` says that the chunk has its first layer. With 0 tower layers `chunk` itself.
parallel::ModelChunk text_chunk(const parallel::ModelChunk& chunk, std::int64_t tower);

/// What a chunk of a text model does with images: it runs its part of the vision tower, and the chunk with the token
/// embedding puts the features in the places of placeholder tokens.
///
/// With ModelParts::features, and if the chunk has the whole tower and all of its parameters are frozen, the features
/// of a micro-batch's images are read from there in place of running the tower, or written there. They have the bits
/// that the tower gives: their key is that of the pixels and sizes of all images of the micro-batch, the weights and
/// options of the tower, the types of computation, the instruction set and the number of tensor-parallel ranks. Not
/// used for passes that compute nothing or are observed (ForwardMode::tap).
class VisionFront final : public nn::Module {
 public:
  /// The front of the chunk `parts.chunk`; absent: of the whole model. `text` are the options of the text model.
  VisionFront(const VisionOptions& o, const GptOptions& text, const ModelParts& parts);

  /// `x` after this chunk's part of the tower: features, or the values between two of its layers; `x` itself if the
  /// chunk has no layer of the tower. `places`: of the features in the tokens [first, first + count) of each sample;
  /// empty unless the chunk has the token embedding.
  struct Seen {
    autograd::Var x;
    std::span<const autograd::RowPlace> places;
  };
  Seen see(autograd::Tape& tape, autograd::Var x, const TokenBatch& batch, const ForwardMode& mode, std::int64_t first,
           std::int64_t count) const;
  /// The embeddings `x` with the features at their places.
  autograd::Var put(autograd::Var x, const Seen& seen, const nn::Pass& pass) const;

  /// Model::image_flops of this chunk.
  double flops(std::span<const std::int32_t> grids) const { return tower_ ? tower_->flops(grids) : 0; }
  /// The boundaries of this chunk in the whole model; `text`: of a chunk of the text model.
  Model::Boundaries boundaries(const TokenBatch& batch, const Model::Boundary& text) const;

 private:
  bool is_frozen() const;
  bool uses_cache(autograd::Tape& tape, const VisionItems& items, const ForwardMode& mode) const;
  autograd::Var features(autograd::Tape& tape, autograd::Var x, const VisionItems& items, const TokenBatch& batch,
                         const ForwardMode& mode) const;
  const ContentKey& key_of_tower(const ForwardMode& mode) const;
  const comm::Communicator& group_of(const ForwardMode& mode) const;
  bool read_features(const ContentKey& key, std::span<std::byte> values, const ForwardMode& mode) const;

  VisionOptions o_;
  std::int64_t width_;  ///< of the text model
  Precision precision_;
  nn::TensorRank tensor_;
  parallel::ModelChunk chunk_;  ///< of the whole model
  bool embeds_;
  std::unique_ptr<VisionTower> tower_;   ///< null: the chunk has no layer of the tower
  std::shared_ptr<FeatureCache> cache_;  ///< null: the chunk does not have the whole tower, or features are not kept
  mutable std::optional<ContentKey> key_of_tower_;  ///< of its frozen weights and what else decides the features
};

}  // namespace tessera::model
