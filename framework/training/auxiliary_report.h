#pragma once

#include <array>
#include <vector>

#include "framework/nn/auxiliary_log.h"
#include "framework/options/limits.h"
#include "framework/reporting/metrics.h"

namespace tessera::training {

/// Adds to step records what the routers and the layers of multi-token prediction reported, summed over all ranks.
class AuxiliaryReport {
 public:
  explicit AuxiliaryReport(const nn::AuxiliaryLog::Extents& extents);

  /// Number of layers described in metrics; 0 for a model without experts.
  std::size_t routed_layers() const { return routing_.size(); }
  /// Adds the losses of the step, and how the routers of all layers distributed the step's choices. `record` refers to
  /// memory of this object until the next call. `log` must have the extents given to the constructor.
  void add_to(reporting::StepRecord& record, const nn::AuxiliaryLog& log);

 private:
  std::array<double, options::most_predictions> prediction_losses_ = {};
  std::vector<reporting::RoutingRecord> routing_;  ///< one per layer
};

}  // namespace tessera::training
