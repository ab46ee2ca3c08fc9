#include "framework/model/vision_tower.h"

#include <algorithm>
#include <cmath>

#include "framework/autograd/ops/linear.h"
#include "framework/kernels/type_conversion.h"
#include "framework/model/axis_angles.h"

namespace tessera::model {
namespace {

const std::string tower_name = "vision_model", merger_name = "vision_projection";

/// Attention needs all patches, and their number is no multiple of the ranks: the tower has no sequence parallelism.
nn::TensorRank without_sequence_parallelism(nn::TensorRank tensor) {
  tensor.sequence_parallel = false;
  return tensor;
}

/// Dropout is keyed by the sample and the element in it, which patches packed without padding do not have.
class AdaptersWithoutDropout final : public nn::AdapterPlan {
 public:
  explicit AdaptersWithoutDropout(std::shared_ptr<const nn::AdapterPlan> plan) : plan_(std::move(plan)) {}
  std::vector<nn::AdapterForm> adapters_of(const std::string& module, std::int64_t in,
                                           std::span<const nn::LinearPart> parts) const override {
    auto all = plan_->adapters_of(module, in, parts);
    for (const auto& form : all)
      if (form.dropout > 0)
        throw ConfigError(
            text("lora_config.lora_dropout: ", module, " gets an adapter with dropout ", form.dropout,
                 ", which layers of a vision tower cannot have; give 0, or leave them out: exclude_modules "
                 "'(vision_model|vision_projection).*'"));
    return all;
  }

 private:
  std::shared_ptr<const nn::AdapterPlan> plan_;
};

std::shared_ptr<const nn::AdapterPlan> without_dropout(const std::shared_ptr<const nn::AdapterPlan>& plan) {
  return plan ? std::make_shared<const AdaptersWithoutDropout>(plan) : nullptr;
}

nn::AttentionSizes attention_of(const VisionOptions& o, std::int64_t layer) {
  nn::AttentionSizes sizes;
  sizes.hidden = o.hidden_size;
  sizes.heads = sizes.groups = o.num_attention_heads;
  sizes.channels = o.channels();
  sizes.qkv_bias = sizes.out_bias = o.add_bias_linear;
  sizes.init = sizes.out_init = nn::Init::normal(o.init_method_std);
  sizes.scale = 1 / std::sqrt(static_cast<double>(o.channels()));
  sizes.fused_parts = false;  // as the tower of Transformers has one layer `qkv`
  sizes.windowed = o.windowed(layer);
  return sizes;
}

}  // namespace

VisionTower::VisionTower(const VisionOptions& o, const TowerPart& part, std::int64_t width, const ModelParts& parts)
    : Module(tower_name),
      o_(o),
      part_(part),
      width_(width),
      precision_(parts.precision),
      maker_(without_sequence_parallelism(parts.tensor), without_dropout(parts.adapters)) {
  const auto init = nn::Init::normal(o.init_method_std);
  if (part.projects)
    patch_weight_ = &declare("patch_embed.weight", ParameterRole::matrix, {o.hidden_size, o.patch_width()}, init);
  for (auto i = part.first; i < part.first + part.layers; ++i) {
    layers_.push_back(make_layer(i));
    contains(*layers_.back());
  }
  if (part.first + part.layers == o.num_layers) {
    merger_norm_ = nn::make_norm(o.norm(), merger_name + ".layernorm", o.hidden_size);
    merger_ = nn::make_feed_forward(nn::FeedForwardKind::gelu_erf, merger_name,
                                    {.hidden = o.merged_width(),
                                     .inner = o.merged_width(),
                                     .out = width,
                                     .has_bias = o.add_bias_linear,
                                     .init = init,
                                     .out_init = init},
                                    maker_);
    contains(*merger_norm_);
    contains(*merger_);
  }
}

std::unique_ptr<TransformerLayer> VisionTower::make_layer(std::int64_t number) const {
  const auto name = text(tower_name, ".decoder.layers.", number);
  const auto init = nn::Init::normal(o_.init_method_std);
  TransformerLayer::Submodules parts;
  parts.before_attention = nn::make_norm(o_.norm(), name + ".input_layernorm", o_.hidden_size);
  parts.before_feed_forward = nn::make_norm(o_.norm(), name + ".pre_mlp_layernorm", o_.hidden_size);
  parts.attention =
      std::make_unique<nn::SelfAttention>(name + ".self_attention", number, attention_of(o_, number), nullptr, maker_);
  parts.feed_forward = nn::make_feed_forward(
      o_.feed_forward(), name + ".mlp",
      {.hidden = o_.hidden_size, .inner = o_.inner(), .has_bias = o_.add_bias_linear, .init = init, .out_init = init},
      maker_);
  return std::make_unique<TransformerLayer>(name, number, LayerForm{}, std::move(parts));
}

/// The patches in the order of `items`, times the weights of the projection.
autograd::Var VisionTower::projected(autograd::Tape& tape, const VisionItems& items, const nn::Pass& pass) const {
  const auto width = static_cast<std::size_t>(o_.patch_width()), joined = static_cast<std::size_t>(o_.merged());
  const auto patches = tape.result({1, items.patches, o_.patch_width()}, false);
  const kernels::MutableElements out(patches.value());
  tape.threads().parallel_for(items.features.size(), 4, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i) {
      const auto from = static_cast<std::size_t>(items.features[i]) * joined * width, count = joined * width;
      kernels::narrow_range(items.pixels.subspan(from, count), out.part(i * count, count));
    }
  });
  auto x = autograd::linear(patches, patch_weight_->leaf, nullptr);
  show_projected(x, items, pass);
  return autograd::converted(std::move(x), precision_.residual);
}

