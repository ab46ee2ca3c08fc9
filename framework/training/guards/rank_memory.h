#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/base/json.h"
#include "framework/reporting/metrics.h"

namespace tessera::training {

/// The memory of a rank, sent as bytes.
struct RankMemory {
  reporting::MemoryRecord used = {};  ///< what is counted
  std::int64_t process_peak = 0;      ///< bytes: the most that the process had, as the operating system measured it
};

/// The greatest memory of each rank so far: `measured_memory` of run.json (docs/metrics.md).
class MeasuredMemory {
 public:
  explicit MeasuredMemory(int ranks) : greatest_(static_cast<std::size_t>(ranks)) {}

  /// Takes the memory of a rank. Returns whether any of `used` is greater than before; process_peak does not count,
  /// because it grows by some pages all the time.
  bool add(std::size_t rank, const RankMemory& now);
  /// A list with an object for each rank, with the names that foreseen_memory has.
  Json json() const;

 private:
  std::vector<RankMemory> greatest_;
};

}  // namespace tessera::training
