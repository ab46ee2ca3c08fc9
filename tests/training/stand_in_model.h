#pragma once

#include "framework/model/model.h"
#include "framework/nn/key_value_cache.h"

namespace tessera::training {

/// A model for tests that declare its parameters or its forward pass themselves; all else is refused.
class StandInModel : public model::Model {
 public:
  StandInModel() : model::Model("") {}
  model::ChunkResult forward(autograd::Tape&, const autograd::Var&, const TokenBatch&,
                             const model::ForwardMode&) const override {
    throw BugError("the stand-in has no forward pass");
  }
  autograd::Var logits(autograd::Tape&, const TokenBatch&, const model::ForwardMode&) const override {
    throw BugError("the stand-in has no logits");
  }
  nn::KeyValueCache make_cache(std::int64_t, std::int64_t) const override {
    throw BugError("the stand-in has no cache");
  }
  autograd::Var next_logits(autograd::Tape&, std::span<const std::int32_t>, std::int64_t, nn::KeyValueCache&,
                            const TokenBatch*) const override {
    throw BugError("the stand-in has no logits");
  }
  std::int64_t vocabulary() const override { return 50; }
  std::int64_t most_positions() const override { return 1000; }
  double flops(std::int64_t, std::int64_t) const override { return 0; }
};

}  // namespace tessera::training
