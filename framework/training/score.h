#pragma once

#include <functional>

#include "framework/model/model.h"

namespace tessera {

/// How the tokens of a text are scored by a model whose sequences are shorter: windows of `seq_length` tokens, each
/// beginning `stride` after the one before, every token scored once, with all the context its window has. A smaller
/// stride gives more context and costs more.
struct Windows {
  std::int64_t seq_length, stride;
  std::int64_t at_once = 8;  ///< windows of one forward pass
};

/// Sum of the losses of tokens[1..] (tokens[0] is context only) and how many they are. Throws ConfigError when there is
/// nothing to score or a token lies beyond `vocabulary`. `progress` is told how many of all tokens are scored.
LossSum score(const Model& model, Tape& tape, std::span<const std::int32_t> tokens, std::int64_t vocabulary,
              const Windows& windows, const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace tessera
