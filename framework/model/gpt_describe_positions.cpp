// Options of a GPT's position embedding.

#include "framework/model/gpt_options.h"
#include "framework/options/limits.h"

namespace tessera::model {
namespace {

using O = GptOptions;

constexpr auto has_rope = [](const O& o) { return o.has_rotary(); };
constexpr const char* no_rope = "`position_embedding_type` is neither rope nor mrope";
/// Latent attention rotates all of qk_pos_emb_head_dim at positions of its own scaling.
constexpr auto has_usual_rope = [](const O& o) { return o.rotates() && !o.multi_latent_attention; };
constexpr const char* no_usual_rope =
    "`position_embedding_type` is neither rope nor mrope, or `multi_latent_attention` is true";
constexpr auto has_mrope = [](const O& o) { return o.has_mrope(); };
constexpr const char* no_mrope = "`position_embedding_type` is not mrope";

void describe_mrope(options::Schema<O>& s) {
  s.option("mrope_section", &O::mrope_section,
           "Rotary embedding of images and videos (mrope): for how many of the rotary pairs of a head, in order, the "
           "position in time, the row and the column of a token decide; the text model of Qwen2-VL has [16, 24, 24].")
      .at_least(0)
      .at_most(options::most_places)
      .matters_when(has_mrope, no_mrope)
      .must(
          "M13", [](const O& o) { return !o.has_mrope() || o.mrope_section.has_value(); },
          [](const O&) { return "position_embedding_type is mrope, but mrope_section is not given"; },
          "give the rotary pairs of time, rows and columns, such as [16, 24, 24]", {"position_embedding_type"})
      .must(
          "mrope_section", [](const O& o) { return !o.has_mrope() || !o.mrope_section || o.sections_fit(); },
          [](const O& o) {
            return text("mrope_section is ", options::OptionType<std::vector<std::int64_t>>::write(*o.mrope_section),
                        "; expected three numbers that are not negative, with the sum ", o.rotary_dim() / 2,
                        ": half of the rotary dimensions of a head");
          },
          "give the rotary pairs of time, rows and columns",
          {"position_embedding_type", "kv_channels", "num_attention_heads", "hidden_size", "rotary_percent"})
      .must(
          "mrope of latent attention", [](const O& o) { return !o.has_mrope() || !o.multi_latent_attention; },
          [](const O&) { return "position_embedding_type is mrope, but multi-latent attention has rope only"; },
          "give position_embedding_type: rope", {"position_embedding_type", "multi_latent_attention"});
  s.option(
       "mrope_tables_in_fp32", &O::mrope_tables_in_fp32,
       "Keep the cosines and sines of mrope in fp32; false: they are rounded to `compute_dtype`, as in Transformers "
       "and MindSpeed-MM.")
      .when_changed(options::Change::told)
      .matters_when(has_mrope, no_mrope)
      .no_flag("only Tessera has it");
}

constexpr auto has_alibi = [](const O& o) { return o.has_alibi(); };
constexpr const char* no_alibi = "`position_embedding_type` is not alibi";

void describe_alibi(options::Schema<O>& s) {
  s.option("scale_alibi", &O::scale_alibi,
           "The bias of alibi is divided by the square root of `query_pre_attn_scalar`, as the scores are.")
      .matters_when(has_alibi, no_alibi)
      .must(
          "alibi of latent attention", [](const O& o) { return !o.has_alibi() || !o.multi_latent_attention; },
          [](const O&) {
            return "position_embedding_type is alibi, but multi-latent attention has rotary embedding only";
          },
          "choose position_embedding_type rope", {"position_embedding_type", "multi_latent_attention"})
      .no_flag("from config.json of Hugging Face Transformers");
  s.option("round_alibi", &O::round_alibi,
           "Slopes of alibi, positions of keys, and their products are rounded to bfloat16, as in Falcon. Positions "
           "count from the start of the sample.")
      .matters_when(has_alibi, no_alibi)
      .no_flag("from config.json of Hugging Face Transformers");
}

void describe_positions_alone(options::Schema<O>& s) {
  s.option("position_embedding_type", &O::position_embedding_type,
           "Type of position embedding. alibi: a bias of the attention scores by distance, with a slope for each head.")
      .alias("use_rotary_embedding", {{"true", "rope"}, {"false", ""}})
      .alias("use_rotary_position_embeddings", {{"true", "rope"}, {"false", ""}});
  s.option("max_position_embeddings", &O::max_position_embeddings,
           "Maximum sequence length the position embedding supports, in tokens.")
      .otherwise("`seq_length`")
      .when_changed(options::Change::told)
      .at_least(1)
      .at_most(options::most_places)
      .unit("tokens");
  s.option("position_embedding_offset", &O::position_embedding_offset,
           "Rows of the learned position embedding in front of the row of position 0, which the table has in addition; "
           "no token uses them. OPT has 2.")
      .when_changed(options::Change::tensors)
      .at_least(0)
      .at_most(options::most_places)
      .matters_when([](const O& o) { return o.position_embedding_type == PositionEmbedding::learned_absolute; },
                    "`position_embedding_type` is not learned_absolute")
      .no_flag("from weights of Hugging Face Transformers");
  describe_mrope(s);
  describe_alibi(s);
}

void describe_rotary(options::Schema<O>& s) {
  s.option("rotary_base", &O::rotary_base, "Base of the rotary embedding's frequencies (theta).")
      .above(0)
      .at_most(1e12)
      .alias("rope_theta")
      .alias("rotary_config.rotary_base")
      .matters_when(has_rope, no_rope)
      .must(
          "rotary_base", [](const O& o) { return !has_rope(o) || o.rotary_base > 1; },
          [](const O& o) { return text("rotary_base is ", o.rotary_base, "; expected a value above 1"); },
          "give a larger one", {"position_embedding_type"});
  s.option("rotary_percent", &O::rotary_percent, "Fraction of each head's dimensions that get rotary embedding.")
      .above(0)
      .at_most(1)
      .alias("rotary_config.rotary_percent")
      .matters_when(has_rope, no_rope)
      .must(
          "rotary_percent",
          [](const O& o) { return !has_usual_rope(o) || (o.rotary_dim() >= 2 && o.rotary_dim() % 2 == 0); },
          [](const O& o) {
            return text("rotary_percent ", o.rotary_percent, " gives ", o.rotary_dim(), " of the ", o.channels(),
                        " dimensions of a head rotary embedding; they are rotated in pairs");
          },
          "give a fraction that makes an even number, at least 2",
          {"position_embedding_type", "kv_channels", "num_attention_heads", "hidden_size"})
      .must(
          "rotary_percent", [](const O& o) { return !o.multi_latent_attention || o.rotary_percent == 1; },
          [](const O& o) {
            return text("rotary_percent is ", o.rotary_percent,
                        ", but multi-latent attention rotates all of qk_pos_emb_head_dim");
          },
          "leave it out, or give another qk_pos_emb_head_dim", {"multi_latent_attention"});
  s.option(
       "rotary_interleaved", &O::rotary_interleaved,
       "Rotate pairs of adjacent dimensions, instead of pairing the first and second half of the rotary dimensions.")
      .alias("rotary_config.rotary_interleaved")
      .matters_when(has_rope, no_rope);
  s.option(
       "rope_local_base_freq", &O::rope_local_base_freq,
       "Base of the rotary embedding's frequencies in layers with an attention window (`layer_types`), which are then "
       "not scaled; null: as in the other layers.")
      .above(1)
      .at_most(1e12)
      .matters_when(has_rope, no_rope)
      .must(
          "rope_local_base_freq",
          [](const O& o) {
            return !o.rope_local_base_freq ||
                   (!o.multi_latent_attention && !o.has_mrope() && (o.window()[0] >= 0 || o.window()[1] != 0));
          },
          [](const O&) {
            return std::string("rope_local_base_freq is for layers with an attention window and positions of one axis");
          },
          "leave it out, or give sliding_window and layer_types",
          {"sliding_window", "window_size", "multi_latent_attention", "position_embedding_type"})
      .no_flag("from config.json of Hugging Face Transformers");
}

void describe_rotary_layers(options::Schema<O>& s) {
  s.option("no_rope_freq", &O::no_rope_freq,
           "Layers without rotary embedding: every N-th, the last of N, or a list with 1 for each layer without it and "
           "0 for "
           "the others, also as an expression such as ([0]*3+[1])*2; null: all layers have it.")
      .matters_when(has_rope, no_rope)
      .must(
          "no_rope_freq",
          [](const O& o) {
            if (!o.no_rope_freq) return true;
            const auto& list = o.no_rope_freq->list;
            return list.empty() ? o.no_rope_freq->every > 0 && o.num_layers % o.no_rope_freq->every == 0
                                : static_cast<std::int64_t>(list.size()) == o.num_layers;
          },
          [](const O& o) {
            return o.no_rope_freq->list.empty()
                       ? text("no_rope_freq ", o.no_rope_freq->every, " does not divide num_layers ", o.num_layers)
                       : text("no_rope_freq lists ", o.no_rope_freq->list.size(), " layers, but num_layers is ",
                              o.num_layers);
          },
          "give a divisor, or one number for each layer", {"num_layers"})
      .must(
          "no_rope_freq", [](const O& o) { return !o.no_rope_freq || !o.multi_latent_attention; },
          [](const O&) { return std::string("no_rope_freq and multi_latent_attention are mutually exclusive"); },
          "leave one of them out", {"multi_latent_attention"});
  s.option("rotary_seq_len_interpolation_factor", &O::rotary_seq_len_interpolation_factor,
           "Linear interpolation: rotary positions are divided by this factor.")
      .above(0)
      .at_most(options::most_factor)
      .alias("rotary_config.seq_len_interpolation_factor")
      .otherwise([](const O& o) { return o.positions_per_step(); }, "1, no interpolation")
      .matters_when(has_usual_rope, no_usual_rope);
}

template <nn::RotaryScaling::Kind kind>
constexpr auto scales_as = [](const O& o) { return has_rope(o) && o.rope_scaling_type == kind; };
constexpr auto scales = [](const O& o) { return has_rope(o) && o.rope_scaling_type != nn::RotaryScaling::Kind::none; };
constexpr auto as_longrope = scales_as<nn::RotaryScaling::Kind::longrope>;
constexpr auto has_factor = [](const O& o) { return scales(o) && !as_longrope(o); };
constexpr auto as_llama3 = scales_as<nn::RotaryScaling::Kind::llama3>;
constexpr auto as_yarn = scales_as<nn::RotaryScaling::Kind::yarn>;
constexpr auto has_betas = [](const O& o) { return o.multi_latent_attention || as_yarn(o); };
constexpr auto has_original = [](const O& o) { return o.multi_latent_attention || scales(o); };
constexpr auto has_amplitude = [](const O& o) { return !o.multi_latent_attention && (as_yarn(o) || as_longrope(o)); };
constexpr auto has_mscale = [](const O& o) {
  return as_yarn(o) && (o.multi_latent_attention || !o.rope_scaling_attention_factor);
};
constexpr const char* no_mscale = "`rope_scaling_type` is not yarn, or `rope_scaling_attention_factor` is given";
constexpr const char *no_scaling = "`rope_scaling_type` is none", *no_llama3 = "`rope_scaling_type` is not llama3",
                     *no_yarn = "`rope_scaling_type` is not yarn",
                     *no_factor = "`rope_scaling_type` is none or longrope",
                     *no_longrope = "`rope_scaling_type` is not longrope";

/// Whether longrope, if it is chosen, has a number for each rotary pair.
bool fits_pairs(const O& o, const std::optional<std::vector<double>>& divisors) {
  return !as_longrope(o) || (divisors && static_cast<std::int64_t>(divisors->size()) == o.rotary_dim() / 2);
}

using Divisors = std::optional<std::vector<double>>;

template <Divisors O::*member>
std::string wrong_divisors(const char* name, const O& o) {
  const auto& given = o.*member;
  return text("rope_scaling_type is longrope, but ", name,
              given ? text(" has ", given->size(), " numbers") : std::string(" is not given"), "; expected ",
              o.rotary_dim() / 2, ": half of the rotary dimensions of a head");
}

template <Divisors O::*member, class Message>
void describe_divisors(options::Schema<O>& s, const char* name, const char* meaning, const Message& message) {
  s.option(name, member, meaning)
      .above(0)
      .at_most(options::most_factor)
      .matters_when(as_longrope, no_longrope)
      .must("longrope", [](const O& o) { return fits_pairs(o, o.*member); }, message,
            "give a number for each pair of rotary dimensions",
            {"rope_scaling_type", "position_embedding_type", "kv_channels", "num_attention_heads", "hidden_size",
             "rotary_percent"});
}

void describe_longrope(options::Schema<O>& s) {
  describe_divisors<&O::rope_scaling_short_factor>(
      s, "rope_scaling_short_factor",
      "longrope: what each frequency is divided by, if no position of a micro-batch reaches "
      "`rope_scaling_original_max_position_embeddings`.",
      [](const O& o) { return wrong_divisors<&O::rope_scaling_short_factor>("rope_scaling_short_factor", o); });
  describe_divisors<&O::rope_scaling_long_factor>(
      s, "rope_scaling_long_factor",
      "longrope: what each frequency is divided by in micro-batches, and generated texts, with more positions than "
      "`rope_scaling_original_max_position_embeddings`.",
      [](const O& o) { return wrong_divisors<&O::rope_scaling_long_factor>("rope_scaling_long_factor", o); });
}

void describe_rope_scaling(options::Schema<O>& s) {
  s.option("rope_scaling_type", &O::rope_scaling_type,
           "Frequency scaling of the rotary embedding for longer sequences.")
      .alias("use_rope_scaling", {{"true", "llama3"}, {"false", ""}})
      .matters_when(has_rope, no_rope)
      .must(
          "longrope", [](const O& o) { return !as_longrope(o) || !(o.multi_latent_attention || o.has_mrope()); },
          [](const O&) { return "rope_scaling_type longrope is for positions of one axis, without latent attention"; },
          "choose another one", {"multi_latent_attention", "position_embedding_type"});
  s.option("rope_scaling_factor", &O::rope_scaling_factor,
           "Frequency scaling factor: low frequencies are divided by it.")
      .above(0)
      .at_most(options::most_factor)
      .matters_when(has_factor, no_factor);
  s.option("rope_scaling_low_freq_factor", &O::rope_scaling_low_freq_factor,
           "llama3: frequencies with fewer full rotations than this within the original maximum sequence length are "
           "divided by the whole factor.")
      .above(0)
      .at_most(options::most_factor)
      .matters_when(as_llama3, no_llama3)
      .must(
          "rope scaling", [](const O& o) { return o.rope_scaling_low_freq_factor < o.rope_scaling_high_freq_factor; },
          [](const O& o) {
            return text("rope_scaling_low_freq_factor is ", o.rope_scaling_low_freq_factor,
                        ", which is not below rope_scaling_high_freq_factor ", o.rope_scaling_high_freq_factor);
          },
          "make the first the smaller one", {"rope_scaling_high_freq_factor"});
  s.option("rope_scaling_high_freq_factor", &O::rope_scaling_high_freq_factor,
           "llama3: frequencies with more full rotations than this within the original maximum sequence length are not "
           "scaled.")
      .above(0)
      .at_most(options::most_factor)
      .matters_when(as_llama3, no_llama3);
  s.option("rope_scaling_original_max_position_embeddings", &O::rope_scaling_original_max_position_embeddings,
           "Maximum sequence length before scaling, in tokens.")
      .otherwise("8192 for llama3, `max_position_embeddings` for yarn and longrope")
      .at_least(1)
      .at_most(options::most_places)
      .unit("tokens")
      .matters_when(has_original, no_scaling);
  s.option("rope_scaling_beta_fast", &O::rope_scaling_beta_fast,
           "yarn: frequencies with more full rotations than this within the original maximum sequence length are not "
           "scaled.")
      .above(0)
      .at_most(options::most_factor)
      .matters_when(has_betas, no_yarn);
  s.option("rope_scaling_beta_slow", &O::rope_scaling_beta_slow,
           "yarn: frequencies with fewer full rotations than this within the original maximum sequence length are "
           "divided by the whole factor.")
      .above(0)
      .at_most(options::most_factor)
      .matters_when(has_betas, no_yarn)
      .must(
          "rope scaling", [](const O& o) { return o.rope_scaling_beta_slow <= o.rope_scaling_beta_fast; },
          [](const O& o) {
            return text("rope_scaling_beta_slow is ", o.rope_scaling_beta_slow,
                        ", which is above rope_scaling_beta_fast ", o.rope_scaling_beta_fast);
          },
          "give a beta_slow that is at most beta_fast", {"rope_scaling_beta_fast"});
  s.option("yarn_correction_range_round_to_int", &O::yarn_correction_range_round_to_int,
           "yarn: the pairs of dimensions between which scaling begins and ends are rounded to whole ones.")
      .matters_when(has_betas, no_yarn)
      .no_flag("Megatron-LM reads its flag with --position-embedding-type yarn only");
  s.option("rope_scaling_mscale", &O::rope_scaling_mscale,
           "Coefficient c of yarn: cosines and sines are multiplied by 0.1 c ln(`rope_scaling_factor`) + 1.")
      .at_least(0)
      .at_most(options::most_factor)
      .matters_when(has_mscale, no_mscale);
  s.option("rope_scaling_mscale_all_dim", &O::rope_scaling_mscale_all_dim,
           "Coefficient c of yarn: with m = 0.1 c ln(`rope_scaling_factor`) + 1, cosines and sines are divided by m, "
           "and the scores of multi-latent attention are multiplied by m^2.")
      .at_least(0)
      .at_most(options::most_factor)
      .matters_when(has_mscale, no_mscale);
  s.option("rope_scaling_attention_factor", &O::rope_scaling_attention_factor,
           "yarn, longrope: factor of cosines and sines.")
      .above(0)
      .at_most(options::most_factor)
      .otherwise(
          "yarn: from `rope_scaling_mscale` and `rope_scaling_mscale_all_dim`; longrope: sqrt(1 + ln(s) / ln(o)), "
          "with s = `max_position_embeddings` / o and o = `rope_scaling_original_max_position_embeddings`")
      .matters_when(has_amplitude,
                    "`rope_scaling_type` is neither yarn nor longrope, or `multi_latent_attention` is true");
}

}  // namespace

void describe_positions(options::Schema<O>& s) {
  describe_positions_alone(s);
  describe_rotary(s);
  describe_rotary_layers(s);
  describe_rope_scaling(s);
  describe_longrope(s);
}

}  // namespace tessera::model
