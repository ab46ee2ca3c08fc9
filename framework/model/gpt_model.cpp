// The GPT family: embedding, layers, final norm, projection on the vocabulary; each part chosen by options.
// Source: Radford et al. 2019 (GPT-2); Touvron et al., arXiv:2302.13971 (Llama); names and layouts as Megatron core's
// GPTModel.

#include <cmath>

#include "framework/autograd/ops/embedding.h"
#include "framework/autograd/ops/residual.h"
#include "framework/model/gpt_options.h"
#include "framework/model/model.h"
#include "framework/model/transformer_layer.h"
#include "framework/nn/key_value_cache.h"

namespace tessera {
namespace {

Init scaled(const GptOptions& o) {
  return Init::normal(o.init_method_std / std::sqrt(2.0 * static_cast<double>(o.num_layers)));
}

class GptModel final : public Model {
 public:
  GptModel(const GptOptions& options, const ModelParts& parts);

  VocabularyLoss loss(Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const override;
  Var logits(Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const override;
  KeyValueCache make_cache(std::int64_t samples, std::int64_t capacity) const override;
  Var next_logits(Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                  KeyValueCache& cache) const override;
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::int64_t most_positions() const override { return positions_; }
  double flops(std::int64_t samples, std::int64_t seq_length) const override;

 private:
  TransformerLayer::Parts layer_parts(const std::string& name, std::int64_t number) const;
  Var hidden(Tape& tape, std::span<const std::int32_t> tokens, const Pass& pass) const;
  Leaf& head() const { return output_ ? output_->weight() : words_->leaf; }

  GptOptions o_;
  std::int64_t vocabulary_, positions_;
  std::optional<RotaryEmbedding> rotary_;
  Parameter* words_;
  Parameter* position_table_ = nullptr;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<Norm> final_norm_;
  std::unique_ptr<LinearLayer> output_;
};

GptModel::GptModel(const GptOptions& options, const ModelParts& parts)
    : Model(""),
      o_(options),
      vocabulary_(parts.vocabulary),
      positions_(o_.max_position_embeddings.value_or(parts.seq_length)) {
  for (const auto& [option, words] : contradictions(o_, parts.seq_length)) throw ConfigError(words);
  const auto init = Init::normal(o_.init_method_std);
  words_ = &declare("embedding.word_embeddings.weight", {vocabulary_, o_.hidden_size}, init);
  if (o_.position_embedding_type == PositionEmbedding::learned_absolute)
    position_table_ = &declare("embedding.position_embeddings.weight", {positions_, o_.hidden_size}, init);
  if (o_.position_embedding_type == PositionEmbedding::rope)
    rotary_.emplace(o_.rotary_dim(), o_.rotary_base,
                    o_.rotary_interleaved ? RotaryLayout::interleaved : RotaryLayout::half, positions_);
  for (std::int64_t i = 0; i < o_.num_layers; ++i) {
    const auto name = text("decoder.layers.", i);
    layers_.push_back(std::make_unique<TransformerLayer>(name, i, o_.hidden_dropout_rate, layer_parts(name, i)));
    contains(*layers_.back());
  }
  final_norm_ =
      make_norm(o_.normalization, "decoder.final_layernorm", o_.hidden_size, o_.norm_epsilon, o_.apply_layernorm_1p);
  contains(*final_norm_);
  if (!o_.untie_embeddings_and_output_weights) return;
  output_ = std::make_unique<LinearLayer>("output_layer", o_.hidden_size, vocabulary_, false, init);
  contains(*output_);
}

TransformerLayer::Parts GptModel::layer_parts(const std::string& name, std::int64_t number) const {
  const auto norm = [&](const char* which) {
    return make_norm(o_.normalization, text(name, ".", which), o_.hidden_size, o_.norm_epsilon, o_.apply_layernorm_1p);
  };
  const auto init = Init::normal(o_.init_method_std);
  const AttentionSizes attention{o_.hidden_size,
                                 o_.num_attention_heads,
                                 o_.groups(),
                                 o_.channels(),
                                 o_.qkv_has_bias.value_or(o_.add_bias_linear),
                                 o_.out_proj_has_bias.value_or(o_.add_bias_linear),
                                 o_.attention_dropout_rate,
                                 init,
                                 scaled(o_)};
  const FeedForwardSizes feed_forward{o_.hidden_size, o_.inner(), o_.mlp_has_bias.value_or(o_.add_bias_linear), init,
                                      scaled(o_)};
  return {norm("input_layernorm"), norm("pre_mlp_layernorm"),
          std::make_unique<SelfAttention>(name + ".self_attention", number, attention, rotary_ ? &*rotary_ : nullptr),
          make_feed_forward(o_.feed_forward(), name + ".mlp", feed_forward)};
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the parts are owned by unique_ptr

/// `count` integers that live as long as the pass.
std::span<std::int32_t> integers(Tape& tape, std::size_t count) {
  static_assert(sizeof(std::int32_t) == sizeof(float));
  return {reinterpret_cast<std::int32_t*>(tape.keep(count * sizeof(float)).data()), count};
}

/// Each token looks at its document up to itself.
Pass training_pass(Tape& tape, const TokenBatch& batch, const ForwardMode& mode) {
  const auto last = integers(tape, batch.tokens.size());
  for (std::size_t i = 0; i < last.size(); ++i)
    last[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(batch.seq_length));
  Pass pass;
  pass.B = batch.samples;
  pass.T = batch.seq_length;
  pass.positions = batch.positions;
  pass.visible = {batch.document_start, last};
  pass.sample_ids = batch.sample_ids;
  pass.seed = mode.seed;
  pass.training = mode.training;
  pass.tap = mode.tap;
  return pass;
}

/// `count` new tokens of each sample look at all that the cache holds and at themselves.
Pass generating_pass(Tape& tape, std::int64_t count, KeyValueCache& cache) {
  const auto rows = static_cast<std::size_t>(cache.samples() * count);
  const auto first = integers(tape, rows), last = integers(tape, rows);
  for (std::size_t i = 0; i < rows; ++i) {
    first[i] = 0;
    last[i] = static_cast<std::int32_t>(cache.length() + static_cast<std::int64_t>(i) % count);
  }
  Pass pass;
  pass.B = cache.samples();
  pass.T = count;
  pass.positions = last;  // a token's place is the index of its own key
  pass.visible = {first, last};
  pass.cache = &cache;
  return pass;
}

Var GptModel::hidden(Tape& tape, std::span<const std::int32_t> tokens, const Pass& pass) const {
  auto x = embedding(tape, {pass.B, pass.T}, tokens, words_->leaf, pass.positions,
                     position_table_ ? &position_table_->leaf : nullptr);
  const auto mask = pass.dropout(Purpose::hidden_dropout, 0, o_.hidden_dropout_rate);
  if (mask.rate > 0) x = dropout_add(std::move(x), {}, mask);
  pass.show("embedding", x);
  for (const auto& layer : layers_) x = layer->forward(std::move(x), pass);
  return x;
}

VocabularyLoss GptModel::loss(Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
  const auto pass = training_pass(tape, batch, mode);
  const auto h = final_norm_->forward(hidden(tape, batch.tokens, pass));
  pass.show(final_norm_->name(), h);
  return vocabulary_loss(h, head(), {batch.labels, batch.loss_mask, mode.loss_seed});
}

Var GptModel::logits(Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
  const auto pass = training_pass(tape, batch, mode);
  return linear(final_norm_->forward(hidden(tape, batch.tokens, pass)), head(), nullptr);
}

KeyValueCache GptModel::make_cache(std::int64_t samples, std::int64_t capacity) const {
  return {o_.num_layers, samples, capacity, o_.groups() * o_.channels()};
}

Var GptModel::next_logits(Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                          KeyValueCache& cache) const {
  if (cache.length() + count > std::min(cache.capacity(), positions_))
    throw ShapeError(text("gpt: ", count, " tokens after ", cache.length(), " do not fit; the cache holds ",
                          cache.capacity(), " and the model has ", positions_, " positions"));
  const auto all = hidden(tape, tokens, generating_pass(tape, count, cache));
  cache.advance(count);
  auto last = tape.make({cache.samples(), o_.hidden_size}, false);
  const auto width = static_cast<std::size_t>(o_.hidden_size);
  for (std::int64_t b = 0; b < cache.samples(); ++b) {
    const auto row = static_cast<std::size_t>((b + 1) * count - 1);
    std::copy_n(all.floats().begin() + static_cast<std::ptrdiff_t>(row * width), width,
                last.floats().begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b) * width));
  }
  return linear(final_norm_->forward(last), head(), nullptr);
}

double GptModel::flops(std::int64_t samples, std::int64_t seq_length) const {
  const auto tokens = static_cast<double>(samples * seq_length);
  const auto hidden = static_cast<double>(o_.hidden_size),
             attended = static_cast<double>(o_.num_attention_heads * o_.channels());
  const auto qkv = hidden * static_cast<double>((o_.num_attention_heads + 2 * o_.groups()) * o_.channels());
  const auto fc1 = hidden * static_cast<double>(o_.inner() * (o_.feed_forward() == FeedForwardKind::swiglu ? 2 : 1));
  const auto layer = qkv + attended * hidden + fc1 + hidden * static_cast<double>(o_.inner());
  const auto products = static_cast<double>(o_.num_layers) * layer + hidden * static_cast<double>(vocabulary_);
  const auto scores = static_cast<double>(o_.num_layers) * attended *
                      static_cast<double>(seq_length);  // causal: half of q k^T and of p v
  return 6 * tokens * (products + scores);
}

std::unique_ptr<Model> make(const GptOptions& options, ModelParts parts) {
  return std::make_unique<GptModel>(options, parts);
}

}  // namespace

void register_gpt(ModelRegistry& shelf) {
  shelf.add("gpt", make, "Decoder of the GPT family: GPT-2, Llama, Qwen2, Mistral.", {"encoder_or_decoder"});
}

}  // namespace tessera
