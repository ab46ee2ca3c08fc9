// What the arguments in a checkpoint of Megatron-LM or MindSpeed-LLM say of the model: read, or refused by name.
#include "framework/interop/megatron/megatron_arguments.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "framework/base/json.h"
#include "framework/recipe/imported_recipe.h"
#include "tests/golden/registries.h"
#include "tests/story.h"

namespace tessera::cli {
namespace {

/// The recipe of a small model whose checkpoint has `more`, members of a JSON object, among its arguments.
recipe::Recipe recipe_of_checkpoint(const std::string& more, const options::Mappings& mappings = options::Mappings()) {
  const std::string small =
      R"({"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "seq_length": 16, "padded_vocab_size": 64,
          "max_position_embeddings": 16, "position_embedding_type": "rope", )";
  return recipe::imported_recipe(megatron::recipe_of_arguments(parse_json(small + more + "}"), "args", mappings), {},
                                 golden::all_registries());
}

std::string model_option(const recipe::Recipe& recipe, const std::string& name) {
  const auto* value = recipe.resolved.at("model_config." + name);
  return value == nullptr ? "nothing" : text(*value);
}

TEST(MegatronArguments, ThatAreOptionsHereAreRead) {
  struct Case {
    const char* arguments;
    std::vector<std::pair<const char*, const char*>> options;
  };
  const std::vector<Case> cases = {
      {R"("apply_layernorm_1p": false, "add_rmsnorm_offset": true)", {{"apply_layernorm_1p", "true"}}},
      {R"("layernorm_zero_centered_gamma": true)", {{"apply_layernorm_1p", "true"}}},
      {R"("use_rope_scaling": false, "rope_scaling_type": "llama3", "rope_scaling_factor": 4.0, "low_freq_factor": 2.0,
          "high_freq_factor": 5.0, "original_max_position_embeddings": 8.0)",
       {{"rope_scaling_type", "llama3"},
        {"rope_scaling_factor", "4"},
        {"rope_scaling_low_freq_factor", "2"},
        {"rope_scaling_high_freq_factor", "5"},
        {"rope_scaling_original_max_position_embeddings", "8"}}},
      {R"("rope_scaling_type": "yarn", "rope_scaling_factor": 2.0, "beta_fast": 16,
          "rope_scaling_original_max_position_embeddings": 8, "rope_scaling_mscale": 0.7)",
       {{"rope_scaling_type", "yarn"},
        {"rope_scaling_beta_fast", "16"},
        {"rope_scaling_mscale", "0.7"},
        {"rope_scaling_original_max_position_embeddings", "8"}}},
      {R"("rope_scaling_type": "longrope", "rope_scaling_original_max_position_embeddings": 8,
          "short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [1.0, 2.0, 3.0, 4.0])",
       {{"rope_scaling_short_factor", "[1, 1.5, 2, 2.5]"}, {"rope_scaling_long_factor", "[1, 2, 3, 4]"}}},
      {R"("use_rope_scaling": true, "rope_scaling_factor": 8.0)", {{"rope_scaling_type", "llama3"}}},
      {R"("softmax_type": "off-by-one")", {{"softmax_type", "off-by-one"}}},
      {R"("swiglu": true, "glu_linear_offset": 1.0, "activation_func_clamp_value": 7)",
       {{"hidden_act", "swiglu"}, {"glu_linear_offset", "1"}, {"activation_func_clamp_value", "7"}}},
      {R"("quick_geglu": true, "swiglu": false)", {{"hidden_act", "quick_geglu"}}},
      {R"("geglu": true, "bias_gelu_fusion": false)", {{"hidden_act", "geglu_erf"}}},
      {R"("gelu_tanh": true)", {{"hidden_act", "geglu"}}},
      {R"("no_post_layer_norm": true)", {{"use_final_norm", "false"}}},
      {R"("embed_layernorm": true, "add_dense_bias": true)",
       {{"embed_layernorm", "true"}, {"out_proj_has_bias", "true"}}},
      {R"("scale_emb": 12, "embedding_multiplier_scale": 1.0)", {{"embedding_multiplier", "12"}}},
  };
  for (const auto& [arguments, options] : cases) {
    SCOPED_TRACE(arguments);
    const auto recipe = recipe_of_checkpoint(arguments);
    for (const auto& [name, value] : options) EXPECT_EQ(model_option(recipe, name), value) << name;
  }
}

