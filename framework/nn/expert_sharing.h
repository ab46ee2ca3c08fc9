#pragma once

#include <span>

#include "framework/autograd/ops/experts.h"

namespace tessera::nn {

struct Pass;

/// Routing and experts of a mixture of experts whose tokens or experts are distributed over ranks. Results equal those
/// of a single rank, except for rounding, because sums run in another order. parallel/ implements it.
class ExpertSharing {
 public:
  virtual ~ExpertSharing() = default;
  /// As autograd::route: chooses experts for the tokens of this rank.
  virtual autograd::ExpertChoices route(const autograd::Var& logits, const autograd::RouterTerms& terms,
                                        const Pass& pass) const = 0;
  /// As autograd::experts, for the tokens of this rank. `layers` are those of this rank's experts; `tap` observes the
  /// outputs of these experts, counted from 0.
  virtual autograd::Var experts(const autograd::Var& x, const autograd::ExpertChoices& choices,
                                const autograd::ExpertLayers& layers, const autograd::ExpertNetwork& network,
                                const Pass& pass, const autograd::ExpertTap& tap) const = 0;
};

}  // namespace tessera::nn
