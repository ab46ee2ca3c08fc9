#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::nn {

/// The position of a rank in its context-parallel group, which determines the tokens of each sample that it has. Plain
/// numbers, like TensorRank.
///
/// The sequence is divided into 2 * ranks equal chunks, and rank r has the chunks r and 2 * ranks - 1 - r in this order
/// ("zigzag"), so that with a causal mask all ranks compute equally many scores. With `contiguous` the sequence is
/// divided into `ranks` chunks, and rank r has chunk r. Source: Megatron-LM, get_batch_on_this_cp_rank.
struct ContextRank {
  int rank = 0, ranks = 1;
  bool contiguous = false;

  bool whole() const { return ranks == 1; }
  /// Number of equal chunks that the tokens of a sample are divided into.
  std::int64_t parts() const { return whole() || contiguous ? ranks : 2 * ranks; }
  /// Index in the sample of this rank's token `token`. A sample has `length` tokens, a multiple of parts().
  std::int64_t index(std::int64_t token, std::int64_t length) const {
    if (whole()) return token;
    if (contiguous) return length / ranks * rank + token;
    const auto chunk = length / parts();
    return token < chunk ? chunk * rank + token : chunk * (2 * ranks - 2 - rank) + token;
  }
};

/// The tokens of each sample that a rank has outside of attention (context and sequence parallelism), as at most two
/// ranges of consecutive tokens.
///
///   first        index in the sample of this rank's first token
///   before_gap   number of tokens in the first range, if there are two
///   gap          number of tokens of the sample between the two ranges; 0: there is a single range
struct HeldTokens {
  std::int64_t first = 0, before_gap = 0, gap = 0;

  /// The tokens [begin, end) of the rank `context`, counted among its own tokens of a sample of `length` tokens.
  static HeldTokens of(const ContextRank& context, std::int64_t begin, std::int64_t end, std::int64_t length) {
    HeldTokens held{context.index(begin, length)};
    if (context.whole() || context.contiguous) return held;
    const auto chunk = length / context.parts();
    if (begin >= chunk || end <= chunk) return held;
    held.before_gap = chunk - begin;
    held.gap = context.index(chunk, length) - context.index(chunk - 1, length) - 1;
    return held;
  }
  /// Index in the sample of this rank's token `token`.
  std::int64_t index(std::int64_t token) const { return first + token + (token >= before_gap ? gap : 0); }
  /// Returns `random`, a DropoutMask or SampleNoise, for an array [samples, tokens, width] of these tokens.
  template <class Random>
  Random rows(Random random, std::int64_t width) const {
    random.first_element = first * width;
    random.gap_at = before_gap * width;
    random.gap = gap * width;
    return random;
  }
};

}  // namespace tessera::nn
