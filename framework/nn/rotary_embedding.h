#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "framework/autograd/ops/attention.h"

namespace tessera::nn {

/// RoPE frequency scaling, for sequences longer than those of pre-training.
///
///   llama3   frequencies with wavelengths above original / low are divided by `factor`, those with wavelengths below
///            original / high stay unchanged, with a smooth transition between them. Source: Llama 3, arXiv:2407.21783;
///            Megatron's --use-rope-scaling
///   yarn     frequencies with fewer than beta_slow rotations over `original` positions are divided by `factor`, those
///            with more than beta_fast rotations stay unchanged, with a linear transition between them. Cosines and
///            sines are multiplied by attention_factor, which multiplies q k^T by its square. Source: Peng et al.,
///            arXiv:2309.00071
///   longrope each frequency is divided by a number of its own, by other numbers in sequences longer than `original`.
///            Cosines and sines are multiplied by attention_factor. Source: Ding et al., arXiv:2402.13753
struct RotaryScaling {
  enum class Kind { none, llama3, yarn, longrope } kind = Kind::none;
  double factor = 1;
  double low = 1, high = 4;              ///< llama3: low_freq_factor, high_freq_factor
  double beta_fast = 32, beta_slow = 1;  ///< yarn: rotations over `original` positions
  bool rounds = true;                    ///< yarn: the transition begins and ends at whole pairs
  double attention_factor = 1;           ///< yarn, longrope: factor of cosines and sines
  std::vector<double> divisors = {};     ///< longrope: of each frequency; as many as there are pairs
  std::int64_t original = 8192;          ///< maximum sequence length of pre-training, in tokens
  double positions_per_step = 1;         ///< linear position interpolation: positions are divided by this number
};

/// The frequency of each of the rotary_dim / 2 pairs i, in radians per position: base^(-2 i / rotary_dim), scaled by
/// `scaling`.
std::vector<double> rotary_frequencies(std::int64_t rotary_dim, double base, const RotaryScaling& scaling);

/// Tables of cosines and sines for rotary position embedding. They are computed in double and rounded once to fp32, so
/// they do not depend on the instruction set. They are computed at the first use, so a model of which only the memory
/// is counted has no tables. Owns the tables. Source: Su et al., arXiv:2104.09864.
class RotaryEmbedding {
 public:
  /// `rotary_dim`: rotary dimensions per head, an even number; `base`: base of the frequencies (rotary_base);
  /// `positions`: maximum sequence length, in tokens.
  RotaryEmbedding(std::int64_t rotary_dim, double base, kernels::RotaryLayout layout, std::int64_t positions,
                  const RotaryScaling& scaling = {});
  /// Other tables for passes with more than `longest` positions, which tables() then gives.
  void add_longer(std::int64_t longest, std::unique_ptr<const RotaryEmbedding> longer) {
    longest_ = longest;
    longer_ = std::move(longer);
  }
  /// The tables of a pass with `reach` positions, for heads that begin at `head_offsets` in a row. The first call
  /// computes them with `threads`; calls from several threads are safe. The result is valid as long as this object and
  /// the memory of `head_offsets`.
  autograd::RotaryTables tables(kernels::Threads& threads, std::span<const std::int64_t> head_offsets,
                                std::int64_t reach = 0) const {
    if (longer_ && reach > longest_) return longer_->tables(threads, head_offsets);
    std::call_once(made_, [&] { make(threads); });
    return {dim_, layout_, cosine_.floats(), sine_.floats(), head_offsets};
  }
  /// Memory of both tables, in bytes.
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
  std::int64_t longest_ = 0;
  std::unique_ptr<const RotaryEmbedding> longer_;  ///< null: none
  mutable std::once_flag made_;
  mutable Storage cosine_, sine_;  // [positions, dim / 2]
};

}  // namespace tessera::nn
