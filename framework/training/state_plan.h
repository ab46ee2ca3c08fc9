#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "framework/nn/auxiliary_log.h"
#include "framework/parallel/mesh.h"
#include "framework/resilience/coverage.h"
#include "framework/training/sharded_update.h"

namespace tessera::training {

/// Sections of a rank's state file (resilience::StateFile) that one part of its state needs, in bytes.
struct KeptSections {
  std::size_t undo = 0, sums = 0, segment = 0;
};
KeptSections kept_sections(const StateLayout& layout, const optim::Optimizer& optimizer);
/// The section of the journal.
std::size_t journal_section(const nn::AuxiliaryLog::Extents& auxiliary);
/// Bytes of a state file: what resilience_config.policy memory takes of the host's memory for a rank, its weights,
/// gradients and optimizer state included. Exact.
std::size_t state_file_bytes(std::size_t journal, std::span<const KeptSections> parts);

/// Which ranks of a run have state alike. `parts`: how many parts the state of each rank has (groups_of_parameters):
/// with two, the second has the experts. Pure.
std::vector<resilience::SharedShard> shards_of_run(const parallel::Mesh& mesh, bool distributed_optimizer,
                                                   std::span<const int> parts);

/// Why resilience_config.require_host refuses a run whose hosts are not covered.
std::string refusal_of(const resilience::Coverage& coverage);

}  // namespace tessera::training
