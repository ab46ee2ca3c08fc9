#include "framework/recipe/effects.h"

#include <algorithm>

#include "framework/model/gpt_options.h"

namespace tessera {
namespace {

const GptOptions& gpt(const Recipe& r) {
  static const GptOptions other;  // of another architecture nothing is known
  const auto* options = r.model.options<GptOptions>();
  return options ? *options : other;
}

/// Whether `option` has that value, as resolved.yaml writes it.
bool is(const Recipe& r, const char* option, const char* value) {
  const auto* found = r.resolved.at(option);
  return found != nullptr && found->scalar == value;
}

bool computes_in_16_bits(const Recipe& r) {
  const auto types = precision(r.half, r.precision);
  return types.params != DType::float32 || types.compute != DType::float32;
}
bool constant_rate(const Recipe& r) { return r.decay.type == "constant"; }
bool begins_anew(const Recipe& r) {
  return is(r, "training_config.resume_training", "false") && !r.training.load_checkpoint;
}
bool warms_up(const Recipe& r) {
  const auto& o = r.learning_rate;
  return o.lr_warmup_iters > 0 || o.lr_warmup_samples > 0 || o.lr_warmup_fraction.value_or(0) > 0;
}

const std::string m = "model_config.", t = "training_config.", o = "optimizer_config.", p = "parallel_config.";

using Rules = std::vector<EffectRule>;

Rules rules_of_positions() {
  return {
      {{m + "rotary_base", m + "rotary_percent", m + "rotary_interleaved", m + "rotary_seq_len_interpolation_factor",
        m + "rope_scaling_type"},
       [](const Recipe& r) { return gpt(r).position_embedding_type == PositionEmbedding::rope; },
       "position_embedding_type is not rope"},
      {{m + "rope_scaling_factor", m + "rope_scaling_original_max_position_embeddings"},
       [](const Recipe& r) {
         return gpt(r).position_embedding_type == PositionEmbedding::rope &&
                gpt(r).rope_scaling_type != RotaryScaling::Kind::none;
       },
       "rope_scaling_type is none"},
      {{m + "rope_scaling_low_freq_factor", m + "rope_scaling_high_freq_factor"},
       [](const Recipe& r) { return gpt(r).rope_scaling_type == RotaryScaling::Kind::llama3; },
       "rope_scaling_type is not llama3"},
      {{m + "rope_scaling_beta_fast", m + "rope_scaling_beta_slow", m + "rope_scaling_attention_factor"},
       [](const Recipe& r) { return gpt(r).rope_scaling_type == RotaryScaling::Kind::yarn; },
       "rope_scaling_type is not yarn"},
  };
}

Rules rules_of_models() {
  return {
      {{m + "num_query_groups"},
       [](const Recipe& r) { return gpt(r).group_query_attention; },
       "group_query_attention is false"},
      {{m + "attn_post_norm_scale", m + "ffn_post_norm_scale"},
       [](const Recipe& r) { return gpt(r).use_sandwich_norm; },
       "use_sandwich_norm is false"},
      {{m + "hidden_act", m + "gated_linear_unit"},
       [](const Recipe& r) { return !gpt(r).swiglu.value_or(false); },
       "swiglu is true"},
      {{m + "gated_linear_unit"},
       [](const Recipe& r) { return !is_gated(gpt(r).hidden_act); },
       "hidden_act is a gate already"},
      {{m + "add_bias_linear"},
       [](const Recipe& r) { return !gpt(r).qkv_has_bias || !gpt(r).out_proj_has_bias || !gpt(r).mlp_has_bias; },
       "qkv_has_bias, out_proj_has_bias and mlp_has_bias say it for each layer"},
      {{m + "init_method_std"},
       [](const Recipe& r) { return gpt(r).init_method == InitMethod::normal; },
       "init_method is xavier_uniform"},
      {{m + "make_vocab_size_divisible_by"}, [](const Recipe& r) { return !r.size.vocab_size; }, "vocab_size is given"},
      {{m + "recompute_modules"},
       [](const Recipe& r) { return gpt(r).recompute_granularity == Recomputation::selective; },
       "recompute_granularity is not selective"},
      {{m + "recompute_granularity", m + "recompute_method", m + "recompute_num_layers"},
       [](const Recipe& r) { return r.parallel.recompute.empty() && r.parallel.select_recompute.empty(); },
       "parallel_config.recompute and select_recompute stand in for it"},
  };
}

Rules rules_of_training() {
  return {
      {{t + "loss_scale_value", t + "min_loss_scale", t + "loss_scale_window", t + "loss_scale_factor",
        t + "hysteresis"},
       [](const Recipe& r) { return r.half.fp16 && !r.loss_scale.loss_scale; },
       "only with fp16 and without loss_scale does a scale adapt"},
      {{t + "accumulate_allreduce_grads_in_fp32"}, computes_in_16_bits, "everything is computed in float32"},
      {{t + "eval_interval"}, [](const Recipe& r) { return r.training.eval_iters > 0; }, "eval_iters is 0"},
      {{t + "delay_grad_reduce"},
       [](const Recipe& r) {
         return r.data_parallel.overlap_grad_reduce && r.parallel.pipeline_model_parallel_size > 1;
       },
       "it is for overlap_grad_reduce on several pipeline stages"},
      {{t + "no_load_optim", t + "no_load_rng", t + "crc_check"},
       [](const Recipe& r) { return !begins_anew(r); },
       "no checkpoint is read: resume_training is false and there is no load_checkpoint"},
  };
}

Rules rules_of_schedules() {
  return {
      {{o + "min_lr", o + "decoupled_min_lr"},
       [](const Recipe& r) { return !constant_rate(r); },
       "lr_decay_style is constant"},
      {{o + "lr_decay_iters", o + "lr_decay_samples"},
       [](const Recipe& r) { return !constant_rate(r) || r.learning_rate.lr_warmup_fraction.has_value(); },
       "lr_decay_style is constant"},
      {{o + "lr_warmup_init"}, warms_up, "nothing warms up"},
      {{o + "decoupled_min_lr"},
       [](const Recipe& r) { return r.groups.decoupled_lr.has_value(); },
       "decoupled_lr is not given"},
      {{o + "weight_decay"},
       [](const Recipe& r) { return r.weight_decay.weight_decay_incr_style == WeightDecayStyle::constant; },
       "start_weight_decay and end_weight_decay say it"},
      {{o + "start_weight_decay", o + "end_weight_decay"},
       [](const Recipe& r) { return r.weight_decay.weight_decay_incr_style != WeightDecayStyle::constant; },
       "weight_decay_incr_style is constant"},
      {{o + "override_opt_param_scheduler", o + "use_checkpoint_opt_param_scheduler"},
       [](const Recipe& r) { return !begins_anew(r); },
       "no checkpoint is read: resume_training is false and there is no load_checkpoint"},
      {{o + "sgd_nesterov"},
       [](const Recipe& r) { return !is(r, "optimizer_config.sgd_momentum", "0"); },
       "sgd_momentum is 0"},
      {{o + "muon_nesterov"},
       [](const Recipe& r) { return !is(r, "optimizer_config.muon_momentum", "0"); },
       "muon_momentum is 0"},
  };
}

Rules rules_of_cuts() {
  return {
      {{p + "sequence_parallel"},
       [](const Recipe& r) { return r.parallel.tensor_model_parallel_size > 1; },
       "tensor_model_parallel_size is 1"},
      {{p + "use_tp_pp_dp_mapping", p + "account_for_embedding_in_pipeline_split",
        p + "account_for_loss_in_pipeline_split"},
       [](const Recipe& r) { return r.parallel.pipeline_model_parallel_size > 1; },
       "pipeline_model_parallel_size is 1"},
      {{p + "microbatch_group_size_per_vp_stage"},
       [](const Recipe& r) { return r.layer_plan().chunks() > 1; },
       "each stage has one chunk of layers"},
      {{p + "num_layers_per_virtual_pipeline_stage"},
       [](const Recipe& r) { return r.parallel.num_layer_list.empty(); },
       "num_layer_list says it"},
  };
}

/// Every option that a recipe gave: what defaults say is not listed.
void look(const Recipe& recipe, const std::string& path, const Value& value, std::vector<Idle>& out) {
  if (value.kind == Value::Kind::group) {
    for (const auto& [name, field] : value.fields) look(recipe, path.empty() ? name : path + "." + name, field, out);
    return;
  }
  if (value.origin.layer == 0) return;
  for (const auto& rule : effect_rules()) {
    if (std::find(rule.options.begin(), rule.options.end(), path) == rule.options.end() || rule.matters(recipe))
      continue;
    out.push_back({path, value.origin, rule.otherwise, false});
    return;
  }
  const auto group = recipe.facts.find(path.substr(0, path.find('.')));
  if (group == recipe.facts.end()) return;
  const auto name = path.substr(path.find('.') + 1);
  for (const auto& schema : group->second)
    for (const auto& option : schema.options)
      if (option.planned && option.name == name) {
        out.push_back(
            {path, value.origin, "not implemented yet; " + text(value) + " is the value that changes nothing", true});
        return;
      }
}

}  // namespace

const std::vector<EffectRule>& effect_rules() {
  static const std::vector<EffectRule> all = [] {
    Rules rules;
    for (const auto& some :
         {rules_of_positions(), rules_of_models(), rules_of_training(), rules_of_schedules(), rules_of_cuts()})
      rules.insert(rules.end(), some.begin(), some.end());
    return rules;
  }();
  return all;
}

std::vector<Idle> without_effect(const Recipe& recipe) {
  std::vector<Idle> all;
  look(recipe, "", recipe.resolved, all);
  return all;
}

}  // namespace tessera
