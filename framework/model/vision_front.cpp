#include "framework/model/vision_front.h"

#include <algorithm>
#include <array>

#include "framework/kernels/cpu.h"
#include "framework/parallel/tensor_parallel_ops.h"

namespace tessera::model {
namespace {

/// How many of the first `layers` layers of a chunk are recomputed, of which `tower` belong to the vision tower.
std::int64_t recomputed_in_tower(const GptOptions& text, const parallel::ModelChunk& chunk, std::int64_t layers) {
  if (chunk.recompute) return std::min(layers, chunk.recompute->layers);
  if (text.recompute_granularity != Recomputation::full) return 0;
  return text.recompute_method == RecomputedLayers::block ? std::min(layers, *text.recompute_num_layers) : layers;
}

constexpr const char* feature_cache_user = "cache of features";

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
    : Module("vision"), o_(o), width_(text.hidden_size), precision_(parts.precision), tensor_(parts.tensor) {
  chunk_ = parts.chunk.value_or(parallel::ModelChunk{
      .embedding = true, .first_layer = 0, .layers = o.num_layers + text.num_layers, .loss = true});
  embeds_ = text_chunk(chunk_, o.num_layers).embedding;
  const auto layers = std::min(chunk_.end_layer(), o.num_layers) - chunk_.first_layer;
  if (layers <= 0 && !chunk_.embedding) return;
  tower_ = std::make_unique<VisionTower>(
      o, TowerPart{chunk_.first_layer, layers, chunk_.embedding, recomputed_in_tower(text, chunk_, layers)},
      text.hidden_size, parts);
  contains(*tower_);
  if (layers == o.num_layers) cache_ = parts.features;
}

Model::Boundaries VisionFront::boundaries(const TokenBatch& batch, const Model::Boundary& text) const {
  const auto patches = patches_of(batch, o_);
  const auto after = [&](std::int64_t layers) {
    if (layers > o_.num_layers) return text;
    const auto features = layers == o_.num_layers;
    return Model::Boundary{features ? Shape{1, patches / o_.merged(), width_} : Shape{1, patches, o_.hidden_size},
                           precision_.residual};
  };
  return {after(chunk_.first_layer), after(chunk_.end_layer())};
}

const comm::Communicator& VisionFront::group_of(const ForwardMode& mode) const {
  nn::Pass pass;
  pass.groups = mode.groups;
  return parallel::tensor_group(pass, tensor_);
}

bool VisionFront::is_frozen() const {
  const auto all = tower_->parameters();
  return std::ranges::none_of(all, [](const auto* parameter) { return parameter->trained; });
}

bool VisionFront::uses_cache(autograd::Tape& tape, const VisionItems& items, const ForwardMode& mode) const {
  const bool observed = mode.tap && *mode.tap;
  return cache_ && !items.placeholder && !observed && !tape.threads().idle() && is_frozen();
}

/// The features of the chunk's part of the tower, from the cache if it has them. The ranks of a tensor-parallel group
/// must agree on that, because the tower's layers communicate: the first of them reads and writes.
autograd::Var VisionFront::features(autograd::Tape& tape, autograd::Var x, const VisionItems& items,
                                    const TokenBatch& batch, const ForwardMode& mode) const {
  if (!uses_cache(tape, items, mode)) return tower_->forward(tape, std::move(x), items, batch, mode);
  ContentHash hash;
  hash.add(key_of_tower(mode).name());
  hash.add(std::as_bytes(batch.field<std::int32_t>(grid_field)));
  hash.add(std::as_bytes(items.pixels));
  const auto key = hash.key();
  {
    auto found = tape.make(precision_.residual, {1, items.patches / o_.merged(), width_}, false);
    if (read_features(key, found.value().raw(), mode)) return found;
  }
  auto computed = tower_->forward(tape, {}, items, batch, mode);
  if (tensor_.rank == 0) cache_->write(key, computed.value().raw());
  return computed;
}

const ContentKey& VisionFront::key_of_tower(const ForwardMode& mode) const {
  if (key_of_tower_) return *key_of_tower_;
  ContentHash hash;
  hash.add(text("tower ", o_.num_attention_heads, " ", static_cast<int>(o_.normalization), " ",
                static_cast<int>(o_.feed_forward()), " ", o_.window_size.value_or(0), " ", o_.patch_size, " ",
                o_.temporal_patch_size, " ", o_.spatial_merge_size, " ", tensor_.ranks));
  const std::array numbers = {o_.norm_epsilon, o_.rotary_base};
  hash.add(std::as_bytes(std::span(numbers)));
  for (const auto layer : o_.full_attention_layers) hash.add(text(layer));
  hash.add(text(name_of(precision_.compute), " ", name_of(precision_.residual), " ",
                kernels::name_of(kernels::chosen_isa())));
  for (const auto* parameter : tower_->parameters()) hash.add(*parameter);
  const auto own = hash.key().name();
  if (tensor_.ranks == 1) return key_of_tower_.emplace(hash.key());
  ContentHash all;
  for (const auto& name : group_of(mode).all_gather(own, feature_cache_user)) all.add(name);
  return key_of_tower_.emplace(all.key());
}

bool VisionFront::read_features(const ContentKey& key, std::span<std::byte> values, const ForwardMode& mode) const {
  if (tensor_.ranks == 1) return cache_->read(key, values);
  std::byte found{};
  if (tensor_.rank == 0) found = std::byte{cache_->read(key, values)};
  const auto& group = group_of(mode);
  group.broadcast(std::span(&found, 1), 0, feature_cache_user);
  if (found == std::byte{0}) return false;
  group.broadcast(values, 0, feature_cache_user);
  return true;
}

VisionFront::Seen VisionFront::see(autograd::Tape& tape, autograd::Var x, const TokenBatch& batch,
                                   const ForwardMode& mode, std::int64_t first, std::int64_t count) const {
  if (!tower_ && !embeds_) return {std::move(x), {}};
  const auto items = VisionItems::of(tape, batch, o_);
  if (tower_) x = features(tape, std::move(x), items, batch, mode);
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
