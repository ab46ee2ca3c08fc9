#pragma once

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

/// What every layer needs to know about one forward pass. The spans must outlive the backward pass; nothing is owned.
struct Pass {
  /// Samples of the micro-batch, and tokens of each: all of them, or with context parallelism those of this rank.
  std::int64_t B = 0, T = 0;
  std::int64_t S = 0;                        ///< tokens of each sample on all ranks
  HeldTokens held;                           ///< of the T tokens, those that this rank has under sequence parallelism
  std::span<const std::int32_t> positions;   ///< [B * T]
  kernels::VisibleKeys visible;              ///< attention mask, [B * S] queries
  kernels::VisibleKeys windowed;             ///< the same for layers with sliding-window attention
  std::span<const std::int64_t> sample_ids;  ///< [B]: index of each sample in the whole run, keys the dropout
  std::uint64_t seed = 0;                    ///< of the run
  bool training = false;                     ///< dropout is on
  double auxiliary_seed = 0;                 ///< gradient of the objective with respect to a router's auxiliary loss
  AuxiliaryLog* log = nullptr;               ///< where routers and prediction layers report; null: nowhere
  const AttentionCore* core = nullptr;       ///< of layers whose sequence ranks share; null: of this rank alone
  const ExpertSharing* experts = nullptr;    ///< of experts that ranks share; null: this rank has all and all tokens
  KeyValueCache* cache = nullptr;            ///< generation: keys and values of the earlier tokens; else null
  const Tap* tap = nullptr;                  ///< null: no observer
  const autograd::AssumedChoices* assumed = nullptr;  ///< null: routers decide
  /// The groups that sharded layers communicate in (parallel/process_groups.h); null if every layer is whole.
  const parallel::ProcessGroups* groups = nullptr;

  /// Passes `value` to the tap, if there is one.
  void show(std::string_view name, const autograd::Var& value) const {
    if (tap && *tap) (*tap)(name, value.value());
  }
  /// The dropout mask of a `site`, a number unique to each place in the unsharded model. Rate 0 when not training.
  kernels::DropoutMask dropout(Purpose purpose, std::uint64_t site, double rate) const {
    return {RandomKey(seed, purpose, site), sample_ids, training ? rate : 0.0};
  }
  /// Random numbers of this rank's tokens, with `width` of them for each; `site` as for dropout.
  kernels::SampleNoise noise(Purpose purpose, std::uint64_t site, std::int64_t width) const {
    return held.rows(kernels::SampleNoise{RandomKey(seed, purpose, site), sample_ids}, width);
  }
};

}  // namespace tessera::nn
