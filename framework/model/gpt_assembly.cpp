// Construction of a GPT: the parameters, layers and tables of its parts.

#include <algorithm>

#include "framework/model/gpt_model.h"
#include "framework/model/recomputed_layers.h"
#include "framework/options/limits.h"

namespace tessera::model {

namespace {

parallel::ModelChunk chunk_of(const GptOptions& o, const ModelSettings& settings, const ModelParts& parts) {
  if (!parts.chunk) return parallel::LayerPlan(o.num_layers).at(0, 0);
  return text_chunk(*parts.chunk, o.use_visual_encoder ? settings.vision.num_layers : 0);
}

}  // namespace

GptModel::GptModel(const GptOptions& options, const ModelSettings& settings, const ModelParts& parts)
    : Model(""),
      o_(options),
      moe_(settings.moe),
      experts_(options.experts(settings.moe)),
      precision_(parts.precision),
      chunk_(chunk_of(options, settings, parts)),
      tensor_(parts.tensor),
      context_(parts.context.rank),
      expert_(parts.expert),
      maker_(tensor_, parts.adapters),
      vocabulary_(parts.vocabulary),
      positions_(o_.has_alibi() ? options::most_places : o_.max_position_embeddings.value_or(settings.seq_length)),
      seq_length_(settings.seq_length) {
  options::refuse("gpt", broken_rules(o_, settings.seq_length));
  options::refuse("gpt", broken_rules(o_, moe_));
  if (vocabulary_ % tensor_.ranks != 0)
    throw ConfigError(text("model_config.vocab_size: ", vocabulary_, " rows do not divide by ", tensor_.ranks,
                           ", parallel_config.tensor_model_parallel_size; give a multiple, or leave vocab_size out"));
  if (o_.predictions() > 0 && precision_.residual != precision_.compute)
    throw ConfigError(
        "model_config.mtp_num_layers: multi-token prediction with residual connections of another data type than the "
        "computation is not implemented yet; leave fp32_residual_connection and residual_connection_dtype out");
  if (!o_.use_pre_norm && precision_.residual != precision_.compute)
    throw ConfigError(
        "model_config.use_pre_norm is false: residual connections of another data type than the computation are not "
        "implemented without norms before the layers; leave fp32_residual_connection and residual_connection_dtype "
        "out");
  if (o_.has_mrope() && !context_.whole())
    throw ConfigError(
        "parallel_config.context_parallel_size: context parallelism of mrope is not implemented; leave it out");
  if (!context_.whole()) shared_attention_.emplace(parts.context);
  if (!expert_.whole() || !context_.whole() || tensor_.cuts_sequence())
    shared_experts_.emplace(expert_, context_, tensor_);
  if (o_.use_visual_encoder) {
    vision_ = std::make_unique<VisionFront>(settings.vision, o_, parts);
    contains(*vision_);
  }
  declare_tables();
  add_layers();
  if (chunk_.loss) add_head();
  set_types();
  share_copies();
}

void GptModel::declare_tables() {
  const bool read_at_end = tied() || o_.predictions() > 0;
  const bool head_alone = chunk_.loss && !chunk_.embedding && read_at_end;
  if (chunk_.embedding || head_alone) {
    auto cut = tensor_.part(0, vocabulary_, "rows of the word embedding");
    if (head_alone && cut.strips.empty()) cut = nn::TensorCut::copy(vocabulary_);
    if (head_alone) cut.strips[0].owned = false;  // owned by the stage with the embedding
    words_ = &declare("embedding.word_embeddings.weight", ParameterRole::word_embedding, {vocabulary_, o_.hidden_size},
                      o_.table_init(vocabulary_), std::move(cut));
    if (read_at_end && !(chunk_.embedding && chunk_.loss)) words_->share(nn::GradientSharers::ends);
  }
  if (chunk_.embedding) word_adapter_ = make_word_adapter(maker_.adapters(), *words_, tensor_);
  if (word_adapter_) contains(*word_adapter_);
  if (chunk_.embedding && o_.embed_layernorm) {
    embedding_norm_ = nn::make_norm(o_.norm(), "embedding.word_embeddings.norm", o_.hidden_size);
    contains(*embedding_norm_);
  }
  if (chunk_.embedding && o_.position_embedding_type == PositionEmbedding::learned_absolute)
    position_table_ = &declare("embedding.position_embeddings.weight", ParameterRole::position_embedding,
                               {positions_ + o_.position_embedding_offset, o_.hidden_size}, o_.table_init(positions_));
}

void GptModel::add_layers() {
  if (o_.has_rotary())
    rotary_.emplace(o_.rotated_channels(), o_.rotary_base,
                    o_.rotary_interleaved || o_.multi_latent_attention ? kernels::RotaryLayout::interleaved
                                                                       : kernels::RotaryLayout::half,
                    positions_, o_.rotary_scaling(positions_));
  if (o_.has_longrope()) {
    const auto scaling = o_.rotary_scaling(positions_, positions_ + 1);
    if (positions_ > scaling.original)
      rotary_->add_longer(scaling.original,
                          std::make_unique<nn::RotaryEmbedding>(
                              o_.rotated_channels(), o_.rotary_base,
                              o_.rotary_interleaved ? kernels::RotaryLayout::interleaved : kernels::RotaryLayout::half,
                              positions_, scaling));
  }
  if (o_.has_rotary() && o_.rope_local_base_freq)
    local_rotary_.emplace(o_.rotated_channels(), *o_.rope_local_base_freq,
                          o_.rotary_interleaved ? kernels::RotaryLayout::interleaved : kernels::RotaryLayout::half,
                          positions_, nn::RotaryScaling{});
  for (std::int64_t i = chunk_.first_layer; i < chunk_.end_layer(); ++i) {
    if (std::find(chunk_.noop.begin(), chunk_.noop.end(), i) != chunk_.noop.end()) continue;
    layers_.push_back(make_layer(text("decoder.layers.", i), i, static_cast<std::int64_t>(layers_.size())));
    contains(*layers_.back());
  }
}

/// `at` counts the layers of the chunk, without no-op layers; nullopt: a layer of multi-token prediction.
std::unique_ptr<TransformerLayer> GptModel::make_layer(const std::string& name, std::int64_t number,
                                                       std::optional<std::int64_t> at) const {
  const bool recomputes = has_experts(o_, moe_, number)
                              ? moe_.moe_layer_recompute || o_.recomputes(RecomputedModule::moe)
                              : o_.recomputes(RecomputedModule::mlp);
  const LayerForm form{.dropout = o_.hidden_dropout_rate,
                       .parallel = o_.use_parallel_residual,
                       .residual_after_norm = o_.apply_residual_connection_post_norm,
                       .residual_multiplier = o_.residual_multiplier,
                       .recomputes_feed_forward = recomputes,
                       .recomputes_norms = recomputes_norms(o_, chunk_, at, maker_.adapters() != nullptr)};
  const bool activation = !recomputes && recomputes_activation(o_, chunk_, at, maker_.adapters() != nullptr);
  return std::make_unique<TransformerLayer>(name, number, form, layer_parts(name, number, activation));
}

void GptModel::add_predictions() {
  const auto init = o_.weight_init(o_.hidden_size, 2 * o_.hidden_size, false);
  for (std::int64_t k = 0; k < o_.predictions(); ++k) {
    const auto name = text("mtp.layers.", k);
    predictions_.push_back(std::make_unique<PredictionLayer>(
        name, o_.hidden_size, o_.norm(), init, maker_, make_layer(name + ".transformer_layer", o_.num_layers + k, {})));
    contains(*predictions_.back());
  }
}

void GptModel::add_head() {
  if (o_.use_final_norm) {
    final_norm_ = nn::make_norm(o_.norm(), "decoder.final_layernorm", o_.hidden_size);
    contains(*final_norm_);
  }
  add_predictions();
  if (o_.score_head)
    score_ = &declare("score.weight", ParameterRole::output_layer, {1, o_.hidden_size},
                      o_.weight_init(1, o_.hidden_size, false));
  if (o_.output_layer_has_bias && !score_)
    output_bias_ = &declare("output_layer.bias", ParameterRole::output_bias, {vocabulary_}, nn::Init::zeros(),
                            tensor_.part(0, vocabulary_, "rows of the output layer"));
  if (tied() || score_) return;
  output_ = maker_.column_parallel("output_layer",
                                   {.in = o_.hidden_size,
                                    .out = vocabulary_,
                                    .init = o_.weight_init(vocabulary_, o_.hidden_size, false),
                                    .role = ParameterRole::output_layer},
                                   tensor_.part(0, vocabulary_, "rows of the output layer"));
  contains(*output_);
}

void GptModel::set_types() {
  for (auto* parameter : parameters())
    if (parameter->role != ParameterRole::expert_bias && parameter->role != ParameterRole::magnitude)
      parameter->type = precision_.params;
  if (words_) words_->type = precision_.embedding;
  if (position_table_) position_table_->type = precision_.embedding;
}

/// Parameters that are replicated in the tensor-parallel group are owned by its first rank. With sequence parallelism
/// each rank computes their gradient from its own tokens, so these are summed. Experts have groups of their own, in
/// which factors of their adapters are replicated.
void GptModel::share_copies() {
  for (auto* parameter : parameters()) {
    if (!parameter->cut.strips.empty()) continue;
    const bool tower = parameter->name.starts_with("vision_");
    const bool expert = is_of_expert(parameter->role);
    if ((expert ? expert_.tensor_rank : tensor_.rank) > 0)
      parameter->cut = nn::TensorCut::copy(parameter->global_shape[0]);
    if (!expert && !tower && tensor_.cuts_sequence() && parameter->shared.empty())
      parameter->share(nn::GradientSharers::tensor);
  }
}

bool GptModel::recomputes_attention(std::int64_t layer) const {
  if (!chunk_.recompute) return o_.recomputes(RecomputedModule::core_attn);
  const auto behind = layer - chunk_.first_layer - chunk_.recompute->layers;
  return behind >= 0 && behind < chunk_.recompute->attention;
}

std::unique_ptr<nn::Attention> GptModel::make_attention(const std::string& name, std::int64_t layer) const {
  const auto* rotary = rotary_ ? &*rotary_ : nullptr;
  if (local_rotary_ && o_.windowed(layer)) rotary = &*local_rotary_;
  if (!o_.rotates(layer)) rotary = nullptr;
  if (o_.multi_latent_attention)
    return std::make_unique<nn::LatentAttention>(name, layer, latent_sizes(o_, recomputes_attention(layer)), rotary,
                                                 maker_);
  return std::make_unique<nn::SelfAttention>(name, layer, attention_sizes(o_, layer, recomputes_attention(layer)),
                                             rotary, maker_);
}

TransformerLayer::Submodules GptModel::layer_parts(const std::string& name, std::int64_t number,
                                                   bool recomputes_activation) const {
  const auto norm = [&](const char* which, double gain = 1) {
    return nn::make_norm(o_.norm(), text(name, ".", which), o_.hidden_size, gain);
  };
  TransformerLayer::Submodules parts;
  if (o_.use_pre_norm) parts.before_attention = norm("input_layernorm");
  if (o_.use_pre_norm && !o_.shared_parallel_norm) parts.before_feed_forward = norm("pre_mlp_layernorm");
  if (o_.use_sandwich_norm) {
    parts.after_attention = norm("post_self_attn_layernorm", o_.attn_post_norm_scale);
    parts.after_feed_forward = norm("post_mlp_layernorm", o_.ffn_post_norm_scale);
  }
  parts.attention = make_attention(name + ".self_attention", number);
  if (has_experts(o_, moe_, number)) {
    auto sizes = expert_sizes(o_, moe_);
    sizes.recomputes_activation = recomputes_activation;
    parts.feed_forward =
        std::make_unique<nn::MixtureOfExperts>(o_.feed_forward(), name + ".mlp", number, sizes, expert_, maker_);
  } else {
    auto sizes = feed_forward_sizes(o_);
    sizes.recomputes_activation = recomputes_activation;
    parts.feed_forward = nn::make_feed_forward(o_.feed_forward(), name + ".mlp", sizes, maker_);
  }
  return parts;
}

std::unique_ptr<Model> make_gpt_model(const GptOptions& options, const ModelSettings& settings,
                                      const ModelParts& parts) {
  return std::make_unique<GptModel>(options, settings, parts);
}

}  // namespace tessera::model
