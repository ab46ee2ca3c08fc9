#pragma once

#include <string>

#include "framework/options/value.h"

namespace tessera::hugging_face {

// Some keys of config.json say together what one option of ours says, or the reverse. The rows of a family's table keep
// such keys under `facts`; the rules that the table names under `rules` convert facts and options:
//
//   experts_behind_dense_layers  dense_layers_first <-> moe_layer_freq, no experts where every layer is dense
//   experts_every_step           sparse_step, dense_layers <-> the same
//   shared_experts               shared_experts x moe_ffn_hidden_size <-> moe_shared_expert_intermediate_size
//   best_two_of_groups           groups, groups_kept <-> moe_router_num_groups, moe_router_group_topk; the score of a
//                                group is the sum of its best two
//   latent_yarn                  mscale, mscale_all_dim <-> both of the same name, which must be equal
//   latent_norms                 the inner norms of latent attention have epsilon 1e-6 in the family, norm_epsilon here

/// Replaces the facts in `config` by options. Throws ConfigError, beginning with `speaker`, for facts that no option
/// says.
void without_facts(options::Value& config, const options::Value& family_table, const std::string& speaker);

/// `config` with the facts that its options say. Options without effect in it are left out. Throws ConfigError,
/// beginning with "a `family`", for a model that the facts of the family cannot say.
options::Value with_facts(options::Value config, const options::Value& family_table, const std::string& family);

}  // namespace tessera::hugging_face
