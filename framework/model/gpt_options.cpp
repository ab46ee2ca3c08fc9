#include "framework/model/gpt_options.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/base/error.h"
#include "framework/options/limits.h"

namespace tessera::model {

nn::FeedForwardKind GptOptions::feed_forward() const {
  if (swiglu.value_or(false)) return nn::FeedForwardKind::swiglu;
  return gated_linear_unit ? nn::gated(hidden_act) : hidden_act;
}

std::int64_t GptOptions::inner() const {
  if (ffn_hidden_size) return *ffn_hidden_size;
  return nn::is_gated(feed_forward()) ? hidden_size * 8 / 3 / 64 * 64 : 4 * hidden_size;
}

std::int64_t GptOptions::rotary_dim() const {
  return static_cast<std::int64_t>(static_cast<double>(channels()) * rotary_percent);
}

bool GptOptions::sections_fit() const {
  const auto& sections = *mrope_section;
  return sections.size() == 3 && std::all_of(sections.begin(), sections.end(), [](auto one) { return one >= 0; }) &&
         std::accumulate(sections.begin(), sections.end(), std::int64_t{0}) == rotary_dim() / 2;
}

std::int64_t GptOptions::experts(const MoeOptions& moe) const {
  return num_experts.value_or(moe.num_experts > 1 ? moe.num_experts : 0);
}

namespace {

/// The mscale function of yarn, which grows with the logarithm of the scaling factor.
double yarn_growth(double factor, double weight) { return factor > 1 ? 0.1 * weight * std::log(factor) + 1 : 1; }

}  // namespace

double GptOptions::latent_scale() const {
  const auto growth = rope_scaling_type == nn::RotaryScaling::Kind::yarn
                          ? yarn_growth(rope_scaling_factor, rope_scaling_mscale_all_dim)
                          : yarn_growth(rotary_scaling_factor, mscale);
  return growth * growth / std::sqrt(static_cast<double>(qk_head_dim + qk_pos_emb_head_dim));
}

double longrope_growth(double factor, std::int64_t original) {
  return factor > 1 && original > 1 ? std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original))) : 1;
}

nn::RotaryScaling GptOptions::rotary_scaling(std::int64_t positions, std::int64_t length) const {
  if (multi_latent_attention && rope_scaling_type == nn::RotaryScaling::Kind::none) {
    nn::RotaryScaling latent;
    if (rope_type == LatentRope::rope) return latent;
    latent.kind = nn::RotaryScaling::Kind::yarn;
    latent.factor = rotary_scaling_factor;
    latent.beta_fast = rope_scaling_beta_fast;
    latent.beta_slow = rope_scaling_beta_slow;
    latent.rounds = yarn_correction_range_round_to_int;
    latent.attention_factor =
        yarn_growth(rotary_scaling_factor, mscale) / yarn_growth(rotary_scaling_factor, mscale_all_dim);
    latent.original = rope_scaling_original_max_position_embeddings.value_or(positions);
    return latent;
  }
  const std::int64_t original = rope_scaling_type == nn::RotaryScaling::Kind::llama3 ? 8192 : positions;
  nn::RotaryScaling s;
  s.kind = rope_scaling_type;
  s.factor = rope_scaling_factor;
  s.low = rope_scaling_low_freq_factor;
  s.high = rope_scaling_high_freq_factor;
  s.beta_fast = rope_scaling_beta_fast;
  s.beta_slow = rope_scaling_beta_slow;
  s.rounds = yarn_correction_range_round_to_int;
  s.attention_factor = yarn_growth(rope_scaling_factor, rope_scaling_mscale) /
                       yarn_growth(rope_scaling_factor, rope_scaling_mscale_all_dim);
  s.original = rope_scaling_original_max_position_embeddings.value_or(original);
  if (has_longrope()) {
    s.attention_factor = longrope_growth(static_cast<double>(positions) / static_cast<double>(s.original), s.original);
    const auto& divisors = length > s.original ? rope_scaling_long_factor : rope_scaling_short_factor;
    if (divisors) s.divisors = *divisors;
  }
  if (multi_latent_attention) return s;
  s.attention_factor = rope_scaling_attention_factor.value_or(s.attention_factor);
  s.positions_per_step = positions_per_step();
  return s;
}

std::array<std::int64_t, 2> GptOptions::window() const {
  return {sliding_window ? *sliding_window - 1 : window_size[0], window_size[1]};
}

bool GptOptions::windowed(std::int64_t layer) const {
  return layer_types.empty() || layer_types[static_cast<std::size_t>(layer) % layer_types.size()] == LayerSight::window;
}

bool GptOptions::rotates(std::int64_t layer) const {
  if (!no_rope_freq) return true;
  const auto& list = no_rope_freq->list;
  if (list.empty()) return (layer + 1) % no_rope_freq->every != 0;
  return list[static_cast<std::size_t>(std::min(layer, num_layers - 1))] == 0;
}

double GptOptions::embedding_factor() const {
  return embedding_multiplier * (scale_embeddings ? std::sqrt(static_cast<double>(hidden_size)) : 1);
}

nn::Init GptOptions::weight_init(std::int64_t out, std::int64_t in, bool output) const {
  if (init_method == InitMethod::xavier_uniform)
    return nn::Init::uniform(std::sqrt(6.0 / static_cast<double>(out + in)));
  return nn::Init::normal(output ? init_method_std / std::sqrt(2.0 * static_cast<double>(num_layers))
                                 : init_method_std);
}

