#pragma once

#include "framework/parallel/context_layout.h"
#include "framework/parallel/parallel_options.h"

namespace tessera::parallel {

/// The context parallelism of context-parallel rank `rank`. The options must have no mistakes_of_context.
ContextLayout context_layout(const ParallelOptions& options, int rank);

/// How many neighbours exchange tokens for heads in a layer with cp_comm_type a2a+p2p; 1: there is no such layer.
std::int64_t context_heads(const ParallelOptions& options);

/// What is wrong with the options of context parallelism: for themselves, and for a model of `extents` and `layers`.
std::vector<options::Finding> mistakes_of_context(const ParallelOptions& options, const CutExtents& extents,
                                                  std::int64_t layers);

}  // namespace tessera::parallel
