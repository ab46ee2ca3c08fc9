#pragma once

#include <functional>
#include <vector>

#include "framework/model/model.h"

namespace tessera {

/// How the next token is chosen from its logits.
struct Sampling {
  double temperature = 1;     ///< divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;     ///< only the k most likely; 0: all
  double top_p = 1;           ///< only the most likely that together have this probability; 1: all
  std::uint64_t seed = 1234;  ///< same seed, same text
};

/// The token drawn as number `position` of sequence `sequence`: a pure function of its arguments. Equal logits are
/// taken in the order of their ids. Source of top_p: Holtzman et al., arXiv:1904.09751.
std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, std::uint64_t sequence,
                          std::uint64_t position);

/// What ends a text.
struct GenerationLimits {
  std::int64_t most_tokens = 100;  ///< generated ones
  std::int32_t stop_token = -1;    ///< ends the text and is not told; -1: none
  std::int64_t vocabulary = 0;     ///< tokens that may be chosen: without the padding of the embedding
};

/// Generate after `prompt` (at least one token), telling each new token to `on_token` as it comes. Returns how many
/// came; fewer than most_tokens when the stop token came or the model has no more positions. `sequence` keys the random
/// numbers. Throws ConfigError when the prompt has no token, one beyond the vocabulary, or more than there are
/// positions.
std::int64_t generate(const Model& model, Tape& tape, std::span<const std::int32_t> prompt, const Sampling& sampling,
                      const GenerationLimits& limits, std::uint64_t sequence,
                      const std::function<void(std::int32_t)>& on_token);

}  // namespace tessera
