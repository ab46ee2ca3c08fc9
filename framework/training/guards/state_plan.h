#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "framework/nn/auxiliary_log.h"
#include "framework/parallel/mesh.h"
#include "framework/resilience/coverage.h"
#include "framework/training/state/sharded_update.h"

namespace tessera::training {

/// Sizes in bytes of the sections of a rank's state file (resilience::StateFile) for one part of its state.
struct KeptSections {
  std::size_t undo = 0, sums = 0, segment = 0;
};
/// Sizes of the sections for a part with this layout and optimizer.
KeptSections kept_sections(const StateLayout& layout, const optim::Optimizer& optimizer);
/// Size of the journal's section, in bytes.
std::size_t journal_section(const nn::AuxiliaryLog::Extents& auxiliary);
/// Size in bytes of a rank's state file with weights, gradients and optimizer state: the memory of the host that
/// resilience_config.policy memory uses for the rank. Exact.
std::size_t state_file_bytes(std::size_t journal, std::span<const KeptSections> parts);

/// Returns which ranks of a run have equal state. `parts`: number of parts of each rank's state (groups_of_parameters);
/// if there are two, the second has the experts. A pure function.
std::vector<resilience::SharedShard> shards_of_run(const parallel::Mesh& mesh, bool distributed_optimizer,
                                                   std::span<const int> parts);

/// Error message if resilience_config.require_host is set and the loss of a host is not covered.
std::string refusal_of(const resilience::Coverage& coverage);

}  // namespace tessera::training
