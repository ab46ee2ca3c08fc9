#pragma once

#include <functional>
#include <string_view>

#include "framework/autograd/ops/attention.h"
#include "framework/base/random.h"

namespace tessera {

class KeyValueCache;

/// Looks at named intermediate values: to find where a NaN began, or to compare with another program.
using Tap = std::function<void(std::string_view name, const Tensor& value)>;

/// What every layer needs to know of one forward pass. Spans outlive the backward pass.
struct Pass {
  std::int64_t B = 0, T = 0;                 ///< samples and tokens of each
  std::int64_t first_token = 0;              ///< of each sample here, between layers: not 0 where the sequence is cut
  std::span<const std::int32_t> positions;   ///< [B * T]
  VisibleKeys visible;                       ///< [B * T] each
  VisibleKeys windowed;                      ///< the same for layers that look at a window only
  std::span<const std::int64_t> sample_ids;  ///< [B], numbers in the whole run
  std::uint64_t seed = 0;
  bool training = false;           ///< dropout is on
  KeyValueCache* cache = nullptr;  ///< generation: keys and values of the tokens before
  const Tap* tap = nullptr;

  void show(std::string_view name, const Var& value) const {
    if (tap && *tap) (*tap)(name, value.value());
  }
  /// The mask of a dropout `site`, a number of its own for each place in the unsplit model. Off when not training.
  DropoutMask dropout(Purpose purpose, std::uint64_t site, double rate) const {
    return {RandomKey(seed, purpose, site), sample_ids, training ? rate : 0.0, 0};
  }
};

}  // namespace tessera
