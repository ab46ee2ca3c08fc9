#pragma once

#include <vector>

#include "framework/nn/context_rank.h"

namespace tessera::parallel {

/// How the context-parallel ranks of a layer exchange what attention needs (cp_comm_type).
enum class ContextExchange {
  p2p,         ///< keys and values in a ring
  all_gather,  ///< keys and values by all-gather
  a2a,         ///< tokens for heads by all-to-all ("Ulysses")
  a2a_p2p      ///< tokens for heads within groups of neighbouring ranks, then a ring across these groups
};

/// Context parallelism of a model as seen by one rank.
struct ContextLayout {
  nn::ContextRank rank;
  std::vector<ContextExchange> exchanges = {ContextExchange::p2p};  ///< one for all layers, or one for each layer

  /// The exchange of a layer, counted from 0 over the whole model. Throws std::out_of_range for a layer not in the
  /// list.
  ContextExchange of(std::int64_t layer) const {
    return exchanges.size() == 1 ? exchanges[0] : exchanges.at(static_cast<std::size_t>(layer));
  }
};

}  // namespace tessera::parallel
