#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "framework/model/model.h"
#include "framework/model/transformer_layer.h"
#include "framework/model/vision_items.h"
#include "framework/parallel/tensor_parallel.h"

namespace tessera::model {

/// The part of a vision tower in a pipeline chunk: its layers [first, first + layers), and the merger if it has the
/// last one.
struct TowerPart {
  std::int64_t first = 0, layers = 0;
  bool projects = true;         ///< it has the projection of patches, and is the first part, maybe without layers
  std::int64_t recomputed = 0;  ///< the first layers of this part, which the backward pass recomputes
};

/// A vision tower, or the part of it in a chunk: patches are projected, pass through transformer layers in which each
/// sees the other patches of its image (or of its time step of a video), and are merged to features, of the width of
/// the text model. Tensor-parallel over heads and hidden units; all patches are on each rank, also with sequence
/// parallelism. Owns its modules.
///
/// Source: Wang et al., arXiv:2409.12191 (Qwen2-VL); windows: arXiv:2502.13923 (Qwen2.5-VL).
class VisionTower final : public nn::Module {
 public:
  /// `width`: hidden size of the text model. `parts` as for a model; its chunk is not read.
  VisionTower(const VisionOptions& o, const TowerPart& part, std::int64_t width, const ModelParts& parts);

  /// `x` is the result of the part before, empty for the first part. Returns [1, patches, hidden_size], or of the last
  /// part the features [1, patches / merged(), width], in the order of `items`; in the residual type.
  autograd::Var forward(autograd::Tape& tape, autograd::Var x, const VisionItems& items, const TokenBatch& batch,
                        const ForwardMode& mode) const;

  /// Model::image_flops of this part: 6 times these multiplications, with C the hidden size. For each patch the weights
  /// of the projection, C x patch_width(), and of each layer, 4 C^2 and C x inner() x 2, or x 3 with a gate; for each
  /// pair of patches in the same time step, or window, 2 C in each layer; for each feature the weights of the merger,
  /// (C x merged())^2 + C x merged() x width.
  double flops(std::span<const std::int32_t> grids) const;

 private:
  std::unique_ptr<TransformerLayer> make_layer(std::int64_t number) const;
  autograd::Var projected(autograd::Tape& tape, const VisionItems& items, const nn::Pass& pass) const;
  void show_projected(const autograd::Var& x, const VisionItems& items, const nn::Pass& pass) const;
  nn::Pass pass_of(autograd::Tape& tape, const VisionItems& items, const TokenBatch& batch,
                   const ForwardMode& mode) const;

  VisionOptions o_;
  TowerPart part_;
  std::int64_t width_;
  Precision precision_;
  parallel::TensorParallelLayers maker_;
  nn::Parameter* patch_weight_ = nullptr;  ///< of the first part
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<nn::Norm> merger_norm_;  ///< of the last part
  std::unique_ptr<nn::FeedForward> merger_;
};

}  // namespace tessera::model
