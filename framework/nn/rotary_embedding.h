#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "framework/autograd/ops/attention.h"

namespace tessera {

/// How rotary frequencies are bent for sequences longer than those that a model first saw.
///
///   llama3   wavelengths above original / low are `factor` times as long, those below original / high stay, between
///            the two they pass over smoothly. Source: Llama 3, arXiv:2407.21783; Megatron's --use-rope-scaling
///   yarn     pairs that turn fewer than beta_slow times over `original` positions are slowed by `factor`, those that
///            turn more than beta_fast times stay; all products grow by attention_factor^2. Source: arXiv:2309.00071
struct RotaryScaling {
  enum class Kind { none, llama3, yarn } kind = Kind::none;
  double factor = 1;
  double low = 1, high = 4;                     ///< llama3
  double beta_fast = 32, beta_slow = 1;         ///< yarn
  std::optional<double> attention_factor = {};  ///< yarn; nothing: 0.1 ln(factor) + 1
  std::int64_t original = 8192;                 ///< positions the model first saw
  double positions_per_step = 1;                ///< linear interpolation: positions are divided by it
};

/// What each of the rotary_dim / 2 pairs turns by from one position to the next.
std::vector<double> rotary_frequencies(std::int64_t rotary_dim, double base, const RotaryScaling& scaling);

/// Angles of rotary positions: tables for `positions` places, in double, rounded once. Source: Su et al.,
/// arXiv:2104.09864.
class RotaryEmbedding {
 public:
  /// `rotary_dim` channels of each head turn; pair i of them by base^(-2 i / rotary_dim) a position, unless scaled.
  RotaryEmbedding(std::int64_t rotary_dim, double base, RotaryLayout layout, std::int64_t positions,
                  const RotaryScaling& scaling = {});
  RotaryTables tables(std::span<const std::int64_t> head_offsets) const {
    return {dim_, layout_, cosine_, sine_, head_offsets};
  }

 private:
  std::int64_t dim_;
  RotaryLayout layout_;
  std::vector<float> cosine_, sine_;  // [positions, dim / 2]
};

}  // namespace tessera
