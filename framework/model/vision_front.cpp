#include "framework/model/vision_front.h"

#include <algorithm>

#include "framework/parallel/tensor_parallel_ops.h"

namespace tessera::model {
namespace {

/// How many of the first `layers` layers of a chunk are recomputed, of which `tower` belong to the vision tower.
std::int64_t recomputed_in_tower(const GptOptions& text, const parallel::ModelChunk& chunk, std::int64_t layers) {
  if (chunk.recompute) return std::min(layers, chunk.recompute->layers);
  if (text.recompute_granularity != Recomputation::full) return 0;
  return text.recompute_method == RecomputedLayers::block ? std::min(layers, *text.recompute_num_layers) : layers;
}

}  // namespace

parallel::ModelChunk text_chunk(const parallel::ModelChunk& chunk, std::int64_t tower) {
  if (tower == 0) return chunk;
  auto out = chunk;
  out.embedding = chunk.end_layer() > tower && chunk.first_layer <= tower;
  out.first_layer = std::max<std::int64_t>(0, chunk.first_layer - tower);
  out.layers = std::max<std::int64_t>(0, chunk.end_layer() - tower) - out.first_layer;
  if (out.recompute) {
    const auto before = chunk.layers - out.layers;
    const auto left = [&](std::int64_t more) {  // of the first layers of the chunk, and `more`
      return std::max<std::int64_t>(0, chunk.recompute->layers + more - before);
    };
    out.recompute->layers = left(0);
    out.recompute->attention = left(chunk.recompute->attention) - left(0);
    out.recompute->gather = left(chunk.recompute->gather) - left(0);
  }
  for (auto& layer : out.noop) layer -= tower;
  return out;
}

VisionFront::VisionFront(const VisionOptions& o, const GptOptions& text, const ModelParts& parts)
    : Module("vision"), o_(o), width_(text.hidden_size), residual_(parts.precision.residual), tensor_(parts.tensor) {
  chunk_ = parts.chunk.value_or(parallel::ModelChunk{
      .embedding = true, .first_layer = 0, .layers = o.num_layers + text.num_layers, .loss = true});
  embeds_ = text_chunk(chunk_, o.num_layers).embedding;
  const auto layers = std::min(chunk_.end_layer(), o.num_layers) - chunk_.first_layer;
  if (layers <= 0) return;
  tower_ = std::make_unique<VisionTower>(
      o, TowerPart{chunk_.first_layer, layers, recomputed_in_tower(text, chunk_, layers)}, text.hidden_size, parts);
  contains(*tower_);
}

Model::Boundaries VisionFront::boundaries(const TokenBatch& batch, const Model::Boundary& text) const {
  const auto patches = patches_of(batch, o_);
  const auto after = [&](std::int64_t layers) {
    if (layers > o_.num_layers) return text;
    const auto features = layers == o_.num_layers;
    return Model::Boundary{features ? Shape{1, patches / o_.merged(), width_} : Shape{1, patches, o_.hidden_size},
                           residual_};
  };
  return {after(chunk_.first_layer), after(chunk_.end_layer())};
}

VisionFront::Seen VisionFront::see(autograd::Tape& tape, autograd::Var x, const TokenBatch& batch,
                                   const ForwardMode& mode, std::int64_t first, std::int64_t count) const {
  if (!tower_ && !embeds_) return {std::move(x), {}};
  const auto items = VisionItems::of(tape, batch, o_);
  if (tower_) x = tower_->forward(tape, std::move(x), items, batch, mode);
  return {std::move(x),
          embeds_ ? feature_places(tape, batch, items, o_, first, count) : std::span<const autograd::RowPlace>()};
}

autograd::Var VisionFront::put(autograd::Var x, const Seen& seen, const nn::Pass& pass) const {
  auto features = autograd::converted(seen.x, x.value().dtype());
  // With sequence parallelism each rank has the gradients of the features in its own tokens.
  if (tensor_.cuts_sequence())
    features = parallel::copy_to_tensor_region(features, parallel::tensor_group(pass, tensor_), "features of images");
  return autograd::replaced_rows(std::move(x), features, seen.places);
}

}  // namespace tessera::model
