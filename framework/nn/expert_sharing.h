#pragma once

#include <span>

#include "framework/autograd/ops/experts.h"

namespace tessera::nn {

struct Pass;

/// How a mixture of experts works whose tokens or experts are on several ranks. The results are those of one rank, but
/// for the order of sums.
class ExpertSharing {
 public:
  virtual ~ExpertSharing() = default;
  /// autograd::route for the tokens of this rank.
  virtual autograd::ExpertChoices route(const autograd::Var& logits, const autograd::RouterTerms& terms,
                                        const Pass& pass) const = 0;
  /// autograd::experts, with the weights of the experts of this rank. `tap` sees the results of these, counted from 0.
  virtual autograd::Var experts(const autograd::Var& x, const autograd::ExpertChoices& choices,
                                std::span<autograd::Leaf* const> fc1, std::span<autograd::Leaf* const> fc2,
                                const autograd::ExpertNetwork& network, const Pass& pass,
                                const autograd::ExpertTap& tap) const = 0;
};

}  // namespace tessera::nn
