#pragma once

#include <array>

#include "framework/model/model.h"

namespace tessera::model {

/// The Pass of a training or evaluation batch: each token sees its document up to itself; in layers with sliding-window
/// attention, `window` tokens to the left (-1: all) and right within its document. A mask in the batch replaces
/// document boundaries and causality, but not the window. The index arrays live on `tape`.
nn::Pass training_pass(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode,
                       std::array<std::int64_t, 2> window);

/// The Pass of a generation step: each of `count` new tokens per sample sees all tokens in the cache, the earlier new
/// tokens and itself; in layers with sliding-window attention, those in the window. Throws ConfigError if the window
/// extends to the right, because those tokens do not exist yet.
nn::Pass generating_pass(autograd::Tape& tape, std::int64_t count, nn::KeyValueCache& cache,
                         std::array<std::int64_t, 2> window);

}  // namespace tessera::model
