// The GPT family: embedding, layers, final norm, output layer; each part is selected by options.
// Sources: Radford et al. 2019 (GPT-2); Touvron et al., arXiv:2302.13971 (Llama); names and layouts as in Megatron
// core's GPTModel.

#include <cmath>
#include <new>

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/embedding.h"
#include "framework/autograd/ops/residual.h"
#include "framework/base/trace.h"
#include "framework/model/gpt_architecture.h"
#include "framework/model/layer_sizes.h"
#include "framework/model/model.h"
#include "framework/model/objective_loss.h"
#include "framework/model/prediction_layer.h"
#include "framework/model/recomputed_layers.h"
#include "framework/model/visibility.h"
#include "framework/model/word_adapter.h"
#include "framework/nn/key_value_cache.h"
#include "framework/parallel/tensor_parallel.h"
#include "framework/parallel/tensor_parallel_ops.h"

namespace tessera::model {
namespace {

class GptModel final : public Model {
 public:
  GptModel(const GptOptions& options, const ModelSettings& settings, const ModelParts& parts);

  ChunkResult forward(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch,
                      const ForwardMode& mode) const override;
  Boundaries boundary(const TokenBatch& batch) const override;
  autograd::Var logits(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const override;
  nn::KeyValueCache make_cache(std::int64_t samples, std::int64_t capacity) const override;
  autograd::Var next_logits(autograd::Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                            nn::KeyValueCache& cache) const override;
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t most_positions() const override { return positions_; }
  double flops(std::int64_t samples, std::int64_t seq_length) const override {
    return training_flops(o_, moe_, chunk_.noop, o_.score_head ? 1 : vocabulary_, samples, seq_length);
  }
  nn::AuxiliaryLog::Extents auxiliary() const override {
    return {.layers = experts_ > 0 ? o_.num_layers + o_.predictions() : 0,
            .experts = experts_,
            .predictions = o_.predictions(),
            .balances = experts_ > 0 && moe_.balances(),
            .has_z_loss = experts_ > 0 && moe_.moe_z_loss_coeff.has_value(),
            .per_layer = moe_.moe_per_layer_logging};
  }

 private:
  TransformerLayer::Submodules layer_parts(const std::string& name, std::int64_t number,
                                           bool recomputes_activation) const;
  std::unique_ptr<nn::Attention> make_attention(const std::string& name, std::int64_t layer) const;
  std::unique_ptr<TransformerLayer> make_layer(const std::string& name, std::int64_t number,
                                               std::optional<std::int64_t> at) const;
  autograd::Var through_layers(autograd::Var x, const nn::Pass& pass) const;
  autograd::Var project(const autograd::Var& h, const nn::Pass& pass) const;
  autograd::Var before_head(const autograd::Var& h, const nn::Pass& pass) const;
  std::int64_t tokens_between_layers(std::int64_t length) const;
  nn::Pass pass_of(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const;
  autograd::Var embedded(autograd::Tape& tape, std::span<const std::int32_t> tokens, const nn::Pass& pass,
                         std::uint64_t site = 0) const;
  autograd::Var embedded_in_parts(autograd::Tape& tape, std::span<const std::int32_t> tokens,
                                  const nn::Pass& pass) const;
  autograd::Var hidden(autograd::Tape& tape, autograd::Var x, std::span<const std::int32_t> tokens,
                       const nn::Pass& pass) const;
  autograd::Leaf& head() const { return output_ ? output_->weight() : words_->leaf; }
  OutputLayer output_layer(const autograd::Var& h, const nn::Pass& pass) const;
  void predict_further(autograd::Tape& tape, autograd::Var h, const TokenBatch& batch, const ForwardMode& mode,
                       const nn::Pass& pass) const;
  bool recomputes_attention(std::int64_t layer) const;
  bool tied() const { return !o_.untie_embeddings_and_output_weights && !o_.score_head; }
  void declare_tables();
  void add_layers();
  void add_head();
  void add_predictions();
  void set_types();
  void share_copies();

  GptOptions o_;
  MoeOptions moe_;
  std::int64_t experts_;  ///< of each mixture of experts; 0: the model has none
  Precision precision_;
  parallel::ModelChunk chunk_;
  nn::TensorRank tensor_;
  nn::ContextRank context_;
  nn::ExpertRank expert_;
  std::optional<parallel::ContextParallelAttention> shared_attention_;  ///< if ranks share each sequence
  std::optional<parallel::ExpertParallel> shared_experts_;  ///< if ranks share experts, or tokens of a micro-batch
  parallel::TensorParallelLayers maker_;
  std::int64_t vocabulary_, positions_, seq_length_;
  std::optional<nn::RotaryEmbedding> rotary_;
  nn::Parameter* words_ = nullptr;  ///< of the embedding, and of an output layer tied to it
  std::unique_ptr<WordAdapter> word_adapter_;
  nn::Parameter* position_table_ = nullptr;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;  ///< of this chunk, without no-op layers
  std::unique_ptr<nn::Norm> final_norm_;
  std::unique_ptr<nn::LinearLayer> output_;
  nn::Parameter* score_ = nullptr;                             ///< in place of the output layer
  std::vector<std::unique_ptr<PredictionLayer>> predictions_;  ///< of the chunk with the loss
};

GptModel::GptModel(const GptOptions& options, const ModelSettings& settings, const ModelParts& parts)
    : Model(""),
      o_(options),
      moe_(settings.moe),
      experts_(options.experts(settings.moe)),
      precision_(parts.precision),
      chunk_(parts.chunk.value_or(parallel::LayerPlan(options.num_layers).at(0, 0))),
      tensor_(parts.tensor),
      context_(parts.context.rank),
      expert_(parts.expert),
      maker_(tensor_, parts.adapters),
      vocabulary_(parts.vocabulary),
      positions_(o_.max_position_embeddings.value_or(settings.seq_length)),
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
  if (!context_.whole()) shared_attention_.emplace(parts.context);
  if (!expert_.whole() || !context_.whole() || tensor_.cuts_sequence())
    shared_experts_.emplace(expert_, context_, tensor_);
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
  if (chunk_.embedding) word_adapter_ = make_word_adapter(maker_.adapters(), vocabulary_, o_.hidden_size, tensor_);
  if (word_adapter_) contains(*word_adapter_);
  if (chunk_.embedding && o_.position_embedding_type == PositionEmbedding::learned_absolute)
    position_table_ = &declare("embedding.position_embeddings.weight", ParameterRole::position_embedding,
                               {positions_, o_.hidden_size}, o_.table_init(positions_));
}

void GptModel::add_layers() {
  if (o_.has_rotary())
    rotary_.emplace(o_.rotated_channels(), o_.rotary_base,
                    o_.rotary_interleaved || o_.multi_latent_attention ? kernels::RotaryLayout::interleaved
                                                                       : kernels::RotaryLayout::half,
                    positions_, o_.rotary_scaling(positions_));
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
  const LayerForm form{o_.hidden_dropout_rate, o_.use_parallel_residual, o_.apply_residual_connection_post_norm,
                       recomputes, recomputes_norms(o_, chunk_, at)};
  const bool activation = !recomputes && recomputes_activation(o_, chunk_, at);
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
    const bool expert = parameter->role == ParameterRole::expert;
    if ((expert ? expert_.tensor_rank : tensor_.rank) > 0)
      parameter->cut = nn::TensorCut::copy(parameter->global_shape[0]);
    if (!expert && tensor_.cuts_sequence() && parameter->shared.empty()) parameter->share(nn::GradientSharers::tensor);
  }
}

bool GptModel::recomputes_attention(std::int64_t layer) const {
  if (!chunk_.recompute) return o_.recomputes(RecomputedModule::core_attn);
  const auto behind = layer - chunk_.first_layer - chunk_.recompute->layers;
  return behind >= 0 && behind < chunk_.recompute->attention;
}

std::unique_ptr<nn::Attention> GptModel::make_attention(const std::string& name, std::int64_t layer) const {
  const auto* rotary = rotary_ ? &*rotary_ : nullptr;
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
  parts.before_attention = norm("input_layernorm");
  if (!o_.shared_parallel_norm) parts.before_feed_forward = norm("pre_mlp_layernorm");
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

autograd::Var GptModel::through_layers(autograd::Var x, const nn::Pass& pass) const {
  const bool uniform =
      !chunk_.recompute && recomputes_layers(o_, chunk_) && o_.recompute_method == RecomputedLayers::uniform;
  const auto layers = static_cast<std::int64_t>(layers_.size());
  if (!uniform) {
    const auto alone = layers_recomputed_alone(o_, chunk_);
    for (std::int64_t i = 0; i < layers; ++i) {
      const auto one = std::span(layers_).subspan(static_cast<std::size_t>(i), 1);
      x = i < alone ? recomputed_layers(x, one, pass) : one[0]->forward(std::move(x), pass);
    }
    return x;
  }
  const auto count = std::min(*o_.recompute_num_layers, layers);
  for (std::int64_t i = 0; i < layers; i += count)
    x = recomputed_layers(
        x,
        std::span(layers_).subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(std::min(count, layers - i))),
        pass);
  return x;
}

autograd::Var GptModel::embedded_in_parts(autograd::Tape& tape, std::span<const std::int32_t> tokens,
                                          const nn::Pass& pass) const {
  auto x = parallel::vocab_parallel_embedding(tape, tokens, words_->leaf, vocabulary_, tensor_, pass,
                                              precision_.residual, o_.embedding_padding_token.value_or(-1));
  if (!position_table_) return x;
  const auto here = x.shape()[1];
  const auto first = here == pass.T ? 0 : here * tensor_.rank;
  return parallel::plus_positions(std::move(x), positions_here(tape, pass, first, here), position_table_->leaf);
}

/// `site` keys the dropout.
autograd::Var GptModel::embedded(autograd::Tape& tape, std::span<const std::int32_t> tokens, const nn::Pass& pass,
                                 std::uint64_t site) const {
  auto x = tensor_.whole() ? autograd::embedding(tape, {pass.B, pass.T}, tokens, words_->leaf, pass.positions,
                                                 position_table_ ? &position_table_->leaf : nullptr,
                                                 precision_.residual, o_.embedding_padding_token.value_or(-1))
                           : embedded_in_parts(tape, tokens, pass);
  if (word_adapter_) x = word_adapter_->add_to(std::move(x), tokens, pass, o_.embedding_padding_token);
  if (o_.scale_embeddings) x = autograd::scaled(std::move(x), std::sqrt(static_cast<double>(o_.hidden_size)));
  const auto mask = pass.held.rows(pass.dropout(Purpose::hidden_dropout, site, o_.hidden_dropout_rate), o_.hidden_size);
  if (mask.rate > 0) x = autograd::dropout_add(std::move(x), {}, mask);
  return x;
}

/// The output of this chunk, for the last chunk after the final norm. Sets the tape to fp32 for the projection to the
/// vocabulary that follows.
autograd::Var GptModel::hidden(autograd::Tape& tape, autograd::Var x, std::span<const std::int32_t> tokens,
                               const nn::Pass& pass) const {
  tape.computes_in(precision_.compute);
  if (chunk_.embedding) {
    x = embedded(tape, tokens, pass);
    pass.show("embedding", x);
  }
  x = through_layers(std::move(x), pass);
  if (final_norm_) {
    x = final_norm_->forward(x);
    pass.show(final_norm_->name(), x);
  }
  tape.computes_in(DType::float32);
  return x;
}

nn::Pass GptModel::pass_of(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
  must(batch.position_axes() == 1, "this model has positions of one axis");
  auto pass = training_pass(tape, batch, mode, o_.window());
  pass.longest = seq_length_;
  if (!context_.whole()) {
    pass.T = pass.S / context_.ranks;
    pass.positions = held_tokens(tape, context_, pass.B, pass.S, batch.positions);
    pass.core = &*shared_attention_;
  }
  if (shared_experts_) pass.experts = &*shared_experts_;
  const auto here = tokens_between_layers(pass.S), first = tensor_.cuts_sequence() ? here * tensor_.rank : 0;
  pass.held = nn::HeldTokens::of(context_, first, first + here, pass.S);
  pass.gathered = nn::HeldTokens::of(context_, 0, pass.S / context_.ranks, pass.S);
  return pass;
}

/// Tokens of a sample of `length` that this rank has between attention and the other layers.
std::int64_t GptModel::tokens_between_layers(std::int64_t length) const {
  return length / context_.ranks / (tensor_.cuts_sequence() ? tensor_.ranks : 1);
}

Model::Boundaries GptModel::boundary(const TokenBatch& batch) const {
  const Boundary one{{batch.samples, tokens_between_layers(batch.seq_length), o_.hidden_size}, precision_.residual};
  return {one, one};
}

/// h of all tokens of this context-parallel rank, on every rank that has a part of the output layer.
autograd::Var GptModel::before_head(const autograd::Var& h, const nn::Pass& pass) const {
  if (tensor_.whole()) return h;
  constexpr auto who = "output layer";
  const auto& group = parallel::tensor_group(pass, tensor_);
  return tensor_.cuts_sequence() ? parallel::gather_from_sequence_region(h, group, who)
                                 : parallel::copy_to_tensor_region(h, group, who);
}

/// Its ranks of a vocabulary-parallel head are kept until the tape is cleared.
OutputLayer GptModel::output_layer(const autograd::Var& h, const nn::Pass& pass) const {
  OutputLayer output{
      .weight = head(), .type = precision_.logits, .softcap = o_.output_logit_softcap.value_or(0), .context = context_};
  if (!tensor_.whole())
    output.sharers = new (h.tape().keep(sizeof(parallel::VocabParallelHead)).data())
        parallel::VocabParallelHead(parallel::tensor_group(pass, tensor_), vocabulary_);
  if (output_ && output_->adapters()) output.adapter = output_->adapters()->of_logits(h, pass);
  return output;
}

/// Runs the layers of multi-token prediction on `h`, the decoder's output after its final norm. Layer k (from 0) gets
/// the embedding of the token k + 1 places to the right and predicts the token after that one; positions are not
/// shifted.
void GptModel::predict_further(autograd::Tape& tape, autograd::Var h, const TokenBatch& batch, const ForwardMode& mode,
                               const nn::Pass& pass) const {
  auto tokens = batch.tokens;
  auto labels = batch.labels;
  auto mask = batch.loss_mask;
  const auto weight = o_.mtp_loss_scaling_factor / static_cast<double>(predictions_.size());
  for (std::size_t k = 0; k < predictions_.size(); ++k) {
    tokens = moved_left(tape, tokens, batch.seq_length);
    labels = moved_left(tape, labels, batch.seq_length);
    mask = moved_left(tape, mask, batch.seq_length);
    double counted = 0;
    for (const auto one : mask) counted += static_cast<double>(one);
    tape.computes_in(precision_.compute);
    // Sites of dropout: four for each layer, after those of the embedding.
    const auto site = 4 * static_cast<std::uint64_t>(o_.num_layers + o_.predictions() + 1) + k;
    const auto here = [&]<class T>(std::span<const T> array) {
      return held_tokens(tape, context_, batch.samples, batch.seq_length, array);
    };
    const auto embedding = embedded(tape, here(tokens), pass, site);
    h = predictions_[k]->forward(embedding, h, pass, recomputes_layers(o_, chunk_));
    tape.computes_in(DType::float32);
    const auto seed = mode.objective->sums_over_step() ? mode.share.scale
                      : counted > 0                    ? mode.auxiliary_seed / counted
                                                       : 0;
    const auto before = before_head(h, pass);
    const auto output = output_layer(before, pass);
    const TraceSpan span(TraceKind::operation, "output layer and loss");
    const auto loss = autograd::vocabulary_loss(before, output.weight,
                                                {.labels = here(labels),
                                                 .mask = here(mask),
                                                 .seed = weight * seed,
                                                 .type = output.type,
                                                 .softcap = output.softcap,
                                                 .sharers = output.sharers},
                                                output.adapter);
    // The log averages over ranks, but each context-parallel rank has only a part of the sum: multiply by their number.
    const auto own = counted > 0 ? loss.total.sum * context_.ranks / counted : 0;
    if (pass.log) pass.log->add_prediction(static_cast<std::int64_t>(k), own);
  }
}

ChunkResult GptModel::forward(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch,
                              const ForwardMode& mode) const {
  const auto pass = pass_of(tape, batch, mode);
  const auto here = [&]<class T>(std::span<const T> array) {
    return held_tokens(tape, context_, batch.samples, batch.seq_length, array);
  };
  auto h = hidden(tape, x, here(batch.tokens), pass);
  if (!chunk_.loss) return {std::move(h), {}};
  if (mode.training && !predictions_.empty()) predict_further(tape, h, batch, mode, pass);
  const bool cut = tensor_.cuts_sequence();
  if (score_)
    return {{}, score_loss(h, score_->leaf, {context_, cut ? h.shape()[1] * tensor_.rank : 0, cut}, batch, mode)};
  h = before_head(h, pass);
  const TraceSpan span(TraceKind::operation, "output layer and loss");
  return {{}, objective_loss(h, output_layer(h, pass), batch, mode)};
}

autograd::Var GptModel::logits(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
  must(context_.whole(), "logits are computed by a rank that has all tokens");
  const auto pass = pass_of(tape, batch, mode);
  return project(hidden(tape, {}, batch.tokens, pass), pass);
}

autograd::Var GptModel::project(const autograd::Var& h, const nn::Pass& pass) const {
  if (score_) return autograd::linear(h, score_->leaf, nullptr);
  const auto before = before_head(h, pass);
  auto logits = autograd::linear(before, head(), nullptr);
  if (output_ && output_->adapters())
    logits = output_->adapters()->add_to(std::move(logits), before, pass, pass.gathered);
  if (!tensor_.whole())
    logits = parallel::gather_from_tensor_region(logits, parallel::tensor_group(pass, tensor_), "logits");
  return o_.output_logit_softcap ? autograd::softcapped(logits, *o_.output_logit_softcap) : logits;
}

nn::KeyValueCache GptModel::make_cache(std::int64_t samples, std::int64_t capacity) const {
  if (score_) throw ConfigError("a model with model_config.score_head generates no tokens: it has no output layer");
  if (o_.multi_latent_attention)
    return {o_.num_layers, samples, capacity, nn::LatentAttention::cached_width(latent_sizes(o_, false)), false};
  return {o_.num_layers, samples, capacity, o_.groups() * o_.channels()};
}

autograd::Var GptModel::next_logits(autograd::Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                                    nn::KeyValueCache& cache) const {
  if (cache.length() + count > std::min(cache.capacity(), positions_))
    throw ShapeError(text("gpt: ", count, " tokens after ", cache.length(), " do not fit; the cache holds ",
                          cache.capacity(), " and the model has ", positions_, " positions"));
  const auto pass = generating_pass(tape, count, cache, o_.window());
  const auto h = hidden(tape, {}, tokens, pass);
  const auto all = tape.read(h);
  cache.advance(count);
  auto last = tape.make({cache.samples(), o_.hidden_size}, false);
  const auto width = static_cast<std::size_t>(o_.hidden_size);
  for (std::int64_t b = 0; b < cache.samples(); ++b) {
    const auto row = static_cast<std::size_t>((b + 1) * count - 1);
    std::copy_n(all.span().begin() + static_cast<std::ptrdiff_t>(row * width), width,
                last.floats().begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b) * width));
  }
  return project(last, pass);
}

}  // namespace

std::unique_ptr<Model> make_gpt_model(const GptOptions& options, const ModelSettings& settings,
                                      const ModelParts& parts) {
  return std::make_unique<GptModel>(options, settings, parts);
}

}  // namespace tessera::model
