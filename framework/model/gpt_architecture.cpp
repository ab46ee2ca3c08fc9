#include "framework/model/gpt_architecture.h"

#include <algorithm>
#include <array>

#include "framework/nn/rotary_embedding.h"

namespace tessera::model {
namespace {

const std::string in_model = "model_config.", in_moe = "moe_config.", in_vision = "vision_config.";

std::unique_ptr<Architecture> make_architecture(const GptOptions& options, ModelSettings settings) {
  return std::make_unique<GptArchitecture>(options, std::move(settings));
}

}  // namespace

std::unique_ptr<Model> GptArchitecture::build(const ModelParts& parts) const {
  return make_gpt_model(o_, settings_, parts);
}

std::optional<parallel::Towers> GptArchitecture::towers() const {
  if (!vision()) return parallel::Towers(o_.num_layers);
  return parallel::Towers({{"vision_model.decoder", in_vision + "num_layers", vision()->num_layers},
                           {"decoder", in_model + "num_layers", o_.num_layers}});
}

std::vector<std::string> GptArchitecture::size_options() const {
  std::vector<std::string> all = {in_model + "num_layers", in_model + "hidden_size", in_model + "num_attention_heads"};
  if (vision())
    for (const char* name : {"num_layers", "hidden_size", "num_attention_heads"}) all.push_back(in_vision + name);
  return all;
}

parallel::CutExtents GptArchitecture::cut_extents(const IsWrong& wrong) const {
  parallel::CutExtents all{.heads = {{o_.num_attention_heads, o_.groups()}},
                           .inner = {{in_model + "ffn_hidden_size", "ffn_hidden_size", o_.inner()}},
                           .expert_inner = expert_inner()};
  const bool summed = !wrong(in_model + "kv_lora_rank") && !wrong(in_model + "qk_pos_emb_head_dim");
  if (o_.multi_latent_attention) {
    if (o_.q_lora_rank) all.gathered.push_back({in_model + "q_lora_rank", "q_lora_rank", *o_.q_lora_rank});
    if (summed)
      all.gathered.push_back({in_model + "kv_lora_rank", "the sum of kv_lora_rank and qk_pos_emb_head_dim,",
                              o_.kv_lora_rank + o_.qk_pos_emb_head_dim});
  }
  if (const auto* v = vision()) {
    const auto heads = in_vision + "num_attention_heads";
    all.heads.push_back({v->num_attention_heads, v->num_attention_heads, heads, heads});
    all.inner.push_back({in_vision + "ffn_hidden_size", "ffn_hidden_size of vision_config", v->inner()});
    all.inner.push_back(
        {in_vision + "hidden_size", "hidden_size x spatial_merge_size^2 of vision_config", v->merged_width()});
  }
  if (o_.predictions() > 0)
    all.gathered.push_back({in_model + "hidden_size", "with mtp_num_layers hidden_size", o_.hidden_size});
  return all;
}

std::int64_t GptArchitecture::table_bytes() const {
  const bool longer = o_.has_longrope() && positions() > o_.rotary_scaling(positions()).original;
  const auto tables = o_.has_rotary() ? 1 + (o_.rope_local_base_freq ? 1 : 0) + (longer ? 1 : 0) : 0;
  return tables * nn::RotaryEmbedding::bytes(o_.rotated_channels(), positions());
}

std::vector<BrokenRule> GptArchitecture::broken_rules(const IsWrong& wrong) const {
  std::vector<BrokenRule> all;
  if (auto broken = broken_length(o_, settings_.seq_length)) {
    broken->option = in_model + broken->option;
    all.push_back({*std::move(broken), {in_model + "seq_length"}});
  }
  // They calculate with these numbers, which must be within their limits.
  const std::array numbers{in_model + "num_layers",          in_model + "num_experts",
                           in_moe + "num_experts",           in_moe + "moe_router_topk",
                           in_moe + "moe_router_num_groups", in_moe + "moe_router_group_topk"};
  if (vision() && o_.predictions() > 0 && !wrong(in_model + "mtp_num_layers"))
    all.push_back({{.option = in_model + "mtp_num_layers",
                    .message = text("mtp_num_layers is ", o_.predictions(),
                                    ", but use_visual_encoder is true: multi-token prediction of images is not "
                                    "implemented"),
                    .advice = "leave one of them out",
                    .rule = "visual encoder"},
                   {in_model + "use_visual_encoder"}});
  if (std::any_of(numbers.begin(), numbers.end(), wrong)) return all;
  for (auto& broken : model::broken_rules(o_, settings_.moe))
    all.push_back({std::move(broken), {in_model + "num_experts", in_moe + "num_experts"}});
  return all;
}

std::optional<options::Value> GptArchitecture::default_of(const std::string& option) const {
  const auto value = [](std::int64_t number) { return options::OptionType<std::int64_t>::write(number); };
  if (option == in_model + "max_position_embeddings") return value(settings_.seq_length);
  if (option == in_model + "rope_scaling_original_max_position_embeddings")
    return value(o_.rotary_scaling(positions()).original);
  if (option == in_model + "rope_scaling_attention_factor")
    return options::OptionType<double>::write(o_.rotary_scaling(positions()).attention_factor);
  if (option == in_moe + "moe_ffn_hidden_size") return value(o_.inner());
  return std::nullopt;
}

std::optional<WeightLayout> GptArchitecture::weight_layout() const {
  const auto heads = o_.num_attention_heads;
  // Multi-latent attention has no fused projection of all heads.
  const HeadLayout layout =
      o_.multi_latent_attention ? HeadLayout{heads, heads, 1} : HeadLayout{heads, o_.groups(), o_.channels()};
  std::vector<HeadLayout> towers_heads = {layout};
  if (const auto* v = vision())
    towers_heads.insert(towers_heads.begin(), {v->num_attention_heads, v->num_attention_heads, v->channels()});
  return WeightLayout{
      .towers = *towers(),
      .heads = std::move(towers_heads),
      .experts = experts(),
      .predictions = o_.predictions(),
      .has_experts = [freq = settings_.moe.moe_layer_freq, before = vision() ? vision()->num_layers : 0](
                         std::int64_t layer) { return layer >= before && freq.has_experts(layer - before); }};
}

void register_gpt(ModelRegistry& registry) {
  registry.add("gpt", make_architecture,
               "Decoder-only transformer: GPT-2, Llama, Qwen, Mistral, GPT-NeoX, BLOOM, Falcon, Phi-3, Gemma; with a "
               "vision tower, Qwen2-VL.",
               {"encoder_or_decoder"});
}

}  // namespace tessera::model
