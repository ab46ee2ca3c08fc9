#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera::nn {

/// The position of a rank in its context-parallel group: which tokens of each sample it has. Plain numbers, like
/// TensorRank.
///
/// The sequence is cut into 2 * ranks equal chunks, and rank r has the chunks r and 2 * ranks - 1 - r in this order
/// ("zigzag"): under a causal mask all ranks then compute equally much. With `contiguous` it is cut into `ranks` parts,
/// and rank r has part r. Source: Megatron-LM, get_batch_on_this_cp_rank.
struct ContextRank {
  int rank = 0, ranks = 1;
  bool contiguous = false;

  bool whole() const { return ranks == 1; }
  /// Equal parts that the tokens of a sample divide into.
  std::int64_t parts() const { return whole() || contiguous ? ranks : 2 * ranks; }
  /// The index in the sample of this rank's token `token`; a sample has `length` tokens, a multiple of parts().
  std::int64_t index(std::int64_t token, std::int64_t length) const {
    if (whole()) return token;
    if (contiguous) return length / ranks * rank + token;
    const auto chunk = length / parts();
    return token < chunk ? chunk * rank + token : chunk * (2 * ranks - 2 - rank) + token;
  }
};

/// The tokens of each sample that a rank has between attention and the other layers: consecutive ones from `first`, but
/// from its token `before_gap` on `gap` further along.
struct HeldTokens {
  std::int64_t first = 0, before_gap = 0, gap = 0;

  /// Tokens [begin, end) of those that `context` has of a sample of `length` tokens.
  static HeldTokens of(const ContextRank& context, std::int64_t begin, std::int64_t end, std::int64_t length) {
    HeldTokens held{context.index(begin, length)};
    if (context.whole() || context.contiguous) return held;
    const auto chunk = length / context.parts();
    if (begin >= chunk || end <= chunk) return held;
    held.before_gap = chunk - begin;
    held.gap = context.index(chunk, length) - context.index(chunk - 1, length) - 1;
    return held;
  }
  /// The index in the sample of token `token` of these.
  std::int64_t index(std::int64_t token) const { return first + token + (token >= before_gap ? gap : 0); }
  /// `random`, a DropoutMask or SampleNoise, for rows of `width` elements, one for each token.
  template <class Random>
  Random rows(Random random, std::int64_t width) const {
    random.first_element = first * width;
    random.gap_at = before_gap * width;
    random.gap = gap * width;
    return random;
  }
};

}  // namespace tessera::nn
