#pragma once

#include <functional>

#include "framework/model/model.h"

namespace tessera::training {

/// How a text is divided into windows for a model with shorter sequences. A window has `seq_length` tokens and begins
/// `stride` tokens after the previous one; `stride` is in [1, seq_length]. Each token is scored once, in the first
/// window that has its label, with all preceding tokens of the window as context. A smaller stride gives more context
/// and costs more time.
struct Windows {
  std::int64_t seq_length, stride;
  std::int64_t at_once = 8;  ///< number of windows per forward pass
};

/// Returns the sum of the losses of tokens[1..] and their number; tokens[0] is only context. `tape` must not record.
/// `progress` is called with the number of tokens scored so far and in total. Throws ConfigError if there are fewer
/// than two tokens or a token is outside [0, vocabulary), and BugError for a wrong stride.
autograd::LossSum score(const model::Model& model, autograd::Tape& tape, std::span<const std::int32_t> tokens,
                        std::int64_t vocabulary, const Windows& windows,
                        const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace tessera::training
