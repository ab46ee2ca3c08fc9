#pragma once

namespace tessera {

/// What a parameter is in its model, whatever its name. Everything that treats kinds of parameters differently asks
/// for the role: weight decay, the learning rate of embeddings, Muon, the vocabulary's padding, cost figures.
enum class ParameterRole {
  word_embedding,      ///< [vocabulary, hidden]; also the output layer of a model that ties the two
  position_embedding,  ///< [positions, hidden]
  output_layer,        ///< [vocabulary, hidden], not tied to the embedding
  matrix,              ///< [out, in], the weight of a linear layer within the model
  expert,              ///< [out, in], the weight of a linear layer of one expert of a mixture of experts
  router,       ///< [experts, hidden], the weight of a router; [1, hidden], that of the gate of its shared expert
  expert_bias,  ///< [experts], added to a router's scores; moved by the load of the experts, not by an optimizer
  norm_gain,    ///< the scale of a norm, also that of QK norm
  bias          ///< of a linear layer or of a norm
};

/// Whether weight decay applies to parameters of this role: not to biases and norm gains, as in Megatron-LM. Options
/// can exempt further parameters by name: see group_of (optim/parameter_groups.h).
constexpr bool decays(ParameterRole role) {
  return role != ParameterRole::norm_gain && role != ParameterRole::bias && role != ParameterRole::expert_bias;
}

/// Whether the rows of the parameter are the tokens of the vocabulary, padding included.
constexpr bool has_vocabulary_rows(ParameterRole role) {
  return role == ParameterRole::word_embedding || role == ParameterRole::output_layer;
}

}  // namespace tessera
