#include "framework/training/guards/state_plan.h"

#include <algorithm>
#include <array>

#include "framework/resilience/state_file.h"
#include "framework/resilience/step_journal.h"
#include "framework/training/step/run_position.h"

namespace tessera::training {

KeptSections kept_sections(const StateLayout& layout, const optim::Optimizer& optimizer) {
  const auto undo = undo_extents(layout, optimizer);
  return {resilience::UndoLog::bytes(undo), resilience::StateSums::bytes(undo.pieces), layout.segment().bytes};
}

std::size_t journal_section(const nn::AuxiliaryLog::Extents& auxiliary) {
  nn::AuxiliaryLog log(auxiliary);
  return resilience::StepJournal::bytes(record_bytes(log), most_position_bytes);
}

std::size_t state_file_bytes(std::size_t journal, std::span<const KeptSections> parts) {
  std::vector<std::size_t> sections = {journal};
  for (const auto& part : parts) sections.insert(sections.end(), {part.undo, part.sums, part.segment});
  return resilience::StateFile::bytes(sections);
}

std::vector<resilience::SharedShard> shards_of_run(const parallel::Mesh& mesh, bool distributed_optimizer,
                                                   std::span<const int> parts) {
  std::vector<resilience::SharedShard> all;
  constexpr std::array data = {parallel::Axis::context, parallel::Axis::data};
  const auto world = static_cast<std::size_t>(mesh.sizes().world());
  for (std::size_t part = 0; part < 2; ++part) {
    std::vector<bool> listed(world);  // a group is made once, not for each member: it can be as large as the run
    for (std::size_t rank = 0; rank < world; ++rank) {
      if (listed[rank] || static_cast<std::size_t>(parts[rank]) <= part) continue;
      const int first = static_cast<int>(rank);
      std::vector<int> sharers = {first};
      if (!distributed_optimizer) sharers = part == 0 ? mesh.group_of(first, data) : mesh.expert_data_group_of(first);
      std::sort(sharers.begin(), sharers.end());
      for (const int member : sharers) listed[static_cast<std::size_t>(member)] = true;
      all.push_back({part, std::move(sharers)});
    }
  }
  return all;
}

std::string refusal_of(const resilience::Coverage& coverage) {
  return text(
      "resilience_config.require_host: the loss of a host would lose steps, because ", coverage.host_gap,
      ". Place the data-parallel ranks of the same weights on different hosts, without a distributed optimizer, "
      "give resilience_config.policy replica, or leave require_host out");
}

}  // namespace tessera::training