nn::Init GptOptions::table_init(std::int64_t rows) const {
  return embedding_init_method_std ? nn::Init::normal(*embedding_init_method_std)
                                   : weight_init(rows, hidden_size, false);
}

bool GptOptions::recomputes(RecomputedModule module) const {
  return recompute_granularity == Recomputation::selective &&
         std::find(recompute_modules.begin(), recompute_modules.end(), module) != recompute_modules.end();
}

std::vector<options::Finding> broken_rules(const GptOptions& o, const MoeOptions& moe) {
  std::vector<options::Finding> all;
  const auto broken = [&](const char* option, std::string message, std::string advice, const char* rule) {
    all.push_back({option, std::move(message), std::move(advice), rule});
  };
  if (o.num_experts && moe.num_experts > 1 && *o.num_experts != moe.num_experts)
    broken("moe_config.num_experts",
           text("num_experts is ", *o.num_experts, " in model_config and ", moe.num_experts, " in moe_config"),
           "give one of them", "one number of experts");
  const auto experts = o.experts(moe);
  if (experts == 0) return all;
  if (experts * o.num_layers > options::most_experts_of_model)
    broken("model_config.num_experts",
           text("num_experts ", experts, " x num_layers ", o.num_layers, " is ", experts * o.num_layers, "; at most ",
                options::most_experts_of_model, " experts of a model are supported"),
           "make one of them smaller", "number of experts");
  const auto& list = moe.moe_layer_freq.list;
  if (!list.empty() && static_cast<std::int64_t>(list.size()) != o.num_layers)
    broken("moe_config.moe_layer_freq",
           text("moe_layer_freq lists ", list.size(), " layers, but num_layers is ", o.num_layers),
           "give one number for each layer", "moe_layer_freq");
  if (o.mlp_bias() && !o.mlp_has_bias)
    broken("model_config.add_bias_linear",
           text("num_experts is ", experts, ", but the feed-forward network has biases"),
           "give add_bias_linear: false; or mlp_has_bias: true for biases of experts and routers, or false", "MOE4");
  const auto no_bias = [&](bool wrong, const char* option, const char* what) {
    if (o.mlp_has_bias.value_or(false) && wrong)
      broken(option, text("mlp_has_bias is true, but ", what), "leave one of them out", "biases of experts");
  };
  no_bias(moe.moe_shared_expert_intermediate_size.value_or(0) > 0, "moe_config.moe_shared_expert_intermediate_size",
          "the shared expert has no biases");
  no_bias(moe.moe_use_upcycling, "moe_config.moe_use_upcycling", "moe_use_upcycling copies no biases into experts");
  no_bias(moe.moe_router_dtype == nn::RouterProduct::float64, "moe_config.moe_router_dtype",
          "a router that computes in fp64 has no bias");
  const auto chosen = moe.moe_router_topk;
  if (chosen > experts)
    broken("moe_config.moe_router_topk", text("moe_router_topk is ", chosen, ", but there are ", experts, " experts"),
           "give at most num_experts", "moe_router_topk");
  if (chosen == 1 && moe.moe_router_score_function == kernels::RouterScore::softmax && !moe.moe_router_pre_softmax &&
      moe.moe_router_load_balancing_type != autograd::RouterBalance::sinkhorn)
    broken("moe_config.moe_router_topk",
           "moe_router_topk is 1, and the softmax over one expert is always 1: the router would get no gradient",
           "give moe_router_pre_softmax: true, or moe_router_score_function: sigmoid", "MOE11");
  if (moe.moe_router_group_topk && moe.moe_router_num_groups) {
    const auto groups = *moe.moe_router_num_groups;
    if (experts % groups != 0)
      broken("moe_config.moe_router_num_groups",
             text("moe_router_num_groups is ", groups, ", which does not divide the ", experts, " experts"),
             "give a divisor of num_experts", "MOE12");
    else if (chosen > *moe.moe_router_group_topk * (experts / groups))
      broken("moe_config.moe_router_group_topk",
             text("moe_router_topk is ", chosen, ", but ", *moe.moe_router_group_topk, " of ", groups,
                  " groups have only ", *moe.moe_router_group_topk * (experts / groups), " experts"),
             "give a larger moe_router_group_topk", "MOE12");
  }
  if (moe.moe_layer_recompute && o.recompute_granularity == Recomputation::full)
    broken("moe_config.moe_layer_recompute",
           "moe_layer_recompute is true, but recompute_granularity full recomputes the experts already",
           "leave moe_layer_recompute out", "REC8");
  return all;
}

std::optional<options::Finding> broken_length(const GptOptions& o, std::int64_t seq_length) {
  const auto positions = o.max_position_embeddings.value_or(seq_length);
  if (!o.limits_positions() || seq_length <= positions) return std::nullopt;
  return options::Finding{.option = "max_position_embeddings",
                          .message = text("max_position_embeddings is ", positions, ", but seq_length is ", seq_length),
                          .advice = "give max_position_embeddings at least seq_length, or shorten the sequences",
                          .rule = "M6"};
}

std::vector<options::Finding> broken_rules(const GptOptions& o, std::int64_t seq_length) {
  auto all = options::broken_rules(o);
  if (auto length = broken_length(o, seq_length)) all.push_back(*std::move(length));
  return all;
}

}  // namespace tessera::model
