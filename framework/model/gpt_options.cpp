#include "framework/model/gpt_options.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "framework/options/limits.h"

namespace tessera {
namespace {

using O = GptOptions;

// With these no count of parameters, and no number of bytes of state for them, leaves 64 bits.
constexpr std::int64_t most_width = std::int64_t{1} << 20, most_heads = 65536, most_channels = 65536;
constexpr std::int64_t most_window = 0x7FFFFFFF;  // "all" in other programs

void describe_sizes(Schema<O>& s) {
  s.option("num_layers", &O::num_layers, "Number of transformer layers.").at_least(1).at_most(most_layers);
  s.option("hidden_size", &O::hidden_size, "Hidden size of the transformer.").at_least(1).at_most(most_width);
  s.option("num_attention_heads", &O::num_attention_heads, "Number of attention (query) heads in each layer.")
      .at_least(1)
      .at_most(most_heads);
  s.option("ffn_hidden_size", &O::ffn_hidden_size,
           "Hidden size of the feed-forward network; null: 4 x `hidden_size`, or with a gated activation 8/3 x "
           "`hidden_size`, rounded down to a multiple of 64.")
      .at_least(1)
      .at_most(4 * most_width);
  s.option("kv_channels", &O::kv_channels,
           "Dimension of an attention head; null: `hidden_size` / `num_attention_heads`.")
      .at_least(1)
      .at_most(most_channels);
  s.option("group_query_attention", &O::group_query_attention,
           "Use grouped-query attention: query heads share `num_query_groups` key/value heads.");
  s.option("num_query_groups", &O::num_query_groups,
           "Number of key/value heads; used only with `group_query_attention`.")
      .at_least(1)
      .at_most(most_heads);
}

void describe_positions(Schema<O>& s) {
  s.option("position_embedding_type", &O::position_embedding_type, "Type of position embedding.")
      .alias("use_rotary_embedding", {{"true", "rope"}, {"false", ""}})
      .alias("use_rotary_position_embeddings", {{"true", "rope"}, {"false", ""}});
  s.option("max_position_embeddings", &O::max_position_embeddings,
           "Maximum sequence length the position embedding supports, in tokens; null: `seq_length`.")
      .at_least(1)
      .at_most(most_places)
      .unit("tokens");
  s.option("rotary_base", &O::rotary_base, "Base of the rotary embedding's frequencies (theta).")
      .above(0)
      .at_most(1e12)
      .alias("rope_theta")
      .alias("rotary_config.rotary_base");
  s.option("rotary_percent", &O::rotary_percent, "Fraction of each head's dimensions that get rotary embedding.")
      .above(0)
      .at_most(1)
      .alias("rotary_config.rotary_percent");
  s.option(
       "rotary_interleaved", &O::rotary_interleaved,
       "Rotate pairs of adjacent dimensions, instead of pairing the first and second half of the rotary dimensions.")
      .alias("rotary_config.rotary_interleaved");
  s.option("rotary_seq_len_interpolation_factor", &O::rotary_seq_len_interpolation_factor,
           "Linear interpolation: rotary positions are divided by this factor; null: no interpolation.")
      .above(0)
      .at_most(most_factor)
      .alias("rotary_config.seq_len_interpolation_factor");
}

void describe_rope_scaling(Schema<O>& s) {
  s.option("rope_scaling_type", &O::rope_scaling_type,
           "Frequency scaling of the rotary embedding for longer sequences.")
      .alias("use_rope_scaling", {{"true", "llama3"}, {"false", ""}});
  s.option("rope_scaling_factor", &O::rope_scaling_factor,
           "Frequency scaling factor: low frequencies are divided by it.")
      .above(0)
      .at_most(most_factor);
  s.option("rope_scaling_low_freq_factor", &O::rope_scaling_low_freq_factor,
           "llama3: frequencies with fewer full rotations than this within the original maximum sequence length are "
           "divided by the whole factor.")
      .above(0)
      .at_most(most_factor);
  s.option("rope_scaling_high_freq_factor", &O::rope_scaling_high_freq_factor,
           "llama3: frequencies with more full rotations than this within the original maximum sequence length are not "
           "scaled.")
      .above(0)
      .at_most(most_factor);
  s.option(
       "rope_scaling_original_max_position_embeddings", &O::rope_scaling_original_max_position_embeddings,
       "Maximum sequence length before scaling, in tokens; null: 8192 for llama3, `max_position_embeddings` for yarn.")
      .at_least(1)
      .at_most(most_places)
      .unit("tokens");
  s.option("rope_scaling_beta_fast", &O::rope_scaling_beta_fast,
           "yarn: frequencies with more full rotations than this within the original maximum sequence length are not "
           "scaled.")
      .above(0)
      .at_most(most_factor);
  s.option("rope_scaling_beta_slow", &O::rope_scaling_beta_slow,
           "yarn: frequencies with fewer full rotations than this within the original maximum sequence length are "
           "divided by the whole factor.")
      .above(0)
      .at_most(most_factor);
  s.option("rope_scaling_attention_factor", &O::rope_scaling_attention_factor,
           "yarn: cosines and sines are multiplied by it; null: 0.1 ln(rope_scaling_factor) + 1.")
      .above(0)
      .at_most(most_factor);
}

void describe_attention(Schema<O>& s) {
  s.option("window_size", &O::window_size,
           "Attention window in tokens, [left, right]: left -1 is unlimited, right is 0 for causal attention.")
      .at_least(-1)
      .at_most(most_window)
      .alias("fa_config.pre_tokens", 0)
      .alias("fa_config.pre_tockens", 0)
      .alias("pre_tockens", 0)
      .alias("fa_config.next_tokens", 1)
      .alias("fa_config.next_tockens", 1)
      .alias("next_tockens", 1);
  s.option("sliding_window", &O::sliding_window,
           "Attention window including the token itself, in tokens: `window_size[0]` + 1; null: set by `window_size`.")
      .at_least(1)
      .at_most(most_window)
      .unit("tokens");
  s.option("layer_types", &O::layer_types,
           "Attention type of each layer, full_attention or sliding_attention; a shorter list repeats. Empty: the "
           "window applies to all layers.");
  s.option("qk_layernorm", &O::qk_layernorm, "Normalize queries and keys of each head before the rotary embedding.");
  s.option("query_pre_attn_scalar", &O::query_pre_attn_scalar,
           "Attention scores are divided by the square root of this; null: `kv_channels`.")
      .above(0)
      .at_most(1e9);
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

void describe_norms(Schema<O>& s) {
  s.option("normalization", &O::normalization,
           "Type of the norms before attention, before the feed-forward network and after the last layer.")
      .alias("use_fused_rmsnorm", {{"true", "RMSNorm"}, {"false", ""}});
  s.option("norm_epsilon", &O::norm_epsilon, "Epsilon of the norms, added to the variance or mean square.")
      .above(0)
      .at_most(1)
      .alias("layernorm_epsilon");
  s.option("apply_layernorm_1p", &O::apply_layernorm_1p, "Store norm weights minus one (zero-centered gamma).")
      .alias("layernorm_zero_centered_gamma");
  s.option("use_sandwich_norm", &O::use_sandwich_norm,
           "Also normalize the outputs of attention and feed-forward network, before the residual addition.");
  s.option("attn_post_norm_scale", &O::attn_post_norm_scale,
           "Initial weight of the norm after attention; with `use_sandwich_norm` and RMSNorm.")
      .at_least(0)
      .at_most(most_factor);
  s.option("ffn_post_norm_scale", &O::ffn_post_norm_scale,
           "Initial weight of the norm after the feed-forward network; with `use_sandwich_norm` and RMSNorm.")
      .at_least(0)
      .at_most(most_factor);
  s.option("use_final_norm", &O::use_final_norm, "Normalize the output of the last layer.");
  s.option("apply_residual_connection_post_norm", &O::apply_residual_connection_post_norm,
           "The residual connection starts after the norm instead of before it.")
      .alias("apply_residual_connection_post_layernorm");
  s.option(
      "use_parallel_residual", &O::use_parallel_residual,
      "Attention and feed-forward network of a layer both read the layer's input, and both outputs are added to it.");
  s.option("shared_parallel_norm", &O::shared_parallel_norm,
           "With `use_parallel_residual`: attention and feed-forward network share one norm.");
}

void describe_feed_forward(Schema<O>& s) {
  s.option(
       "hidden_act", &O::hidden_act,
       "Activation of the feed-forward; gelu is the tanh form, gelu_erf the exact one; swiglu, geglu and their like "
       "are gates.")
      .alias("squared_relu", {{"true", "squared_relu"}, {"false", ""}});
  s.option("swiglu", &O::swiglu, "Same as `hidden_act: swiglu`.");
  s.option("gated_linear_unit", &O::gated_linear_unit,
           "Use a gated feed-forward network: `hidden_act` is applied to the gate projection.");
  s.option("add_bias_linear", &O::add_bias_linear,
           "Linear layers have biases, unless `qkv_has_bias`, `out_proj_has_bias` or `mlp_has_bias` says otherwise.");
  s.option("qkv_has_bias", &O::qkv_has_bias, "Bias of the QKV projection; null: `add_bias_linear`.")
      .alias("add_qkv_bias");
  s.option("out_proj_has_bias", &O::out_proj_has_bias,
           "Bias of the attention output projection; null: `add_bias_linear`.")
      .alias("add_dense_bias");
  s.option("mlp_has_bias", &O::mlp_has_bias, "Biases of the feed-forward network; null: `add_bias_linear`.");
}

void describe_rest(Schema<O>& s) {
  s.option("untie_embeddings_and_output_weights", &O::untie_embeddings_and_output_weights,
           "The output layer has its own weights instead of sharing the word embedding's.");
  s.option("scale_embeddings", &O::scale_embeddings, "Multiply word embeddings by sqrt(`hidden_size`).");
  s.option("hidden_dropout_rate", &O::hidden_dropout_rate,
           "Dropout probability after the embedding, attention and the feed-forward network.")
      .at_least(0)
      .below(1)
      .alias("hidden_dropout");
  s.option("attention_dropout_rate", &O::attention_dropout_rate, "Dropout probability of the attention probabilities.")
      .at_least(0)
      .below(1)
      .alias("attention_dropout");
  s.option("init_method_std", &O::init_method_std,
           "Standard deviation of the initial weights; output projections use it divided by sqrt(2 x `num_layers`).")
      .above(0)
      .at_most(most_rate);
  s.option("embedding_init_method_std", &O::embedding_init_method_std,
           "Standard deviation of the initial word and position embeddings; null: `init_method_std`.")
      .above(0)
      .at_most(most_rate);
  s.option("init_method", &O::init_method,
           "Distribution of the initial weights; xavier_uniform: uniform within +-sqrt(6 / (inputs + outputs)) for "
           "every matrix.")
      .alias("init_method_xavier_uniform", {{"true", "xavier_uniform"}, {"false", ""}});
  s.option("recompute_granularity", &O::recompute_granularity,
           "Activation recomputation in the backward pass: full (whole layers) or selective (`recompute_modules`).")
      .alias("recompute_activations", {{"true", "selective"}, {"false", ""}});
  s.option("recompute_method", &O::recompute_method,
           "With recompute_granularity full: uniform recomputes all layers, `recompute_num_layers` at a time; block "
           "recomputes the first `recompute_num_layers`.");
  s.option("recompute_num_layers", &O::recompute_num_layers,
           "Number of layers recomputed together (uniform), or number of recomputed layers (block).")
      .at_least(1)
      .at_most(most_layers);
  s.option("recompute_modules", &O::recompute_modules,
           "With recompute_granularity selective: modules to recompute: core_attn (attention without its projections), "
           "mlp (the feed-forward network).");
}

}  // namespace

void describe(Schema<GptOptions>& s) {
  describe_sizes(s);
  describe_positions(s);
  describe_rope_scaling(s);
  describe_attention(s);
  describe_norms(s);
  describe_feed_forward(s);
  describe_rest(s);
}

FeedForwardKind GptOptions::feed_forward() const {
  if (swiglu.value_or(false)) return FeedForwardKind::swiglu;
  return gated_linear_unit ? gated(hidden_act) : hidden_act;
}

std::int64_t GptOptions::inner() const {
  if (ffn_hidden_size) return *ffn_hidden_size;
  return is_gated(feed_forward()) ? hidden_size * 8 / 3 / 64 * 64 : 4 * hidden_size;
}

std::int64_t GptOptions::rotary_dim() const {
  return static_cast<std::int64_t>(static_cast<double>(channels()) * rotary_percent) / 2 * 2;
}

RotaryScaling GptOptions::rotary_scaling(std::int64_t positions) const {
  const std::int64_t original = rope_scaling_type == RotaryScaling::Kind::llama3 ? 8192 : positions;
  RotaryScaling s;
  s.kind = rope_scaling_type;
  s.factor = rope_scaling_factor;
  s.low = rope_scaling_low_freq_factor;
  s.high = rope_scaling_high_freq_factor;
  s.beta_fast = rope_scaling_beta_fast;
  s.beta_slow = rope_scaling_beta_slow;
  s.attention_factor = rope_scaling_attention_factor;
  s.original = rope_scaling_original_max_position_embeddings.value_or(original);
  s.positions_per_step = rotary_seq_len_interpolation_factor.value_or(1);
  return s;
}

std::array<std::int64_t, 2> GptOptions::window() const {
  return {sliding_window ? *sliding_window - 1 : window_size[0], window_size[1]};
}

bool GptOptions::windowed(std::int64_t layer) const {
  return layer_types.empty() || layer_types[static_cast<std::size_t>(layer) % layer_types.size()] == LayerSight::window;
}

Init GptOptions::weight_init(std::int64_t out, std::int64_t in, bool output) const {
  if (init_method == InitMethod::xavier_uniform) return Init::uniform(std::sqrt(6.0 / static_cast<double>(out + in)));
  return Init::normal(output ? init_method_std / std::sqrt(2.0 * static_cast<double>(num_layers)) : init_method_std);
}

Init GptOptions::table_init(std::int64_t rows) const {
  return embedding_init_method_std ? Init::normal(*embedding_init_method_std) : weight_init(rows, hidden_size, false);
}

bool GptOptions::recomputes(RecomputedModule module) const {
  return recompute_granularity == Recomputation::selective &&
         std::find(recompute_modules.begin(), recompute_modules.end(), module) != recompute_modules.end();
}

namespace {

using Found = std::vector<Contradiction>;

/// Notes `words` about `option` when `is`: `rule` does not hold.
void wrong(Found& found, const char* rule, bool is, const char* option, const std::string& words) {
  if (is) found.push_back({option, words, rule});
}

void check_attention(const O& o, Found& found) {
  wrong(found, "M4", !o.kv_channels && o.hidden_size % o.num_attention_heads != 0, "num_attention_heads",
        text("num_attention_heads is ", o.num_attention_heads, ", which does not divide hidden_size ", o.hidden_size,
             "; change one, or give kv_channels"));
  // __int128: an option outside its own limits has its own error, and the product of two such values must not overflow here.
  const auto width = static_cast<__int128>(o.num_attention_heads) * o.channels();
  wrong(found, "width of attention", width > 4 * most_width, "kv_channels",
        text("kv_channels is ", o.channels(), " and num_attention_heads ", o.num_attention_heads,
             ", which makes more than ", 4 * most_width, " channels of all heads; make one of them smaller"));
  wrong(found, "M8", o.num_attention_heads % o.groups() != 0, "num_query_groups",
        text("num_query_groups is ", o.num_query_groups, ", which does not divide num_attention_heads ",
             o.num_attention_heads));
  wrong(found, "one window", o.sliding_window && o.window_size[0] >= 0 && o.window_size[0] != *o.sliding_window - 1,
        "sliding_window",
        text("sliding_window is ", o.sliding_window.value_or(0), ", but window_size sees ", o.window_size[0],
             " tokens to the left; give one of them"));
  wrong(found, "one window", o.window_size[1] < 0, "window_size",
        "window_size sees -1 tokens to the right; give how many, 0 for causal attention");
  const bool windows = std::find(o.layer_types.begin(), o.layer_types.end(), LayerSight::window) != o.layer_types.end();
  wrong(found, "a window for layers", windows && o.window()[0] < 0 && o.window()[1] == 0, "layer_types",
        "layer_types names sliding_attention, but there is no window; give sliding_window");
}

void check_feed_forward(const O& o, Found& found) {
  const bool is_swiglu = o.hidden_act == FeedForwardKind::swiglu;
  wrong(found, "one activation", o.swiglu && !*o.swiglu && is_swiglu, "swiglu",
        "swiglu is false, but hidden_act is swiglu; give one of them");
  wrong(found, "one activation",
        o.swiglu.value_or(false) && !is_swiglu && o.hidden_act != FeedForwardKind::gelu_tanh &&
            o.hidden_act != FeedForwardKind::silu,
        "swiglu", "swiglu is true, but hidden_act is another activation; give one of them");
  wrong(found, "M3", o.inner() < 1, "ffn_hidden_size",
        text("ffn_hidden_size is not given and hidden_size ", o.hidden_size, " is too small to derive it"));
}

void check_norms(const O& o, Found& found) {
  const bool scales = o.attn_post_norm_scale != 1 || o.ffn_post_norm_scale != 1;
  wrong(found, "sandwich scales", o.use_sandwich_norm && scales && o.normalization == Normalization::layer_norm,
        o.attn_post_norm_scale != 1 ? "attn_post_norm_scale" : "ffn_post_norm_scale",
        "attn_post_norm_scale and ffn_post_norm_scale are read by RMSNorm alone; leave them out, or choose RMSNorm");
  wrong(found, "one residual", o.use_parallel_residual && o.apply_residual_connection_post_norm,
        "use_parallel_residual",
        "use_parallel_residual and apply_residual_connection_post_norm do not go together; give one of them");
  wrong(found, "one residual", o.shared_parallel_norm && !o.use_parallel_residual, "shared_parallel_norm",
        "shared_parallel_norm is for layers with use_parallel_residual; give both or neither");
}

void check_positions(const O& o, std::int64_t seq_length, Found& found) {
  if (o.position_embedding_type == PositionEmbedding::rope)
    wrong(found, "rotary_percent", o.rotary_dim() < 2, "rotary_percent",
          text("rotary_percent leaves ", o.rotary_dim(), " of ", o.channels(), " channels to turn; at least 2 must"));
  wrong(found, "rotary_base", o.position_embedding_type == PositionEmbedding::rope && o.rotary_base <= 1, "rotary_base",
        text("rotary_base is ", o.rotary_base, "; rotary frequencies fall only with a base above 1"));
  wrong(found, "rope scaling", o.rope_scaling_low_freq_factor >= o.rope_scaling_high_freq_factor,
        "rope_scaling_low_freq_factor",
        text("rope_scaling_low_freq_factor is ", o.rope_scaling_low_freq_factor, ", rope_scaling_high_freq_factor ",
             o.rope_scaling_high_freq_factor, "; the first must be the smaller one"));
  wrong(found, "rope scaling", o.rope_scaling_beta_slow >= o.rope_scaling_beta_fast, "rope_scaling_beta_slow",
        text("rope_scaling_beta_slow is ", o.rope_scaling_beta_slow, ", rope_scaling_beta_fast ",
             o.rope_scaling_beta_fast, "; the first must be the smaller one"));
  wrong(found, "scale_embeddings",
        o.scale_embeddings && o.position_embedding_type == PositionEmbedding::learned_absolute, "scale_embeddings",
        "scale_embeddings does not go with learned positions; choose rope or none");
  const auto positions = o.max_position_embeddings.value_or(seq_length);
  wrong(found, "M6", o.position_embedding_type != PositionEmbedding::none && seq_length > positions,
        "max_position_embeddings",
        text("max_position_embeddings is ", positions, ", but seq_length is ", seq_length,
             "; sequences cannot be longer than the places there are"));
}

void check_recomputation(const O& o, Found& found) {
  const bool full = o.recompute_granularity == Recomputation::full;
  wrong(found, "REC3", full && !o.recompute_method, "recompute_method",
        "recompute_granularity is full, but recompute_method does not say how; give uniform or block");
  wrong(found, "REC3", full && !o.recompute_num_layers, "recompute_num_layers",
        "recompute_granularity is full, but recompute_num_layers does not say how many; give it");
  wrong(found, "REC2",
        o.recompute_granularity == Recomputation::selective && (o.recompute_method || o.recompute_num_layers),
        o.recompute_method ? "recompute_method" : "recompute_num_layers",
        "recompute_method and recompute_num_layers are for recompute_granularity full, not selective; leave them out");
}

}  // namespace

std::vector<Contradiction> contradictions(const GptOptions& o, std::int64_t seq_length) {
  Found found;
  wrong(found, "M2", o.num_layers < 1, "num_layers", "num_layers is not given; a gpt needs it");
  wrong(found, "M2", o.hidden_size < 1, "hidden_size", "hidden_size is not given; a gpt needs it");
  wrong(found, "M2", o.num_attention_heads < 1, "num_attention_heads",
        "num_attention_heads is not given; a gpt needs it");
  if (!found.empty()) return found;
  check_attention(o, found);
  check_norms(o, found);
  check_feed_forward(o, found);
  check_positions(o, seq_length, found);
  check_recomputation(o, found);
  return found;
}

}  // namespace tessera
