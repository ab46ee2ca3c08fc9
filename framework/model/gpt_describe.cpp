#include <algorithm>

#include "framework/base/error.h"
#include "framework/model/gpt_options.h"
#include "framework/options/limits.h"

namespace tessera::model {
namespace {

using O = GptOptions;

// With these no count of parameters, and no number of bytes of state for them, leaves 64 bits.
constexpr std::int64_t most_width = std::int64_t{1} << 20, most_heads = 65536, most_kv_channels = 65536;
constexpr std::int64_t most_window = 0x7FFFFFFF;  // "all" in other programs

void describe_sizes(options::Schema<O>& s) {
  s.option("num_layers", &O::num_layers, "Number of transformer layers.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(options::most_layers);
  s.option("hidden_size", &O::hidden_size, "Hidden size of the transformer.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(most_width);
  s.option("num_attention_heads", &O::num_attention_heads, "Number of attention (query) heads in each layer.")
      .at_least(1)
      .at_most(most_heads)
      .must(
          "M4", [](const O& o) { return o.kv_channels || o.hidden_size % o.num_attention_heads == 0; },
          [](const O& o) {
            return text("num_attention_heads is ", o.num_attention_heads, ", which does not divide hidden_size ",
                        o.hidden_size);
          },
          "change one, or give kv_channels", {"hidden_size", "kv_channels"});
  s.option("ffn_hidden_size", &O::ffn_hidden_size, "Hidden size of the feed-forward network.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(4 * most_width)
      .otherwise([](const O& o) { return o.inner(); },
                 "4 x `hidden_size`, or with a gated activation 8/3 x `hidden_size`, rounded down to a multiple of 64")
      .must(
          "M3", [](const O& o) { return o.inner() >= 1; },
          [](const O& o) {
            return text("ffn_hidden_size is not given, and hidden_size ", o.hidden_size, " is too small to derive it");
          },
          "give ffn_hidden_size", {"hidden_size"});
  s.option("num_experts", &O::num_experts,
           "Number of experts per layer; null or 0: dense layers. The other options of experts are in moe_config.")
      .when_changed(options::Change::tensors)
      .at_least(0)
      .at_most(options::most_experts);
  s.option("kv_channels", &O::kv_channels, "Dimension of an attention head.")
      .at_least(1)
      .at_most(most_kv_channels)
      .otherwise([](const O& o) { return o.channels(); }, "`hidden_size` / `num_attention_heads`")
      .must(
          "width of attention", [](const O& o) { return o.num_attention_heads * o.channels() <= 4 * most_width; },
          [](const O& o) {
            return text("num_attention_heads ", o.num_attention_heads, " x kv_channels ", o.channels(), " is ",
                        o.num_attention_heads * o.channels(), "; at most ", 4 * most_width, " is supported");
          },
          "make one of them smaller", {"num_attention_heads"});
  s.option("group_query_attention", &O::group_query_attention,
           "Use grouped-query attention: query heads share `num_query_groups` key/value heads.")
      .when_changed(options::Change::tensors);
  s.option("num_query_groups", &O::num_query_groups, "Number of key/value heads.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(most_heads)
      .matters_when([](const O& o) { return o.group_query_attention; }, "`group_query_attention` is false")
      .must(
          "M8", [](const O& o) { return o.num_attention_heads % o.groups() == 0; },
          [](const O& o) {
            return text("num_query_groups is ", o.num_query_groups, ", which does not divide num_attention_heads ",
                        o.num_attention_heads);
          },
          "give a divisor of num_attention_heads", {"num_attention_heads"});
}

void describe_attention(options::Schema<O>& s) {
  s.option("window_size", &O::window_size,
           "Attention window in tokens, [left, right]: left -1 is unlimited, right is 0 for causal attention.")
      .replaces({"sliding_window"})
      .at_least(-1)
      .at_most(most_window)
      .alias("fa_config.pre_tokens", 0)
      .alias("fa_config.pre_tockens", 0)
      .alias("pre_tockens", 0)
      .alias("fa_config.next_tokens", 1)
      .alias("fa_config.next_tockens", 1)
      .alias("next_tockens", 1)
      .must(
          "one window", [](const O& o) { return o.window_size[1] >= 0; },
          [](const O& o) {
            return text("window_size is [", o.window_size[0], ", ", o.window_size[1],
                        "]; its second number, tokens to the right, is below 0");
          },
          "give how many tokens to the right, 0 for causal attention");
  s.option("sliding_window", &O::sliding_window, "Attention window including the token itself, in tokens.")
      .replaces({"window_size"})
      .at_least(1)
      .at_most(most_window)
      .unit("tokens")
      .otherwise(
          [](const O& o) {
            const auto left = o.window()[0];
            return left < 0 ? std::nullopt : std::optional(left + 1);
          },
          "`window_size[0]` + 1, or unlimited")
      .must(
          "one window",
          [](const O& o) {
            return !o.sliding_window || o.window_size[0] < 0 || o.window_size[0] == *o.sliding_window - 1;
          },
          [](const O& o) {
            return text("sliding_window is ", *o.sliding_window, ", but window_size has ", o.window_size[0],
                        " tokens to the left");
          },
          "give one of them", {"window_size"});
  s.option("layer_types", &O::layer_types,
           "Attention type of each layer, full_attention or sliding_attention; a shorter list repeats. Empty: the "
           "window applies to all layers.")
      .must(
          "a window for layers",
          [](const O& o) {
            return std::find(o.layer_types.begin(), o.layer_types.end(), LayerSight::window) == o.layer_types.end() ||
                   o.window()[0] >= 0 || o.window()[1] != 0;
          },
          [](const O&) { return "layer_types contains sliding_attention, but there is no window"; },
          "give sliding_window", {"sliding_window", "window_size"})
      .no_flag("from config.json of Hugging Face Transformers");
  s.option("qk_layernorm", &O::qk_layernorm, "Normalize queries and keys of each head before the rotary embedding.");
  s.option("softmax_type", &O::softmax_type,
           "Softmax of the attention scores. off-by-one: its denominator has a term more, 1; learnable: a term e^x for "
           "each head, with the parameter x (attention sinks).")
      .must(
          "softmax_type", [](const O& o) { return o.softmax_type == nn::Sinks::none || !o.multi_latent_attention; },
          [](const O& o) {
            return text("softmax_type is ", options::OptionType<nn::Sinks>::write(o.softmax_type),
                        ", which multi_latent_attention does not have");
          },
          "leave it out", {"multi_latent_attention"});
  s.option("qk_layernorm_all_heads", &O::qk_layernorm_all_heads,
           "With `qk_layernorm`: one RMSNorm over all query heads together, and one over all key heads, with a weight "
           "for each of their dimensions.")
      .when_changed(options::Change::tensors)
      .matters_when([](const O& o) { return o.qk_layernorm; }, "`qk_layernorm` is false")
      .must(
          "norm of all heads",
          [](const O& o) {
            return !o.qk_layernorm_all_heads ||
                   (o.normalization == nn::Normalization::rms_norm && !o.multi_latent_attention);
          },
          [](const O&) {
            return "qk_layernorm_all_heads is for normalization RMSNorm, and not for multi-latent attention";
          },
          "leave it out, or choose RMSNorm", {"normalization", "multi_latent_attention"})
      .no_flag("from config.json of Hugging Face Transformers");
  s.option("query_pre_attn_scalar", &O::query_pre_attn_scalar,
           "Attention scores are divided by the square root of this.")
      .above(0)
      .at_most(1e9)
      .otherwise([](const O& o) { return o.score_scale(); }, "`kv_channels`");
  s.option("attention_logit_softcap", &O::attention_logit_softcap,
           "Soft cap of attention scores, cap x tanh(score / cap); null: none.")
      .above(0)
      .at_most(1e9)
      .alias("attn_logit_softcapping");
  s.option("output_logit_softcap", &O::output_logit_softcap,
           "Soft cap of the output logits, cap x tanh(logit / cap); null: none.")
      .above(0)
      .at_most(1e9)
      .alias("final_logit_softcapping");
}

constexpr auto sandwiches = [](const O& o) { return o.use_sandwich_norm; };
constexpr const char* no_sandwich = "`use_sandwich_norm` is false";

template <double O::*scale>
void describe_post_norm_scale(options::Schema<O>& s, const char* words) {
  static constexpr const char* name =
      scale == &O::attn_post_norm_scale ? "attn_post_norm_scale" : "ffn_post_norm_scale";
  s.option(name, scale, words)
      .when_changed(options::Change::silent)
      .at_least(0)
      .at_most(options::most_factor)
      .matters_when(sandwiches, no_sandwich)
      .must(
          "sandwich scales",
          [](const O& o) {
            return !sandwiches(o) || o.*scale == 1 || o.normalization != nn::Normalization::layer_norm;
          },
          [](const O& o) {
            return text(name, " is ", o.*scale, ", but normalization is LayerNorm; it is for RMSNorm");
          },
          "leave it out, or choose RMSNorm", {"normalization", "use_sandwich_norm"});
}

void describe_norms(options::Schema<O>& s) {
  s.option("normalization", &O::normalization,
           "Type of the norms before attention, before the feed-forward network and after the last layer.")
      .alias("use_fused_rmsnorm", {{"true", "RMSNorm"}, {"false", ""}});
  s.option("norm_epsilon", &O::norm_epsilon, "Epsilon of the norms, added to the variance or mean square.")
      .above(0)
      .at_most(1)
      .alias("layernorm_epsilon");
  s.option("apply_layernorm_1p", &O::apply_layernorm_1p, "Store norm weights minus one (zero-centered gamma).")
      .alias("layernorm_zero_centered_gamma");
  s.option("use_pre_norm", &O::use_pre_norm,
           "Normalize the inputs of attention and feed-forward network; false requires `use_sandwich_norm`.")
      .when_changed(options::Change::tensors)
      .must(
          "norms of a layer",
          [](const O& o) {
            return o.use_pre_norm ||
                   (o.use_sandwich_norm && !o.use_parallel_residual && !o.apply_residual_connection_post_norm);
          },
          [](const O& o) {
            return o.use_sandwich_norm ? "use_pre_norm is false, but use_parallel_residual and "
                                         "apply_residual_connection_post_norm need a norm before attention"
                                       : "use_pre_norm and use_sandwich_norm are both false: layers have no norms";
          },
          "give use_sandwich_norm: true alone, or leave use_pre_norm out",
          {"use_sandwich_norm", "use_parallel_residual", "apply_residual_connection_post_norm"})
      .no_flag("from config.json of Hugging Face Transformers");
  s.option("use_sandwich_norm", &O::use_sandwich_norm,
           "Also normalize the outputs of attention and feed-forward network, before the residual addition.");
  describe_post_norm_scale<&O::attn_post_norm_scale>(s, "Initial weight of the RMSNorm after attention.");
  describe_post_norm_scale<&O::ffn_post_norm_scale>(s, "Initial weight of the RMSNorm after the feed-forward network.");
  s.option("spec", &O::spec,
           "Layer specification, as [Python module, name]. No Python code is run: only specifications of MindSpeed-LLM "
           "that Tessera's options can describe are accepted, and these options must be set accordingly. null: none.")
      .when_changed(options::Change::silent);
  s.option("use_final_norm", &O::use_final_norm, "Normalize the output of the last layer.");
  s.option("embed_layernorm", &O::embed_layernorm, "Normalize the word embeddings, before they are multiplied.")
      .when_changed(options::Change::tensors)
      .must(
          "embed_layernorm",
          [](const O& o) {
            return !o.embed_layernorm ||
                   (o.position_embedding_type != PositionEmbedding::learned_absolute && o.predictions() == 0);
          },
          [](const O& o) {
            return text("embed_layernorm is true, but ", o.predictions() > 0
                                                             ? "the model has multi-token prediction"
                                                             : "position_embedding_type is learned_absolute");
          },
          "leave it out", {"position_embedding_type", "mtp_num_layers"});
  s.option("apply_residual_connection_post_norm", &O::apply_residual_connection_post_norm,
           "The residual connection starts after the norm instead of before it.")
      .alias("apply_residual_connection_post_layernorm")
      .no_flag("the flag of this name has no effect in Megatron-LM's GPT");
  s.option(
       "use_parallel_residual", &O::use_parallel_residual,
       "Attention and feed-forward network of a layer both read the layer's input, and both outputs are added to it.")
      .must(
          "one residual", [](const O& o) { return !o.use_parallel_residual || !o.apply_residual_connection_post_norm; },
          [](const O&) {
            return "use_parallel_residual and apply_residual_connection_post_norm are mutually exclusive";
          },
          "give one of them", {"apply_residual_connection_post_norm"});
  s.option("shared_parallel_norm", &O::shared_parallel_norm,
           "With `use_parallel_residual`: attention and feed-forward network share one norm.")
      .must(
          "one residual", [](const O& o) { return !o.shared_parallel_norm || o.use_parallel_residual; },
          [](const O&) { return "shared_parallel_norm requires use_parallel_residual"; }, "give both or neither",
          {"use_parallel_residual"});
}

void describe_feed_forward(options::Schema<O>& s) {
  s.option("hidden_act", &O::hidden_act,
           "Activation function of the feed-forward network. gelu: tanh approximation; gelu_erf: exact; words that "
           "contain glu, such as swiglu: gated.")
      .alias("squared_relu", {{"true", "squared_relu"}, {"false", ""}})
      .matters_when([](const O& o) { return !o.swiglu.value_or(false); }, "`swiglu` is true");
  s.option("swiglu", &O::swiglu, "Same as `hidden_act: swiglu`.")
      .otherwise([](const O& o) { return o.feed_forward() == nn::FeedForwardKind::swiglu; },
                 "whether `hidden_act` is swiglu")
      .must(
          "one activation",
          [](const O& o) { return !o.swiglu || *o.swiglu || o.hidden_act != nn::FeedForwardKind::swiglu; },
          [](const O&) { return "swiglu is false, but hidden_act is swiglu"; }, "give one of them", {"hidden_act"})
      .must(
          "one activation",
          [](const O& o) {
            return !o.swiglu.value_or(false) || o.hidden_act == nn::FeedForwardKind::swiglu ||
                   o.hidden_act == nn::FeedForwardKind::gelu_tanh || o.hidden_act == nn::FeedForwardKind::silu;
          },
          [](const O& o) {
            return text("swiglu is true, but hidden_act is ",
                        options::OptionType<nn::FeedForwardKind>::write(o.hidden_act));
          },
          "give one of them", {"hidden_act"})
      .no_flag("another form of hidden_act, in recipes of MindSpeed-Core-MS");
  s.option("gated_linear_unit", &O::gated_linear_unit,
           "Use a gated feed-forward network: `hidden_act` is applied to the gate projection.")
      .matters_when([](const O& o) { return !o.swiglu.value_or(false); }, "`swiglu` is true")
      .matters_when([](const O& o) { return !nn::is_gated(o.hidden_act); }, "`hidden_act` is gated already")
      .no_flag("only recipes of MindSpeed-Core-MS have it");
  s.option("activation_func_clamp_value", &O::activation_func_clamp_value,
           "Bound of a gated feed-forward network: the gate is at most this, and the other factor is within +-this; "
           "null: none.")
      .above(0)
      .at_most(options::most_factor)
      .must(
          "bounds of a gate", [](const O& o) { return o.gate().plain() || nn::is_gated(o.feed_forward()); },
          [](const O& o) {
            return text(o.activation_func_clamp_value ? "activation_func_clamp_value" : "glu_linear_offset",
                        " is given, but hidden_act is ", options::OptionType<nn::FeedForwardKind>::write(o.hidden_act),
                        ", which is not gated");
          },
          "leave it out, or give a gated hidden_act such as swiglu or quick_geglu",
          {"glu_linear_offset", "hidden_act", "swiglu", "gated_linear_unit"});
  s.option("glu_linear_offset", &O::glu_linear_offset,
           "Added to the factor of a gated feed-forward network that has no activation.")
      .at_least(-options::most_factor)
      .at_most(options::most_factor);
  s.option("add_bias_linear", &O::add_bias_linear,
           "Linear layers have biases, unless `qkv_has_bias`, `out_proj_has_bias` or `mlp_has_bias` says otherwise.")
      .when_changed(options::Change::tensors)
      .matters_when([](const O& o) { return !o.qkv_has_bias || !o.out_proj_has_bias || !o.mlp_has_bias; },
                    "`qkv_has_bias`, `out_proj_has_bias` and `mlp_has_bias` are given");
  s.option("qkv_has_bias", &O::qkv_has_bias, "Bias of the QKV projection.")
      .when_changed(options::Change::tensors)
      .alias("add_qkv_bias")
      .otherwise([](const O& o) { return o.qkv_bias(); }, "`add_bias_linear`");
  s.option("out_proj_has_bias", &O::out_proj_has_bias, "Bias of the attention output projection.")
      .when_changed(options::Change::tensors)
      .alias("add_dense_bias")
      .otherwise([](const O& o) { return o.out_proj_bias(); }, "`add_bias_linear`");
  s.option(
       "mlp_has_bias", &O::mlp_has_bias,
       "Biases of the feed-forward network. Of a mixture of experts: of the router and of every expert, only if this "
       "is given.")
      .when_changed(options::Change::tensors)
      .otherwise([](const O& o) { return o.mlp_bias(); }, "`add_bias_linear`");
}

void describe_multipliers(options::Schema<O>& s) {
  s.option("embedding_multiplier", &O::embedding_multiplier, "Word embeddings are multiplied by this.")
      .above(0)
      .at_most(options::most_factor)
      .must(
          "embedding_multiplier",
          [](const O& o) {
            return o.embedding_multiplier == 1 || o.position_embedding_type != PositionEmbedding::learned_absolute;
          },
          [](const O& o) {
            return text("embedding_multiplier is ", o.embedding_multiplier,
                        ", but position_embedding_type is learned_absolute");
          },
          "choose position_embedding_type rope or none", {"position_embedding_type"});
  s.option("residual_multiplier", &O::residual_multiplier,
           "Outputs of attention and feed-forward network are multiplied by this before they are added to the residual "
           "connection.")
      .above(0)
      .at_most(options::most_factor)
      .no_flag("from config.json of Hugging Face Transformers");
  s.option("output_multiplier", &O::output_multiplier, "Output logits are multiplied by this.")
      .above(0)
      .at_most(options::most_factor)
      .matters_when([](const O& o) { return !o.score_head; }, "`score_head` is true");
}

void describe_rest(options::Schema<O>& s) {
  s.option("untie_embeddings_and_output_weights", &O::untie_embeddings_and_output_weights,
           "The output layer has its own weights instead of sharing the word embedding's.")
      .when_changed(options::Change::tensors)
      .matters_when([](const O& o) { return !o.score_head; }, "`score_head` is true");
  s.option("output_layer_has_bias", &O::output_layer_has_bias, "Bias of the output layer, also of one that is tied.")
      .when_changed(options::Change::tensors)
      .alias("add_output_layer_bias")
      .matters_when([](const O& o) { return !o.score_head; }, "`score_head` is true");
  s.option("use_visual_encoder", &O::use_visual_encoder,
           "Images and videos: a vision tower, whose options are in vision_config, gives features that replace the "
           "embeddings of placeholder tokens.")
      .when_changed(options::Change::tensors);
  s.option("score_head", &O::score_head,
           "A head that gives each token a score in place of the output layer: a reward model, for `stage: rm`.")
      .when_changed(options::Change::tensors)
      .must(
          "stage", [](const O& o) { return !o.score_head || o.predictions() == 0; },
          [](const O&) { return std::string("a model with score_head has no multi-token prediction"); },
          "leave mtp_num_layers out", {"mtp_num_layers"})
      .no_flag("only recipes and Hugging Face folders have it");
  s.option("scale_embeddings", &O::scale_embeddings, "Multiply word embeddings by sqrt(`hidden_size`).")
      .must(
          "scale_embeddings",
          [](const O& o) {
            return !o.scale_embeddings || o.position_embedding_type != PositionEmbedding::learned_absolute;
          },
          [](const O&) { return "scale_embeddings is true, but position_embedding_type is learned_absolute"; },
          "choose position_embedding_type rope or none", {"position_embedding_type"});
  describe_multipliers(s);
  s.option("embedding_padding_token", &O::embedding_padding_token,
           "Token whose row of the word embedding gets no gradient from the input, as Transformers treats "
           "`pad_token_id`; null: none.")
      .when_changed(options::Change::told)
      .at_least(0)
      .at_most(options::most_tokens_known)
      .no_flag("only Tessera has it");
  s.option("hidden_dropout_rate", &O::hidden_dropout_rate,
           "Dropout probability after the embedding, attention and the feed-forward network.")
      .when_changed(options::Change::told)
      .at_least(0)
      .below(1)
      .alias("hidden_dropout");
  s.option("embedding_dropout_rate", &O::embedding_dropout_rate, "Dropout probability after the embedding.")
      .when_changed(options::Change::told)
      .at_least(0)
      .below(1)
      .otherwise([](const O& o) { return o.embedding_dropout(); }, "`hidden_dropout_rate`")
      .no_flag("from config.json of Hugging Face Transformers");
  s.option("attention_dropout_rate", &O::attention_dropout_rate, "Dropout probability of the attention probabilities.")
      .when_changed(options::Change::told)
      .at_least(0)
      .below(1)
      .alias("attention_dropout");
  s.option("init_method_std", &O::init_method_std,
           "Standard deviation of the initial weights; output projections use it divided by sqrt(2 x `num_layers`).")
      .when_changed(options::Change::silent)
      .above(0)
      .at_most(options::most_rate)
      .matters_when([](const O& o) { return o.init_method == InitMethod::normal; }, "`init_method` is xavier_uniform");
  s.option("embedding_init_method_std", &O::embedding_init_method_std,
           "Standard deviation of the initial word and position embeddings.")
      .when_changed(options::Change::silent)
      .above(0)
      .at_most(options::most_rate)
      .otherwise(
          [](const O& o) {
            return o.init_method == InitMethod::normal ? std::optional(o.init_method_std) : std::nullopt;
          },
          "as other weights: `init_method` and `init_method_std`");
  s.option("init_method", &O::init_method,
           "Distribution of the initial weights; xavier_uniform: uniform within +-sqrt(6 / (inputs + outputs)) for "
           "every matrix.")
      .when_changed(options::Change::silent)
      .alias("init_method_xavier_uniform", {{"true", "xavier_uniform"}, {"false", ""}})
      .no_flag("Megatron-LM stops at its flag");
}

}  // namespace

void describe(options::Schema<GptOptions>& s) {
  s.when_changed(options::Change::weights);
  describe_sizes(s);
  describe_positions(s);
  describe_attention(s);
  describe_latent_attention(s);
  describe_norms(s);
  describe_feed_forward(s);
  describe_rest(s);
  s.when_changed(options::Change::silent);
  describe_recomputation(s);
  describe_prediction(s);
}

}  // namespace tessera::model
