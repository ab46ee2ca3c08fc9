#pragma once

namespace tessera {

/// Number of tensor-parallel ranks that share each expert, of an expert-tensor-parallel size (0: not given, experts are
/// sharded as the other layers are) and a tensor-parallel size.
template <class Number>
constexpr Number sharers_of_expert(Number expert_tensor, Number tensor) {
  return expert_tensor > 0 ? expert_tensor : tensor;
}

}  // namespace tessera
