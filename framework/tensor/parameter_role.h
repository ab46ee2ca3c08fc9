#pragma once

namespace tessera {

/// What a parameter is in its model, independent of its name. All code that treats some parameters differently decides
/// by the role: weight decay, the learning rate of embeddings, Muon, padding of the vocabulary, cost estimates.
enum class ParameterRole {
  word_embedding,      ///< [vocabulary, hidden]; also the output layer if the two are tied
  position_embedding,  ///< [positions, hidden]
  output_layer,        ///< [vocabulary, hidden], not tied to the embedding
  matrix,              ///< [out, in], the weight of a linear layer within the model
  expert,              ///< [out, in], the weight of a linear layer of one expert of a mixture of experts
  router,         ///< [experts, hidden], the weight of a router; or [1, hidden], the weight of the shared expert's gate
  expert_bias,    ///< [experts], added to a router's scores; updated from the load of the experts, not by the optimizer
  norm_gain,      ///< the gain of a norm, including QK norm
  bias,           ///< the bias of a linear layer or of a norm
  output_bias,    ///< [vocabulary], the bias of the output layer
  magnitude,      ///< the magnitudes of the outputs of a weight-decomposed adapter, always fp32
  bias_of_expert  ///< the bias of a linear layer of one expert of a mixture of experts
};

/// Whether parameters of this role have one dimension: biases, norm gains and magnitudes.
constexpr bool is_vector(ParameterRole role) {
  return role == ParameterRole::norm_gain || role == ParameterRole::bias || role == ParameterRole::output_bias ||
         role == ParameterRole::expert_bias || role == ParameterRole::magnitude ||
         role == ParameterRole::bias_of_expert;
}

/// Whether weight decay applies to parameters of this role: to all but vectors, as in Megatron-LM. Options can exempt
/// further parameters by name: see group_of (optim/parameter_groups.h).
constexpr bool decays(ParameterRole role) { return !is_vector(role); }

/// Whether the parameter belongs to one expert of a mixture of experts, so that ranks which share the experts have
/// different ones.
constexpr bool is_of_expert(ParameterRole role) {
  return role == ParameterRole::expert || role == ParameterRole::bias_of_expert;
}

/// Whether each row of the parameter belongs to a token of the vocabulary, padding included.
constexpr bool has_vocabulary_rows(ParameterRole role) {
  return role == ParameterRole::word_embedding || role == ParameterRole::output_layer ||
         role == ParameterRole::output_bias;
}

}  // namespace tessera
