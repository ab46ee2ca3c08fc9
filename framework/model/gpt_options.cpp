#include "framework/model/gpt_options.h"

#include "framework/base/error.h"

namespace tessera {

void describe(Schema<GptOptions>& s) {
  using O = GptOptions;
  s.option("num_layers", &O::num_layers, "Transformer layers.").at_least(1);
  s.option("hidden_size", &O::hidden_size, "Width of the model.").at_least(1);
  s.option("num_attention_heads", &O::num_attention_heads, "Query heads of each layer.").at_least(1);
  s.option(
       "ffn_hidden_size", &O::ffn_hidden_size,
       "Inner width of the feed-forward; null: 4 x hidden_size, for swiglu 8/3 x hidden_size down to a multiple of 64.")
      .at_least(1);
  s.option("kv_channels", &O::kv_channels, "Channels of one head; null: hidden_size / num_attention_heads.")
      .at_least(1);
  s.option("group_query_attention", &O::group_query_attention,
           "Query heads share keys and values in num_query_groups groups.");
  s.option("num_query_groups", &O::num_query_groups, "Groups of keys and values; read with group_query_attention only.")
      .at_least(1);
  s.option("position_embedding_type", &O::position_embedding_type, "How a token knows its place.")
      .alias("use_rotary_embedding", {{"true", "rope"}, {"false", ""}})
      .alias("use_rotary_position_embeddings", {{"true", "rope"}, {"false", ""}});
  s.option("max_position_embeddings", &O::max_position_embeddings, "Places there are; null: seq_length.")
      .at_least(1)
      .unit("tokens");
  s.option("rotary_base", &O::rotary_base, "Base of the rotary frequencies.")
      .above(0)
      .alias("rope_theta")
      .alias("rotary_config.rotary_base");
  s.option("rotary_percent", &O::rotary_percent, "Share of each head's channels that turn.")
      .above(0)
      .at_most(1)
      .alias("rotary_config.rotary_percent");
  s.option("rotary_interleaved", &O::rotary_interleaved,
           "Neighbouring channels turn together instead of the halves of a head.")
      .alias("rotary_config.rotary_interleaved");
  s.option("normalization", &O::normalization, "The norm before attention, before the feed-forward and at the end.")
      .alias("use_fused_rmsnorm", {{"true", "RMSNorm"}, {"false", ""}});
  s.option("norm_epsilon", &O::norm_epsilon, "Added under the root of the norm.").above(0).alias("layernorm_epsilon");
  s.option("apply_layernorm_1p", &O::apply_layernorm_1p, "The gain of a norm is stored less one.");
  s.option("hidden_act", &O::hidden_act,
           "Activation of the feed-forward; gelu is the tanh form, gelu_erf the exact one.");
  s.option("swiglu", &O::swiglu, "Megatron's way to say hidden_act: swiglu.");
  s.option("add_bias_linear", &O::add_bias_linear, "Linear layers have biases, where nothing else is said below.");
  s.option("qkv_has_bias", &O::qkv_has_bias, "Bias of the QKV projection; null: as add_bias_linear.")
      .alias("add_qkv_bias");
  s.option("out_proj_has_bias", &O::out_proj_has_bias,
           "Bias of the attention's output projection; null: as add_bias_linear.")
      .alias("add_dense_bias");
  s.option("mlp_has_bias", &O::mlp_has_bias, "Biases of the feed-forward; null: as add_bias_linear.");
  s.option("untie_embeddings_and_output_weights", &O::untie_embeddings_and_output_weights,
           "The output projection has weights of its own.");
  s.option("hidden_dropout_rate", &O::hidden_dropout_rate,
           "Share dropped after the embedding, attention and feed-forward.")
      .at_least(0)
      .below(1)
      .alias("hidden_dropout");
  s.option("attention_dropout_rate", &O::attention_dropout_rate, "Share of the attention probabilities dropped.")
      .at_least(0)
      .below(1)
      .alias("attention_dropout");
  s.option("init_method_std", &O::init_method_std,
           "Standard deviation of the initial weights; output projections have it over sqrt(2 num_layers).")
      .above(0);
}

std::int64_t GptOptions::inner() const {
  if (ffn_hidden_size) return *ffn_hidden_size;
  if (feed_forward() == FeedForwardKind::swiglu) return hidden_size * 8 / 3 / 64 * 64;
  return 4 * hidden_size;
}

std::int64_t GptOptions::rotary_dim() const {
  return static_cast<std::int64_t>(static_cast<double>(channels()) * rotary_percent) / 2 * 2;
}

std::vector<std::pair<std::string, std::string>> contradictions(const GptOptions& o, std::int64_t seq_length) {
  std::vector<std::pair<std::string, std::string>> found;
  const auto wrong = [&](bool is, const char* option, const std::string& words) {
    if (is) found.push_back({option, words});
  };
  wrong(o.num_layers < 1, "num_layers", "num_layers is not given; a gpt needs it");
  wrong(o.hidden_size < 1, "hidden_size", "hidden_size is not given; a gpt needs it");
  wrong(o.num_attention_heads < 1, "num_attention_heads", "num_attention_heads is not given; a gpt needs it");
  if (!found.empty()) return found;
  wrong(!o.kv_channels && o.hidden_size % o.num_attention_heads != 0, "num_attention_heads",
        text("num_attention_heads is ", o.num_attention_heads, ", which does not divide hidden_size ", o.hidden_size,
             "; change one, or give kv_channels"));
  wrong(o.num_attention_heads % o.groups() != 0, "num_query_groups",
        text("num_query_groups is ", o.num_query_groups, ", which does not divide num_attention_heads ",
             o.num_attention_heads));
  wrong(o.swiglu && !*o.swiglu && o.hidden_act == FeedForwardKind::swiglu, "swiglu",
        "swiglu is false, but hidden_act is swiglu; give one of them");
  wrong(o.inner() < 1, "ffn_hidden_size",
        text("ffn_hidden_size is not given and hidden_size ", o.hidden_size, " is too small to derive it"));
  if (o.position_embedding_type == PositionEmbedding::rope)
    wrong(o.rotary_dim() < 2, "rotary_percent",
          text("rotary_percent leaves ", o.rotary_dim(), " of ", o.channels(), " channels to turn; at least 2 must"));
  const auto positions = o.max_position_embeddings.value_or(seq_length);
  wrong(o.position_embedding_type != PositionEmbedding::none && seq_length > positions, "max_position_embeddings",
        text("max_position_embeddings is ", positions, ", but seq_length is ", seq_length,
             "; sequences cannot be longer than the places there are"));
  return found;
}

}  // namespace tessera
