#pragma once

#include "framework/parallel/context_layout.h"
#include "framework/parallel/layer_plan.h"
#include "framework/parallel/parallel_options.h"

namespace tessera::parallel {

/// The context parallelism of context-parallel rank `rank`. Requires that mistakes_of_context() returns none.
ContextLayout context_layout(const ParallelOptions& options, int rank);

/// Number of neighbouring ranks that exchange tokens for heads in layers with cp_comm_type a2a+p2p; 1: no such layer.
std::int64_t context_heads(const ParallelOptions& options);

/// Returns what is wrong with the options of context parallelism: by themselves, and for a model with `extents` and
/// these towers.
std::vector<options::Finding> mistakes_of_context(const ParallelOptions& options, const CutExtents& extents,
                                                  const Towers& towers);

}  // namespace tessera::parallel
