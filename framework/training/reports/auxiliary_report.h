#pragma once

#include <array>
#include <string>
#include <vector>

#include "framework/nn/auxiliary_log.h"
#include "framework/options/limits.h"
#include "framework/reporting/metrics.h"

namespace tessera::training {

/// Adds to step records what routers, layers of multi-token prediction and the objective reported, summed over all
/// ranks.
class AuxiliaryReport {
 public:
  /// `metrics`: the names of the values that the objective reports.
  explicit AuxiliaryReport(const nn::AuxiliaryLog::Extents& extents, const std::vector<std::string>& metrics = {});

  /// Number of layers described in metrics; 0 for a model without experts.
  std::size_t routed_layers() const { return routing_.size(); }
  /// Adds the losses of the step, and how the routers of all layers distributed the step's choices. `record` refers to
  /// memory of this object until the next call. `log` must have the extents given to the constructor.
  void add_to(reporting::StepRecord& record, const nn::AuxiliaryLog& log);

 private:
  std::array<double, options::most_predictions> prediction_losses_ = {};
  std::vector<reporting::RoutingRecord> routing_;  ///< one per layer
  std::vector<reporting::MetricRecord> metrics_;   ///< of the objective
};

}  // namespace tessera::training
