#include "framework/training/guards/rank_memory.h"

#include <algorithm>

namespace tessera::training {

bool MeasuredMemory::add(std::size_t rank, const RankMemory& now) {
  auto& greatest = greatest_.at(rank);
  bool grew = false;
  const auto take = [&grew](std::int64_t& before, std::int64_t bytes) {
    grew = grew || bytes > before;
    before = std::max(before, bytes);
  };
  take(greatest.used.weights, now.used.weights);
  take(greatest.used.gradients, now.used.gradients);
  take(greatest.used.optimizer, now.used.optimizer);
  take(greatest.used.activations, now.used.activations);
  take(greatest.used.workspace, now.used.workspace);
  take(greatest.used.messages, now.used.messages);
  greatest.process_peak = std::max(greatest.process_peak, now.process_peak);
  return grew;
}

Json MeasuredMemory::json() const {
  Json all = Json::array();
  for (std::size_t rank = 0; rank < greatest_.size(); ++rank) {
    const auto& [used, process_peak] = greatest_[rank];
    all.push_back({{"rank", rank},
                   {"weights", used.weights},
                   {"gradients", used.gradients},
                   {"optimizer", used.optimizer},
                   {"activations", used.activations},
                   {"workspace", used.workspace},
                   {"messages", used.messages},
                   {"process_peak", process_peak}});
  }
  return all;
}

}  // namespace tessera::training
