#pragma once

#include "framework/model/model.h"
#include "framework/nn/key_value_cache.h"

namespace tessera {

/// A model for tests that declare its parameters or its forward pass themselves; all else is refused.
class StandInModel : public Model {
 public:
  StandInModel() : Model("") {}
  ChunkResult forward(Tape&, const Var&, const TokenBatch&, const ForwardMode&) const override {
    throw BugError("the stand-in has no forward pass");
  }
  Var logits(Tape&, const TokenBatch&, const ForwardMode&) const override {
    throw BugError("the stand-in has no logits");
  }
  KeyValueCache make_cache(std::int64_t, std::int64_t) const override { throw BugError("the stand-in has no cache"); }
  Var next_logits(Tape&, std::span<const std::int32_t>, std::int64_t, KeyValueCache&) const override {
    throw BugError("the stand-in has no logits");
  }
  std::int64_t vocabulary() const override { return 50; }
  std::int64_t most_positions() const override { return 1000; }
  double flops(std::int64_t, std::int64_t) const override { return 0; }
};

}  // namespace tessera
