#pragma once

#include <vector>

#include "framework/nn/context_rank.h"

namespace tessera::parallel {

/// How the context-parallel ranks of a layer exchange what attention needs (cp_comm_type).
enum class ContextExchange {
  p2p,         ///< keys and values in a ring
  all_gather,  ///< keys and values by all-gather
  a2a,         ///< tokens for heads ("Ulysses")
  a2a_p2p      ///< tokens for heads among neighbours, then a ring across these groups
};

/// Context parallelism of a model on one rank, in plain numbers.
struct ContextLayout {
  nn::ContextRank rank;
  std::vector<ContextExchange> exchanges = {ContextExchange::p2p};  ///< of all layers, or one for each

  /// Of a layer, counted from 0 over the whole model.
  ContextExchange of(std::int64_t layer) const {
    return exchanges.size() == 1 ? exchanges[0] : exchanges.at(static_cast<std::size_t>(layer));
  }
};

}  // namespace tessera::parallel
