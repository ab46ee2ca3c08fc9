#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "framework/autograd/ops/attention.h"

namespace tessera::nn {

/// RoPE frequency scaling, for sequences longer than those of pre-training.
///
///   llama3   wavelengths above original / low are multiplied by `factor`, those below original / high stay, with a
///            smooth transition between them. Source: Llama 3, arXiv:2407.21783; Megatron's --use-rope-scaling
///   yarn     pairs with fewer than beta_slow rotations over `original` positions are slowed by `factor`, those with
///            more than beta_fast stay, with a linear transition; cosines and sines are multiplied by attention_factor,
///            q k^T by its square. Source: Peng et al., arXiv:2309.00071
struct RotaryScaling {
  enum class Kind { none, llama3, yarn } kind = Kind::none;
  double factor = 1;
  double low = 1, high = 4;              ///< llama3: low_freq_factor, high_freq_factor
  double beta_fast = 32, beta_slow = 1;  ///< yarn: in rotations
  double attention_factor = 1;           ///< yarn: factor of cosines and sines
  std::int64_t original = 8192;          ///< maximum sequence length of pre-training, in tokens
  double positions_per_step = 1;         ///< linear position interpolation: positions are divided by it
};

/// The angle, in radians per position, of each of the rotary_dim / 2 pairs: base^(-2 i / rotary_dim), scaled.
std::vector<double> rotary_frequencies(std::int64_t rotary_dim, double base, const RotaryScaling& scaling);

/// Tables of cosines and sines for `positions` positions. Computed in double and rounded once, so that they do not
/// depend on the instruction set; computed at the first use, by its threads, so that a model whose memory is only
/// counted has none. Source: Su et al., arXiv:2104.09864.
class RotaryEmbedding {
 public:
  /// rotary_dim: channels per head that are rotated; positions: maximum sequence length, in tokens.
  RotaryEmbedding(std::int64_t rotary_dim, double base, kernels::RotaryLayout layout, std::int64_t positions,
                  const RotaryScaling& scaling = {});
  /// The tables for the heads at `head_offsets` of a row. Valid as long as this object and the span.
  autograd::RotaryTables tables(kernels::Threads& threads, std::span<const std::int64_t> head_offsets) const {
    std::call_once(made_, [&] { make(threads); });
    return {dim_, layout_, cosine_.floats(), sine_.floats(), head_offsets};
  }
  /// What the tables take.
  static std::int64_t bytes(std::int64_t rotary_dim, std::int64_t positions) {
    return rotary_dim / 2 * 2 * positions * static_cast<std::int64_t>(sizeof(float));
  }

 private:
  void make(kernels::Threads& threads) const;
  std::int64_t dim_;
  double base_;
  kernels::RotaryLayout layout_;
  std::int64_t positions_;
  RotaryScaling scaling_;
  mutable std::once_flag made_;
  mutable Storage cosine_, sine_;  // [positions, dim / 2]
};

}  // namespace tessera::nn
