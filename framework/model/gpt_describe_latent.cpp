#include "framework/base/error.h"
#include "framework/model/gpt_options.h"
#include "framework/options/limits.h"

namespace tessera::model {
namespace {

using O = GptOptions;

constexpr std::int64_t most_channels = 65536;
constexpr auto latent = [](const O& o) { return o.multi_latent_attention; };
constexpr const char* not_latent = "`multi_latent_attention` is false";
constexpr auto has_rope_type = [](const O& o) {
  return o.multi_latent_attention && o.rope_scaling_type == nn::RotaryScaling::Kind::none;
};
constexpr const char* no_rope_type = "`multi_latent_attention` is false, or `rope_scaling_type` is yarn";
constexpr auto slowed = [](const O& o) { return has_rope_type(o) && o.rope_type != LatentRope::rope; };
/// Of two descriptions of yarn, Megatron-LM's is given beside MindSpeed-LLM's.
constexpr auto scaled_twice = [](const O& o) {
  return o.rope_scaling_type == nn::RotaryScaling::Kind::yarn &&
         (o.rope_type == LatentRope::rope || o.rotary_scaling_factor != 1 || o.mscale != 1 || o.mscale_all_dim != 1);
};
constexpr auto predicts = [](const O& o) { return o.predictions() > 0; };

}  // namespace

void describe_latent_attention(options::Schema<O>& s) {
  s.option(
       "multi_latent_attention", &O::multi_latent_attention,
       "Use multi-latent attention (MLA): keys and values of all heads are projected from one compressed vector per "
       "token.")
      .must(
          "MLA", [](const O& o) { return !latent(o) || o.groups() == o.num_attention_heads; },
          [](const O& o) {
            return text("multi_latent_attention is true, but num_query_groups is ", o.groups(),
                        "; its keys and values have as many heads as its queries");
          },
          "leave group_query_attention out", {"num_query_groups", "group_query_attention", "num_attention_heads"})
      .must(
          "M18", [](const O& o) { return !latent(o) || !o.rotary_interleaved; },
          [](const O&) { return "multi_latent_attention and rotary_interleaved are mutually exclusive"; },
          "leave rotary_interleaved out", {"rotary_interleaved"})
      .must(
          "MLA", [](const O& o) { return !latent(o) || (o.window()[0] < 0 && o.window()[1] == 0); },
          [](const O&) { return "multi_latent_attention is true, but there is an attention window"; },
          "leave sliding_window and window_size out", {"sliding_window", "window_size"})
      .must(
          "MLA", [](const O& o) { return !latent(o) || (!o.attention_logit_softcap && !o.query_pre_attn_scalar); },
          [](const O&) {
            return "multi_latent_attention has a scale of its own: neither attention_logit_softcap nor "
                   "query_pre_attn_scalar applies";
          },
          "leave them out", {"attention_logit_softcap", "query_pre_attn_scalar"})
      .must(
          "MLA", [](const O& o) { return !latent(o) || o.rope_scaling_type != nn::RotaryScaling::Kind::llama3; },
          [](const O&) { return "multi_latent_attention is true, but rope_scaling_type is llama3"; },
          "choose rope_scaling_type none or yarn", {"rope_scaling_type"})
      .must(
          "MLA", [](const O& o) { return !latent(o) || !scaled_twice(o); },
          [](const O& o) {
            return text("rope_scaling_type is yarn, which its own options describe, but rope_type is ",
                        options::OptionType<LatentRope>::write(o.rope_type.value_or(LatentRope::yarn)),
                        ", rotary_scaling_factor ", o.rotary_scaling_factor, ", mscale ", o.mscale,
                        " and mscale_all_dim ", o.mscale_all_dim);
          },
          "leave these four out and give rope_scaling_factor, rope_scaling_mscale and rope_scaling_mscale_all_dim, or "
          "leave rope_scaling_type out",
          {"rope_scaling_type", "rope_type", "rotary_scaling_factor", "mscale", "mscale_all_dim"})
      .must(
          "MLA", [](const O& o) { return !latent(o) || o.init_method == InitMethod::normal; },
          [](const O&) { return "multi_latent_attention is true, but init_method is xavier_uniform"; },
          "choose init_method normal", {"init_method"});
  s.option("q_lora_rank", &O::q_lora_rank, "Rank of the query compression of MLA; null: no compression.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(most_channels)
      .matters_when(latent, not_latent);
  s.option("kv_lora_rank", &O::kv_lora_rank, "Rank of the key/value compression of MLA.")
      .when_changed(options::Change::tensors)
      .at_least(1)
      .at_most(most_channels)
      .matters_when(latent, not_latent);
  s.option("qk_head_dim", &O::qk_head_dim, "MLA: query and key dimensions per head without rotary embedding.")
      .at_least(1)
      .at_most(most_channels)
      .matters_when(latent, not_latent);
  s.option("qk_pos_emb_head_dim", &O::qk_pos_emb_head_dim,
           "MLA: query and key dimensions per head with rotary embedding, an even number.")
      .at_least(2)
      .at_most(most_channels)
      .matters_when(latent, not_latent)
      .must(
          "MLA", [](const O& o) { return !latent(o) || o.qk_pos_emb_head_dim % 2 == 0; },
          [](const O& o) {
            return text("qk_pos_emb_head_dim is ", o.qk_pos_emb_head_dim, "; dimensions are rotated in pairs");
          },
          "give an even number", {"multi_latent_attention"});
  s.option("v_head_dim", &O::v_head_dim, "MLA: value dimensions per head.")
      .at_least(1)
      .at_most(most_channels)
      .matters_when(latent, not_latent);
  s.option("rope_type", &O::rope_type, "Rotary embedding of MLA: yarn with `rotary_scaling_factor`, or rope unscaled.")
      .otherwise([](const O& o) { return o.rope_type.value_or(LatentRope::yarn); }, "yarn")
      .matters_when(has_rope_type, no_rope_type);
  s.option("rotary_scaling_factor", &O::rotary_scaling_factor, "RoPE scaling factor (yarn) of MLA; 1: no scaling.")
      .above(0)
      .at_most(options::most_factor)
      .matters_when(has_rope_type, no_rope_type);
  s.option(
       "mscale", &O::mscale,
       "Coefficient c of yarn in MLA: with m = 0.1 c ln(`rotary_scaling_factor`) + 1, rotary dimensions are multiplied "
       "by m and scores by m^2.")
      .at_least(0)
      .at_most(options::most_factor)
      .matters_when(has_rope_type, no_rope_type);
  s.option("mscale_all_dim", &O::mscale_all_dim,
           "Coefficient c of yarn in MLA: rotary dimensions are divided by 0.1 c ln(`rotary_scaling_factor`) + 1.")
      .at_least(0)
      .at_most(options::most_factor)
      .matters_when(slowed, "`multi_latent_attention` is false, `rope_type` is rope, or `rope_scaling_type` is yarn");
}

void describe_prediction(options::Schema<O>& s) {
  s.option("mtp_num_layers", &O::mtp_num_layers,
           "Number of multi-token prediction layers, each of which predicts one token further; null or 0: none.")
      .when_changed(options::Change::tensors)
      .at_least(0)
      .at_most(options::most_predictions)
      .must(
          "M22",
          [](const O& o) { return !predicts(o) || o.position_embedding_type != PositionEmbedding::learned_absolute; },
          [](const O& o) {
            return text("mtp_num_layers is ", o.predictions(), ", but position_embedding_type is learned_absolute");
          },
          "choose position_embedding_type rope or none", {"position_embedding_type"});
  s.option("mtp_loss_scaling_factor", &O::mtp_loss_scaling_factor,
           "Weight of the mean of the multi-token prediction losses in the objective.")
      .when_changed(options::Change::told)
      .at_least(0)
      .at_most(options::most_factor)
      .matters_when(predicts, "`mtp_num_layers` is null or 0");
}

}  // namespace tessera::model
