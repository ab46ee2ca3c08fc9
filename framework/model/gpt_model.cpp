// The GPT family: embedding, layers, final norm, output layer; each part is selected by options.
// Sources: Radford et al. 2019 (GPT-2); Touvron et al., arXiv:2302.13971 (Llama); names and layouts as in Megatron
// core's GPTModel.

#include <cmath>

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/embedding.h"
#include "framework/autograd/ops/recompute.h"
#include "framework/autograd/ops/residual.h"
#include "framework/model/gpt_options.h"
#include "framework/model/model.h"
#include "framework/model/transformer_layer.h"
#include "framework/model/visibility.h"
#include "framework/nn/key_value_cache.h"
#include "framework/parallel/tensor_parallel.h"
#include "framework/parallel/tensor_parallel_ops.h"

namespace tessera::model {
namespace {

class GptModel final : public Model {
 public:
  GptModel(const GptOptions& options, const ModelParts& parts);

  ChunkResult forward(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch,
                      const ForwardMode& mode) const override;
  Boundary boundary(const TokenBatch& batch) const override;
  autograd::Var logits(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const override;
  nn::KeyValueCache make_cache(std::int64_t samples, std::int64_t capacity) const override;
  autograd::Var next_logits(autograd::Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                            nn::KeyValueCache& cache) const override;
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t most_positions() const override { return positions_; }
  double flops(std::int64_t samples, std::int64_t seq_length) const override;

 private:
  TransformerLayer::Submodules layer_parts(const std::string& name, std::int64_t number) const;
  nn::AttentionSizes attention_sizes(std::int64_t layer) const;
  struct Run;
  autograd::Var through_layers(autograd::Var x, const nn::Pass& pass) const;
  autograd::Var project(const autograd::Var& h, const nn::Pass& pass) const;
  autograd::Var before_head(const autograd::Var& h, const nn::Pass& pass) const;
  std::int64_t tokens_between_layers(std::int64_t length) const;
  nn::Pass pass_of(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const;
  autograd::Var embedded(autograd::Tape& tape, std::span<const std::int32_t> tokens, const nn::Pass& pass) const;
  autograd::Var embedded_in_parts(autograd::Tape& tape, std::span<const std::int32_t> tokens,
                                  const nn::Pass& pass) const;
  autograd::Var hidden(autograd::Tape& tape, autograd::Var x, std::span<const std::int32_t> tokens,
                       const nn::Pass& pass) const;
  autograd::Leaf& head() const { return output_ ? output_->weight() : words_->leaf; }
  bool recomputes_attention(std::int64_t layer) const;
  bool tied() const { return !o_.untie_embeddings_and_output_weights; }
  void declare_tables();
  void add_layers();
  void add_head();
  void set_types();
  void share_copies();

  GptOptions o_;
  Precision precision_;
  ModelChunk chunk_;
  nn::TensorRank tensor_;
  nn::ContextRank context_;
  std::optional<parallel::ContextParallelAttention> shared_attention_;  ///< if ranks share each sequence
  parallel::TensorParallelLayers maker_;
  std::int64_t vocabulary_, positions_;
  std::optional<nn::RotaryEmbedding> rotary_;
  nn::Parameter* words_ = nullptr;  ///< of the embedding, and of an output layer tied to it
  nn::Parameter* position_table_ = nullptr;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;  ///< of this chunk, without no-op layers
  std::unique_ptr<nn::Norm> final_norm_;
  std::unique_ptr<nn::LinearLayer> output_;
};

GptModel::GptModel(const GptOptions& options, const ModelParts& parts)
    : Model(""),
      o_(options),
      precision_(parts.precision),
      chunk_(parts.chunk),
      tensor_(parts.tensor),
      context_(parts.context.rank),
      maker_(tensor_),
      vocabulary_(parts.vocabulary),
      positions_(o_.max_position_embeddings.value_or(parts.seq_length)) {
  options::refuse("gpt", broken_rules(o_, parts.seq_length));
  if (vocabulary_ % tensor_.ranks != 0)
    throw ConfigError(text("model_config.vocab_size: ", vocabulary_, " rows do not divide by ", tensor_.ranks,
                           ", parallel_config.tensor_model_parallel_size; give a multiple, or leave vocab_size out"));
  if (!context_.whole()) shared_attention_.emplace(parts.context);
  if (!chunk_.layers) chunk_.layers = o_.num_layers - chunk_.first_layer;
  declare_tables();
  add_layers();
  if (chunk_.loss) add_head();
  set_types();
  share_copies();
}

void GptModel::declare_tables() {
  const bool head_alone = chunk_.loss && !chunk_.embedding && tied();
  if (chunk_.embedding || head_alone) {
    auto cut = tensor_.part(0, vocabulary_, "rows of the word embedding");
    if (head_alone && cut.strips.empty()) cut = nn::TensorCut::copy(vocabulary_);
    if (head_alone) cut.strips[0].owned = false;  // owned by the stage with the embedding
    words_ = &declare("embedding.word_embeddings.weight", ParameterRole::word_embedding, {vocabulary_, o_.hidden_size},
                      o_.table_init(vocabulary_), std::move(cut));
    if (tied() && !(chunk_.embedding && chunk_.loss)) words_->share(nn::GradientSharers::ends);
  }
  if (chunk_.embedding && o_.position_embedding_type == PositionEmbedding::learned_absolute)
    position_table_ = &declare("embedding.position_embeddings.weight", ParameterRole::position_embedding,
                               {positions_, o_.hidden_size}, o_.table_init(positions_));
}

void GptModel::add_layers() {
  if (o_.position_embedding_type == PositionEmbedding::rope)
    rotary_.emplace(o_.rotary_dim(), o_.rotary_base,
                    o_.rotary_interleaved ? kernels::RotaryLayout::interleaved : kernels::RotaryLayout::half,
                    positions_, o_.rotary_scaling(positions_));
  const LayerForm form{o_.hidden_dropout_rate, o_.use_parallel_residual, o_.apply_residual_connection_post_norm,
                       o_.recomputes(RecomputedModule::mlp)};
  for (std::int64_t i = chunk_.first_layer; i < chunk_.first_layer + *chunk_.layers; ++i) {
    if (std::find(chunk_.noop.begin(), chunk_.noop.end(), i) != chunk_.noop.end()) continue;
    const auto name = text("decoder.layers.", i);
    layers_.push_back(std::make_unique<TransformerLayer>(name, i, form, layer_parts(name, i)));
    contains(*layers_.back());
  }
}

void GptModel::add_head() {
  if (o_.use_final_norm) {
    final_norm_ = nn::make_norm(o_.norm(), "decoder.final_layernorm", o_.hidden_size);
    contains(*final_norm_);
  }
  if (tied()) return;
  output_ = maker_.column_parallel("output_layer",
                                   {.in = o_.hidden_size,
                                    .out = vocabulary_,
                                    .init = o_.weight_init(vocabulary_, o_.hidden_size, false),
                                    .role = ParameterRole::output_layer},
                                   tensor_.part(0, vocabulary_, "rows of the output layer"));
  contains(*output_);
}

void GptModel::set_types() {
  for (auto* parameter : parameters()) parameter->type = precision_.params;
  if (words_) words_->type = precision_.embedding;
  if (position_table_) position_table_->type = precision_.embedding;
}

/// Parameters that are replicated in the tensor-parallel group are owned by its first rank. With sequence parallelism
/// each rank computes their gradient from its own tokens, so these are summed.
void GptModel::share_copies() {
  if (tensor_.whole()) return;
  for (auto* parameter : parameters()) {
    if (!parameter->cut.strips.empty()) continue;
    if (tensor_.rank > 0) parameter->cut = nn::TensorCut::copy(parameter->global_shape[0]);
    if (tensor_.cuts_sequence() && parameter->shared.empty()) parameter->share(nn::GradientSharers::tensor);
  }
}

bool GptModel::recomputes_attention(std::int64_t layer) const {
  if (!chunk_.recompute) return o_.recomputes(RecomputedModule::core_attn);
  const auto behind = layer - chunk_.first_layer - chunk_.recompute->layers;
  return behind >= 0 && behind < chunk_.recompute->attention;
}

nn::AttentionSizes GptModel::attention_sizes(std::int64_t layer) const {
  nn::AttentionSizes sizes;
  sizes.hidden = o_.hidden_size;
  sizes.heads = o_.num_attention_heads;
  sizes.groups = o_.groups();
  sizes.channels = o_.channels();
  sizes.qkv_bias = o_.qkv_bias();
  sizes.out_bias = o_.out_proj_bias();
  sizes.dropout = o_.attention_dropout_rate;
  const auto queries = sizes.heads * sizes.channels;
  sizes.init = o_.weight_init(queries + 2 * sizes.groups * sizes.channels, sizes.hidden, false);
  sizes.out_init = o_.weight_init(sizes.hidden, queries, true);
  sizes.scale = 1 / std::sqrt(o_.score_scale());
  sizes.softcap = o_.attention_logit_softcap.value_or(0);
  sizes.windowed = o_.windowed(layer);
  sizes.recomputed = recomputes_attention(layer);
  if (o_.qk_layernorm) sizes.head_norm = o_.norm();
  return sizes;
}

TransformerLayer::Submodules GptModel::layer_parts(const std::string& name, std::int64_t number) const {
  const auto norm = [&](const char* which, double gain = 1) {
    return nn::make_norm(o_.norm(), text(name, ".", which), o_.hidden_size, gain);
  };
  const auto inner = o_.inner(), wide = nn::is_gated(o_.feed_forward()) ? 2 * inner : inner;
  const nn::FeedForwardSizes feed_forward{.hidden = o_.hidden_size,
                                          .inner = inner,
                                          .has_bias = o_.mlp_bias(),
                                          .init = o_.weight_init(wide, o_.hidden_size, false),
                                          .out_init = o_.weight_init(o_.hidden_size, inner, true)};
  TransformerLayer::Submodules parts;
  parts.before_attention = norm("input_layernorm");
  if (!o_.shared_parallel_norm) parts.before_feed_forward = norm("pre_mlp_layernorm");
  if (o_.use_sandwich_norm) {
    parts.after_attention = norm("post_self_attn_layernorm", o_.attn_post_norm_scale);
    parts.after_feed_forward = norm("post_mlp_layernorm", o_.ffn_post_norm_scale);
  }
  parts.attention = std::make_unique<nn::SelfAttention>(name + ".self_attention", number, attention_sizes(number),
                                                        rotary_ ? &*rotary_ : nullptr, maker_);
  parts.feed_forward = nn::make_feed_forward(o_.feed_forward(), name + ".mlp", feed_forward, maker_);
  return parts;
}

/// A function object for recomputed(): consecutive layers.
struct GptModel::Run {
  const std::unique_ptr<TransformerLayer>* first;
  std::int64_t layers;
  nn::Pass pass;
  autograd::Var operator()(autograd::Var x) const {
    auto now = pass;
    if (x.tape().records()) now.tap = nullptr;  // recomputation: the tap has already seen these values
    for (std::int64_t i = 0; i < layers; ++i) x = first[i]->forward(std::move(x), now);
    return x;
  }
};

autograd::Var GptModel::through_layers(autograd::Var x, const nn::Pass& pass) const {
  const bool full = chunk_.recompute ? chunk_.recompute->layers > 0 : o_.recompute_granularity == Recomputation::full;
  const bool block = chunk_.recompute || (full && *o_.recompute_method == RecomputedLayers::block);
  // "block": the first `count` layers are recomputed one by one. "uniform": all layers, `count` at a time.
  const auto layers = static_cast<std::int64_t>(layers_.size());
  const auto wanted = chunk_.recompute ? chunk_.recompute->layers : full ? *o_.recompute_num_layers : 0;
  const auto count = std::min(wanted, layers);
  const auto* first = layers_.data();
  if (!full || block) {
    for (std::int64_t i = 0; i < layers; ++i)
      x = i < count ? autograd::recomputed(x, Run{first + i, 1, pass}) : first[i]->forward(std::move(x), pass);
    return x;
  }
  for (std::int64_t i = 0; i < layers; i += count)
    x = autograd::recomputed(x, Run{first + i, std::min(count, layers - i), pass});
  return x;
}

/// Of the positions of the T tokens of each sample, those of `here` tokens from `first` on.
std::span<const std::int32_t> positions_here(autograd::Tape& tape, const nn::Pass& pass, std::int64_t first,
                                             std::int64_t here) {
  if (here == pass.T) return pass.positions;
  const auto count = static_cast<std::size_t>(here);
  const auto bytes = tape.keep(static_cast<std::size_t>(pass.B) * count * sizeof(std::int32_t));
  const std::span<std::int32_t> out(reinterpret_cast<std::int32_t*>(bytes.data()),
                                    static_cast<std::size_t>(pass.B) * count);
  for (std::int64_t b = 0; b < pass.B; ++b) {
    const auto from = pass.positions.subspan(static_cast<std::size_t>(b * pass.T + first), count);
    std::copy(from.begin(), from.end(), out.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b) * count));
  }
  return out;
}

autograd::Var GptModel::embedded_in_parts(autograd::Tape& tape, std::span<const std::int32_t> tokens,
                                          const nn::Pass& pass) const {
  auto x =
      parallel::vocab_parallel_embedding(tape, tokens, words_->leaf, vocabulary_, tensor_, pass, precision_.residual);
  if (!position_table_) return x;
  const auto here = x.shape()[1];
  const auto first = here == pass.T ? 0 : here * tensor_.rank;
  return parallel::plus_positions(std::move(x), positions_here(tape, pass, first, here), position_table_->leaf);
}

autograd::Var GptModel::embedded(autograd::Tape& tape, std::span<const std::int32_t> tokens,
                                 const nn::Pass& pass) const {
  auto x = tensor_.whole()
               ? autograd::embedding(tape, {pass.B, pass.T}, tokens, words_->leaf, pass.positions,
                                     position_table_ ? &position_table_->leaf : nullptr, precision_.residual)
               : embedded_in_parts(tape, tokens, pass);
  if (o_.scale_embeddings) x = autograd::scaled(std::move(x), std::sqrt(static_cast<double>(o_.hidden_size)));
  const auto mask = pass.held.rows(pass.dropout(Purpose::hidden_dropout, 0, o_.hidden_dropout_rate), o_.hidden_size);
  if (mask.rate > 0) x = autograd::dropout_add(std::move(x), {}, mask);
  pass.show("embedding", x);
  return x;
}

/// The output of this chunk; for the last one, after the final norm. The following projection to the vocabulary is
/// fp32.
autograd::Var GptModel::hidden(autograd::Tape& tape, autograd::Var x, std::span<const std::int32_t> tokens,
                               const nn::Pass& pass) const {
  tape.computes_in(precision_.compute);
  if (chunk_.embedding) x = embedded(tape, tokens, pass);
  x = through_layers(std::move(x), pass);
  if (final_norm_) {
    x = final_norm_->forward(x);
    pass.show(final_norm_->name(), x);
  }
  tape.computes_in(DType::float32);
  return x;
}

nn::Pass GptModel::pass_of(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
  auto pass = training_pass(tape, batch, mode, o_.window());
  if (!context_.whole()) {
    pass.T = pass.S / context_.ranks;
    pass.positions = held_tokens(tape, context_, pass.B, pass.S, batch.positions);
    pass.core = &*shared_attention_;
  }
  const auto here = tokens_between_layers(pass.S), first = tensor_.cuts_sequence() ? here * tensor_.rank : 0;
  pass.held = nn::HeldTokens::of(context_, first, first + here, pass.S);
  return pass;
}

/// Tokens of a sample of `length` that this rank has between attention and the other layers.
std::int64_t GptModel::tokens_between_layers(std::int64_t length) const {
  return length / context_.ranks / (tensor_.cuts_sequence() ? tensor_.ranks : 1);
}

Model::Boundary GptModel::boundary(const TokenBatch& batch) const {
  return {{batch.samples, tokens_between_layers(batch.seq_length), o_.hidden_size}, precision_.residual};
}

/// h of all tokens on every rank that has a part of the output layer.
autograd::Var GptModel::before_head(const autograd::Var& h, const nn::Pass& pass) const {
  if (tensor_.whole()) return h;
  constexpr auto who = "output layer";
  const auto& group = parallel::tensor_group(pass, tensor_);
  return tensor_.cuts_sequence() ? parallel::gather_from_sequence_region(h, group, who)
                                 : parallel::copy_to_tensor_region(h, group, who);
}

ChunkResult GptModel::forward(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch,
                              const ForwardMode& mode) const {
  const auto pass = pass_of(tape, batch, mode);
  const auto here = [&]<class T>(std::span<const T> array) {
    return held_tokens(tape, context_, batch.samples, batch.seq_length, array);
  };
  auto h = hidden(tape, x, here(batch.tokens), pass);
  if (!chunk_.loss) return {std::move(h), {}};
  h = before_head(h, pass);
  std::optional<parallel::VocabParallelHead> sharers;
  if (!tensor_.whole()) sharers.emplace(parallel::tensor_group(pass, tensor_), vocabulary_);
  return {{},
          autograd::vocabulary_loss(h, head(),
                                    {.labels = here(batch.labels),
                                     .mask = here(batch.loss_mask),
                                     .seed = mode.loss_seed,
                                     .type = precision_.logits,
                                     .softcap = o_.output_logit_softcap.value_or(0),
                                     .sharers = sharers ? &*sharers : nullptr})};
}

autograd::Var GptModel::logits(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
  must(context_.whole(), "logits are computed by a rank that has all tokens");
  const auto pass = pass_of(tape, batch, mode);
  return project(hidden(tape, {}, batch.tokens, pass), pass);
}

autograd::Var GptModel::project(const autograd::Var& h, const nn::Pass& pass) const {
  auto logits = autograd::linear(before_head(h, pass), head(), nullptr);
  if (!tensor_.whole())
    logits = parallel::gather_from_tensor_region(logits, parallel::tensor_group(pass, tensor_), "logits");
  return o_.output_logit_softcap ? autograd::softcapped(logits, *o_.output_logit_softcap) : logits;
}

nn::KeyValueCache GptModel::make_cache(std::int64_t samples, std::int64_t capacity) const {
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

double GptModel::flops(std::int64_t samples, std::int64_t seq_length) const {
  const auto tokens = static_cast<double>(samples * seq_length);
  const auto hidden = static_cast<double>(o_.hidden_size),
             attended = static_cast<double>(o_.num_attention_heads * o_.channels());
  const auto qkv = hidden * static_cast<double>((o_.num_attention_heads + 2 * o_.groups()) * o_.channels());
  const auto fc1 = hidden * static_cast<double>(o_.inner() * (nn::is_gated(o_.feed_forward()) ? 2 : 1));
  const auto layer = qkv + attended * hidden + fc1 + hidden * static_cast<double>(o_.inner());
  const auto layers = static_cast<double>(o_.num_layers) - static_cast<double>(chunk_.noop.size());
  const auto products = layers * layer + hidden * static_cast<double>(vocabulary_);
  const auto scores = layers * attended * static_cast<double>(seq_length);  // causal: half of q k^T and of p v
  return 6 * tokens * (products + scores);
}

std::unique_ptr<Model> make(const GptOptions& options, ModelParts parts) {
  return std::make_unique<GptModel>(options, parts);
}

}  // namespace

void register_gpt(ModelRegistry& registry) {
  registry.add("gpt", make, "Decoder-only transformer: GPT-2, Llama, Qwen, Mistral, GPT-NeoX, Phi-3, Gemma.",
               {"encoder_or_decoder"});
}

}  // namespace tessera::model
