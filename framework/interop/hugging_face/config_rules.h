#pragma once

#include <string>
#include <vector>

#include "framework/options/value.h"

namespace tessera::hugging_face {

/// End of the names of Transformers' classes with a score head.
inline constexpr const char* of_classifier = "ForSequenceClassification";

// Some combinations of keys in config.json correspond to one option, or the reverse. The rows of a family's table store
// such keys under `facts`; the rules that the table names under `rules` convert between facts and options:
//
//   experts_behind_dense_layers  dense_layers_first <-> moe_layer_freq, no experts if every layer is dense
//   experts_every_step           sparse_step, dense_layers <-> moe_layer_freq, no experts if every layer is dense
//   shared_experts               shared_experts x moe_ffn_hidden_size <-> moe_shared_expert_intermediate_size
//   best_two_of_groups           groups, groups_kept <-> moe_router_num_groups, moe_router_group_topk; the score of a
//                                group is the sum of its two best scores
//   latent_yarn                  mscale, mscale_all_dim <-> both options of the same name, which must be equal
//   latent_norms                 the inner norms of latent attention have epsilon 1e-6 in the family, norm_epsilon here
//   yarn_mscale                  mscale, mscale_all_dim, both given and not 0 -> both options rope_scaling_...
//   upper_windows                use_window, window, window_layers, layer_types <-> sliding_window, layer_types;
//                                without a list, layers from window_layers on have the window
//   alternate_windows            the same facts; without a list, layers 0, 2, ... before window_layers have the window
//   periodic_windows             window, window_period, layer_types <-> sliding_window, layer_types; without a list,
//                                all layers but each window_period-th have the window
//   plain_heads                  kv_channels is hidden_size / num_attention_heads in the family
//   plain_embedding              embedding_width, which must be hidden_size
//   longrope                     longrope_original, longrope_factor <-> the original maximum and, where it is not the
//                                default, rope_scaling_attention_factor
//   attention_multiplier         attention_multiplier <-> query_pre_attn_scalar, one over its square
//   logits_scaling               logits_scaling <-> output_multiplier, its inverse
//   no_rope_layers               no_rope_layers, no_rope_layer_interval <-> no_rope_freq
//   common_window                use_window, window <-> sliding_window of all layers

/// Replaces the facts in `config` by options. Returns lines for people: which version of Transformers a rule follows.
/// Throws ConfigError, beginning with `speaker`, for facts that no option expresses.
std::vector<std::string> without_facts(options::Value& config, const options::Value& family_table,
                                       const std::string& speaker);

/// Replaces options in `config` by the family's facts. Options without effect are dropped. Throws ConfigError,
/// beginning with "a `family`", for a model that the family's facts cannot express.
options::Value with_facts(options::Value config, const options::Value& family_table, const std::string& family);

}  // namespace tessera::hugging_face
