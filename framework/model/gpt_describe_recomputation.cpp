#include "framework/base/error.h"
#include "framework/model/gpt_options.h"
#include "framework/options/limits.h"

namespace tessera::model {
namespace {

using O = GptOptions;

constexpr auto all_recomputed = [](const O& o) { return o.recompute_granularity == Recomputation::full; };
constexpr auto uniform = [](const O& o) {
  return all_recomputed(o) && o.recompute_method == RecomputedLayers::uniform;
};

void describe_recomputed_layers(options::Schema<O>& s) {
  s.option("recompute_granularity", &O::recompute_granularity,
           "Activation recomputation in the backward pass: full (whole layers) or selective (`recompute_modules`).")
      .alias("recompute_activations", {{"true", "selective"}, {"false", ""}})
      .needs("recompute by the model");
  s.option("recompute_method", &O::recompute_method,
           "With recompute_granularity full: uniform recomputes all layers, `recompute_num_layers` at a time; block "
           "recomputes the first `recompute_num_layers`.")
      .needs("recompute by the model")
      .must(
          "REC3", [](const O& o) { return !all_recomputed(o) || o.recompute_method; },
          [](const O&) { return "recompute_granularity is full, but recompute_method is missing"; },
          "give uniform or block", {"recompute_granularity"})
      .must(
          "REC2", [](const O& o) { return o.recompute_granularity != Recomputation::selective || !o.recompute_method; },
          [](const O&) { return "recompute_method is given, but recompute_granularity is selective; it is for full"; },
          "leave it out", {"recompute_granularity"});
  s.option("recompute_num_layers", &O::recompute_num_layers,
           "Number of layers recomputed together (uniform, at least 1), or number of recomputed layers (block).")
      .needs("recompute by the model")
      .at_least(0)
      .at_most(options::most_layers)
      .must(
          "REC3",
          [](const O& o) {
            return !all_recomputed(o) || o.recompute_method != RecomputedLayers::uniform || o.recompute_num_layers != 0;
          },
          [](const O&) {
            return "recompute_num_layers is 0, but recompute_method uniform recomputes so many at a time";
          },
          "give 1 or more, or leave recompute_granularity out", {"recompute_granularity", "recompute_method"})
      .must(
          "REC3", [](const O& o) { return !all_recomputed(o) || o.recompute_num_layers; },
          [](const O&) { return "recompute_granularity is full, but recompute_num_layers is missing"; }, "give it",
          {"recompute_granularity"})
      .must(
          "REC2",
          [](const O& o) { return o.recompute_granularity != Recomputation::selective || !o.recompute_num_layers; },
          [](const O&) {
            return "recompute_num_layers is given, but recompute_granularity is selective; it is for full";
          },
          "leave it out", {"recompute_granularity"});
}

void describe_recomputed_modules(options::Schema<O>& s) {
  s.option("recompute_modules", &O::recompute_modules,
           "With recompute_granularity selective: modules to recompute: core_attn (attention without its projections), "
           "mlp (the feed-forward network of dense layers), moe (experts and their router), moe_act (activations of "
           "experts; no effect, they are always recomputed), mla_up_proj (up-projections and rotation of multi-latent "
           "attention), layernorm (the norms before attention and the feed-forward network).")
      .must(
          "REC5", [](const O& o) { return o.multi_latent_attention || !o.recomputes(RecomputedModule::mla_up_proj); },
          [](const O&) { return "recompute_modules has mla_up_proj, but multi_latent_attention is false"; },
          "leave mla_up_proj out", {"multi_latent_attention", "recompute_granularity"})
      .matters_when([](const O& o) { return o.recompute_granularity == Recomputation::selective; },
                    "`recompute_granularity` is not selective");
}

void describe_recomputed_norms(options::Schema<O>& s) {
  s.option("recompute_norm", &O::recompute_norm,
           "Recompute the norms before attention and the feed-forward network in the backward pass, in layers that are "
           "not fully recomputed; see `recompute_norm_num_layers`.")
      .otherwise(
          "true with `lora_config.use_lora` and a `hidden_size` of at least 2048, where it costs little, else false")
      .must(
          "recompute_norm", [](const O& o) { return !o.recompute_norm.value_or(false) || !uniform(o); },
          [](const O&) { return "recompute_norm is true, but recompute_method uniform recomputes all layers fully"; },
          "leave it out, or give recompute_method block", {"recompute_method", "recompute_granularity"});
  s.option(
       "recompute_norm_num_layers", &O::recompute_norm_num_layers,
       "Number of layers of each chunk for `recompute_norm`, from the first that is not fully recomputed; null: all.")
      .at_least(0)
      .at_most(options::most_layers)
      .must(
          "recompute_norm", [](const O& o) { return o.recompute_norm.value_or(false) || !o.recompute_norm_num_layers; },
          [](const O&) { return "recompute_norm_num_layers is given, but recompute_norm is not true"; },
          "leave it out, or give recompute_norm: true", {"recompute_norm"})
      .must(
          "recompute_norm", [](const O& o) { return o.recompute_norm_num_layers.value_or(0) <= o.num_layers; },
          [](const O& o) {
            return text("recompute_norm_num_layers is ", *o.recompute_norm_num_layers, ", but num_layers is ",
                        o.num_layers);
          },
          "give at most num_layers, or leave it out", {"num_layers"});
}

void describe_recomputed_activation(options::Schema<O>& s) {
  s.option("recompute_activation_function", &O::recompute_activation_function,
           "Recompute the activation function of the feed-forward network, also of shared experts, in the backward "
           "pass, in layers that are not fully recomputed; see `recompute_activation_function_num_layers`. No effect "
           "where `recompute_modules` recompute the feed-forward network.")
      .otherwise("as `recompute_norm`")
      .must(
          "recompute_activation_function",
          [](const O& o) { return !o.recompute_activation_function.value_or(false) || !uniform(o); },
          [](const O&) {
            return "recompute_activation_function is true, but recompute_method uniform recomputes all layers fully";
          },
          "leave it out, or give recompute_method block", {"recompute_method", "recompute_granularity"})
      .matters_when(
          [](const O& o) { return !o.recomputes(RecomputedModule::mlp) || !o.recomputes(RecomputedModule::moe); },
          "`recompute_modules` has mlp and moe");
  s.option("recompute_activation_function_num_layers", &O::recompute_activation_function_num_layers,
           "Number of layers of each chunk for `recompute_activation_function`, from the first that is not fully "
           "recomputed; null: all.")
      .at_least(0)
      .at_most(options::most_layers)
      .must(
          "recompute_activation_function",
          [](const O& o) {
            return o.recompute_activation_function.value_or(false) || !o.recompute_activation_function_num_layers;
          },
          [](const O&) {
            return "recompute_activation_function_num_layers is given, but recompute_activation_function is not true";
          },
          "leave it out, or give recompute_activation_function: true", {"recompute_activation_function"})
      .must(
          "recompute_activation_function",
          [](const O& o) { return o.recompute_activation_function_num_layers.value_or(0) <= o.num_layers; },
          [](const O& o) {
            return text("recompute_activation_function_num_layers is ", *o.recompute_activation_function_num_layers,
                        ", but num_layers is ", o.num_layers);
          },
          "give at most num_layers, or leave it out", {"num_layers"});
}

void describe_recomputation_of_ranks(options::Schema<O>& s) {
  s.option("enable_recompute_layers_per_pp_rank", &O::enable_recompute_layers_per_pp_rank,
           "With virtual pipeline stages: count `recompute_num_layers` (recompute_method block), "
           "`recompute_norm_num_layers` and `recompute_activation_function_num_layers` over all chunks of a pipeline "
           "rank instead of per chunk. The first layer of each chunk is counted first, then the second layer of each.")
      .matters_when(
          [](const O& o) {
            return (all_recomputed(o) && o.recompute_method == RecomputedLayers::block) ||
                   o.recompute_norm_num_layers || o.recompute_activation_function_num_layers;
          },
          "no number of layers is given");
}

}  // namespace

void describe_recomputation(options::Schema<O>& s) {
  describe_recomputed_layers(s);
  describe_recomputed_modules(s);
  describe_recomputed_norms(s);
  describe_recomputed_activation(s);
  describe_recomputation_of_ranks(s);
}

}  // namespace tessera::model
