#pragma once

#include <functional>
#include <vector>

#include "framework/model/model.h"

namespace tessera::model {

/// How the next token is sampled from its logits.
struct Sampling {
  double temperature = 1;  ///< divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;  ///< sample from the k most likely tokens; 0: from all tokens
  double top_p = 1;        ///< sample from the most likely tokens with this total probability; 1: from all tokens
  /// Divides the positive logits of tokens that are in the prompt or were generated, and multiplies their negative
  /// ones; 1: nothing. Source: Keskar et al., arXiv:1909.05858, as Transformers has it.
  double repetition_penalty = 1;
  std::uint64_t seed = 1234;  ///< the same seed gives the same text
};

/// Samples the token at index `position` of sequence `sequence` from its logits [vocabulary]. A pure function of its
/// arguments: `sequence` and `position` key the random number. Tokens with equal logits are ordered by id. Source of
/// top_p: Holtzman et al., arXiv:1904.09751.
std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, std::uint64_t sequence,
                          std::uint64_t position);

/// When generation ends.
struct GenerationLimits {
  std::int64_t most_tokens = 100;              ///< maximum number of generated tokens
  std::vector<std::int32_t> stop_tokens = {};  ///< each ends the text; not passed to on_token
  std::int64_t vocabulary = 0;  ///< number of tokens that may be generated, without the padding of the embedding
};

/// The tokens that generation continues.
struct Prompt {
  std::span<const std::int32_t> tokens;
  const TokenBatch* given = nullptr;  ///< the same tokens with positions and images, a single sample; null: text
  std::int64_t position_shift = 0;    ///< KeyValueCache::position_shift() of the tokens behind the prompt

  Prompt() = default;
  Prompt(std::span<const std::int32_t> text) : tokens(text) {}  // NOLINT(google-explicit-constructor): text is a prompt
  Prompt(const std::vector<std::int32_t>& text) : tokens(text) {}  // NOLINT(google-explicit-constructor)
  Prompt(const TokenBatch& sample, std::int64_t shift) : tokens(sample.tokens), given(&sample), position_shift(shift) {}
};

/// Throws ConfigError if the prompt is empty, contains a token outside the vocabulary, or exceeds the maximum sequence
/// length, also by the positions of its images and videos.
void check_prompt(const Model& model, const Prompt& prompt, std::int64_t vocabulary);

/// Whether generate_together can answer these prompts: with all tokens that are asked for, the longest one fits the
/// maximum sequence length, and the model computes no earlier token again.
bool may_be_together(const Model& model, std::span<const Prompt> prompts, const GenerationLimits& limits);

/// As generate() for each of `prompts`: a step computes the next token of all of them, so it reads the weights once.
/// Earlier tokens of different number are aligned at their ends, so the order of sums of attention, and with it the
/// last bits of the logits, can differ from those of a prompt alone. `on_token` gets the index of the prompt too.
/// Throws BugError unless may_be_together(...).
void generate_together(const Model& model, autograd::Tape& tape, std::span<const Prompt> prompts,
                       const Sampling& sampling, const GenerationLimits& limits, std::uint64_t sequence,
                       const std::function<void(std::size_t prompt, std::int32_t token)>& on_token);

/// Generates tokens after `prompt`, which has at least one token, and passes each to `on_token` as soon as it is
/// sampled. Returns their number, which is less than most_tokens if a stop token was sampled or the maximum sequence
/// length is reached. `tape` must not record; it is cleared after each token. `sequence` keys the random numbers.
/// Throws ConfigError as check_prompt; Error if the logits are not finite.
std::int64_t generate(const Model& model, autograd::Tape& tape, const Prompt& prompt, const Sampling& sampling,
                      const GenerationLimits& limits, std::uint64_t sequence,
                      const std::function<void(std::int32_t)>& on_token);

}  // namespace tessera::model
