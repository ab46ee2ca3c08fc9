#pragma once

#include <array>

#include "framework/model/model.h"

namespace tessera {

/// A pass over `batch`: each token looks at its document up to itself, in windowed layers at `window` = tokens to the
/// left (-1: all) and right of itself within its document. A mask in the batch stands for all of that but the window.
Pass training_pass(Tape& tape, const TokenBatch& batch, const ForwardMode& mode, std::array<std::int64_t, 2> window);

/// `count` new tokens of each sample look at all that the cache holds and at themselves, in windowed layers at the last
/// of it. Throws ConfigError when the window looks to the right: those tokens are not there yet.
Pass generating_pass(Tape& tape, std::int64_t count, KeyValueCache& cache, std::array<std::int64_t, 2> window);

}  // namespace tessera