/// The tap sees the patches in reading order, as other programs have them before they are put in windows.
void VisionTower::show_projected(const autograd::Var& x, const VisionItems& items, const nn::Pass& pass) const {
  if (!pass.tap || !*pass.tap || x.tape().threads().idle()) return;
  const auto all = x.value().raw();
  const auto bytes = all.size() / items.features.size();
  std::vector<std::byte> ordered(all.size());
  for (std::size_t i = 0; i < items.features.size(); ++i)
    std::ranges::copy(
        all.subspan(i * bytes, bytes),
        ordered.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(items.features[i]) * bytes));
  (*pass.tap)(tower_name + ".patch_embed", Tensor(ordered, x.value().dtype(), x.shape()));
}

nn::Pass VisionTower::pass_of(autograd::Tape& tape, const VisionItems& items, const TokenBatch& batch,
                              const ForwardMode& mode) const {
  nn::Pass pass;
  pass.B = 1;
  pass.T = pass.S = items.patches;
  pass.held = pass.gathered = nn::HeldTokens::of({}, 0, items.patches, items.patches);
  pass.angles = grid_angles(tape, o_.channels(), o_.rotary_base, items.rows, items.columns);
  pass.visible = items.whole;
  pass.windowed = items.windowed;
  pass.sample_ids = batch.sample_ids.first(std::min<std::size_t>(1, batch.sample_ids.size()));
  pass.seed = mode.seed;
  pass.training = mode.training;
  pass.tap = mode.tap;
  pass.groups = mode.groups;
  return pass;
}

autograd::Var VisionTower::forward(autograd::Tape& tape, autograd::Var x, const VisionItems& items,
                                   const TokenBatch& batch, const ForwardMode& mode) const {
  const auto pass = pass_of(tape, items, batch, mode);
  tape.computes_in(precision_.compute);
  if (patch_weight_) x = projected(tape, items, pass);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto one = std::span(layers_).subspan(i, 1);
    x = static_cast<std::int64_t>(i) < part_.recomputed ? recomputed_layers(x, one, pass)
                                                        : one[0]->forward(std::move(x), pass);
  }
  if (!merger_) return x;
  x = merger_norm_->forward(x);
  x = merger_->forward(autograd::joined_rows(x, o_.merged()), pass);
  pass.show(merger_name, x);
  return autograd::converted(std::move(x), precision_.residual);
}

double VisionTower::flops(std::span<const std::int32_t> grids) const {
  const auto channels = static_cast<double>(o_.hidden_size), merged = static_cast<double>(o_.merged_width());
  const auto of_layer = channels * (4 * channels + static_cast<double>(o_.inner()) * (o_.gated_linear_unit ? 3 : 2));
  double for_patch = static_cast<double>(part_.layers) * of_layer;
  if (part_.projects) for_patch += channels * static_cast<double>(o_.patch_width());
  const auto for_feature = merger_ ? merged * (merged + static_cast<double>(width_)) : 0;
  std::int64_t windowed = 0;
  for (std::int64_t layer = part_.first; layer < part_.first + part_.layers; ++layer)
    windowed += o_.windowed(layer) ? 1 : 0;
  const auto seen = pairs_of(grids, o_);
  return 6 * (seen.patches * (for_patch + for_feature / static_cast<double>(o_.merged())) +
              2 * channels *
                  (static_cast<double>(part_.layers - windowed) * seen.whole +
                   static_cast<double>(windowed) * seen.windowed));
}

}  // namespace tessera::model