TEST(MegatronArguments, ThatMakeAModelThatIsNotImplementedAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"scale_depth", "1.4"},
      {"dim_model_base", "4"},
      {"window_attn_skip_freq", "2"},
      {"qk_l2_norm", "true"},
      {"attention_output_gate", "true"},
      {"use_mup", "true"},
      {"experimental_attention_variant", R"("dsa")"},
      {"use_glm_rope", "true"},
      {"cla_share_factor", "2"},
      {"swiglu_limit", "10.0"},
      {"full_attention_interval", "3"},
      {"heterogeneous_layers_config_encoded_json", R"("{}")"},
      {"interleave_sliding_window", "4096"},
      {"multi_head_latent_attention", "true"},
      {"n_hash_layers", "3"},
      {"fc_type", R"("h_to_4h")"},
      {"mtp_use_repeated_layer", "true"},
      {"fp4", R"("e2m1")"},
      {"rope_scaling_type", R"("plm")"},
  };
  for (const auto& one : cases)
    EXPECT_PRED2(says, story_of([&] { recipe_of_checkpoint(text("\"", one.first, "\": ", one.second)); }), one.first);
}

TEST(MegatronArguments, ThatAreRefusedMayBeIgnored) {
  const auto refused = story_of([] { recipe_of_checkpoint(R"("interleave_sliding_window": 4096)"); });
  EXPECT_PRED2(says, refused, "--ignore-key interleave_sliding_window");
  options::Mappings mappings;
  mappings.ignore_keys({"interleave_sliding_window"});
  EXPECT_EQ(model_option(recipe_of_checkpoint(R"("interleave_sliding_window": 4096)", mappings), "sliding_window"),
            "null");
}

TEST(MegatronArguments, WithTheDefaultsOfTheirProgramsChangeNothing) {
  const auto plain = recipe_of_checkpoint(R"("swiglu": true)");
  const auto defaults = recipe_of_checkpoint(
      R"("swiglu": true, "quick_geglu": false, "geglu": false, "gelu_tanh": false, "squared_relu": false,
         "apply_layernorm_1p": false, "add_rmsnorm_offset": false, "use_rope_scaling": false,
         "rope_scaling_type": null, "rope_scaling_factor": 8.0, "beta_fast": 32, "beta_slow": 1,
         "rope_scaling_mscale": 1.0, "rope_scaling_mscale_all_dim": 0.0, "low_freq_factor": null, "long_factor": null,
         "dynamic_factor": 1.0, "use_glm_rope": false, "rope_type": null, "softmax_type": "vanilla",
         "glu_linear_offset": 0.0, "activation_func_clamp_value": null, "qk_l2_norm": false,
         "attention_output_gate": false, "use_mup": false, "window_size": null, "window_attn_skip_freq": null,
         "scale_emb": null, "embedding_multiplier_scale": 1.0, "output_multiplier_scale": null, "scale_depth": null,
         "dim_model_base": null, "post_norm": false, "no_post_layer_norm": false, "embed_layernorm": false,
         "add_dense_bias": false, "add_output_layer_bias": false, "interleave_sliding_window": null,
         "sliding_window": null, "pre_tockens": 1048576, "next_tockens": 0, "sparse_mode": 0, "fc_type": null,
         "swiglu_limit": 0.0, "cla_share_factor": 1, "share_kvstates": false, "enable_mhc": false,
         "full_attention_interval": 0, "multi_head_latent_attention": false, "n_hash_layers": 0,
         "num_zero_experts": null, "is_hybrid_model": false, "spec": null, "fp4": null, "qk_clip": false,
         "moe_shared_expert_gate": false, "shared_expert_gate": false, "moe_latent_size": 0,
         "router_gating_in_fp32": false, "te_precision_config_file": "x",
         "heterogeneous_layers_config_encoded_json": "", "hybrid_layer_pattern": "", "decoder_num_layers": 0,
         "experimental_attention_variant": "", "mtp_hybrid_override_pattern": "", "fp8": false, "decoupled_lr": null, "mtp_use_repeated_layer": false)");
  for (const auto& [name, value] : plain.resolved.find("model_config")->fields)
    if (name.rfind("fa_config", 0) != 0) {
      EXPECT_EQ(model_option(defaults, name), text(value)) << name;
    }
}

}  // namespace
}  // namespace tessera::cli
