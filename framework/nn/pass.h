#pragma once

#include <algorithm>
#include <functional>
#include <string_view>

#include "framework/autograd/ops/attention.h"
#include "framework/autograd/ops/router.h"
#include "framework/base/random.h"
#include "framework/kernels/sample_noise.h"
#include "framework/nn/context_rank.h"

namespace tessera::parallel {
struct ProcessGroups;
}

namespace tessera::nn {

class AttentionCore;
class KeyValueCache;
class AuxiliaryLog;
class ExpertSharing;

/// Observes named intermediate values: to find where a NaN first appears, or to compare with another program. The value
/// is valid only during the call.
using Tap = std::function<void(std::string_view name, const Tensor& value)>;

/// Cosines and sines of rotary embedding for each token of a micro-batch, in place of tables for each position: if
/// positions have several axes. Empty: there are none.
struct TokenAngles {
  std::int64_t rotary_dim = 0;  ///< rotary dimensions of each head
  kernels::RotaryLayout layout = kernels::RotaryLayout::half;
  std::span<const float> cosine, sine;      ///< [B * T, rotary_dim / 2]
  std::span<const std::int32_t> rows = {};  ///< [B * T]: 0, 1, 2, ...

  bool empty() const { return rows.empty(); }
};

/// Arguments of one forward pass that all layers share. Owns nothing; everything it refers to must outlive the backward
/// pass.
struct Pass {
  /// Number of samples of the micro-batch, and number of tokens of each sample. With context parallelism T is the
  /// number of this rank's tokens.
  std::int64_t B = 0, T = 0;
  std::int64_t S = 0;                        ///< number of tokens of each sample on all ranks together
  std::int64_t longest = 0;                  ///< see mask_tokens()
  HeldTokens held;                           ///< tokens of a sample that this rank has outside of attention
  HeldTokens gathered;                       ///< those that its tensor-parallel group has together: in linear layers
  std::span<const std::int32_t> positions;   ///< [B * T] position of each token, for position embeddings
  std::int64_t reach = 0;                    ///< 1 + the highest position of the micro-batch; 0: nobody asks
  TokenAngles angles;                        ///< rotary embedding by token; empty: by `positions`
  kernels::VisibleKeys visible;              ///< attention mask, [B * S] queries
  kernels::VisibleKeys windowed;             ///< mask of layers with sliding-window attention, [B * S] queries
  std::span<const std::int64_t> sample_ids;  ///< [B]: index of each sample in the whole run; keys the dropout
  std::uint64_t seed = 0;                    ///< random seed of the run
  bool training = false;                     ///< dropout is applied
  double auxiliary_seed = 0;                 ///< gradient of the objective with respect to a router's auxiliary loss
  AuxiliaryLog* log = nullptr;               ///< receives reports of routers and prediction layers; null: no reports
  const AttentionCore* core = nullptr;       ///< attention core under context parallelism; null: no context parallelism
  const ExpertSharing* experts = nullptr;    ///< null: this rank has all experts and all tokens of the micro-batch
  KeyValueCache* cache = nullptr;            ///< in generation, keys and values of the earlier tokens; else null
  const Tap* tap = nullptr;                  ///< null: no observer
  const autograd::AssumedChoices* assumed = nullptr;  ///< for a pass that computes nothing; null: routers decide
  /// Extent of the dropout masks of attention, [heads, mask_tokens, mask_tokens] for each sample: the longest sample
  /// that the model takes, so that what is dropped does not depend on the padding of a micro-batch, which depends on
  /// the layout.
  std::int64_t mask_tokens() const { return std::max(longest, S); }
  /// Communicators of sharded layers (parallel/process_groups.h); null if every layer is whole.
  const parallel::ProcessGroups* groups = nullptr;

  /// Passes `value` to the tap, if there is one.
  void show(std::string_view name, const autograd::Var& value) const {
    if (tap && *tap) (*tap)(name, value.value());
  }
  /// The dropout mask for `site`, the number of the dropout operation in the unsharded model, unique for each
  /// `purpose`. Its rate is 0 if `training` is false.
  kernels::DropoutMask dropout(Purpose purpose, std::uint64_t site, double rate) const {
    return {RandomKey(seed, purpose, site), sample_ids, training ? rate : 0.0};
  }
  /// Random numbers for an array [B, tokens of `held`, width]; `site` as in dropout().
  kernels::SampleNoise noise(Purpose purpose, std::uint64_t site, std::int64_t width) const {
    return held.rows(kernels::SampleNoise{RandomKey(seed, purpose, site), sample_ids}, width);
  }
};

}  // namespace tessera::nn
