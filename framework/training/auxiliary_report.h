#pragma once

#include <array>
#include <vector>

#include "framework/nn/auxiliary_log.h"
#include "framework/options/limits.h"
#include "framework/training/metrics.h"

namespace tessera::training {

/// What metrics say of routers and of multi-token prediction, from the sums of all ranks.
class AuxiliaryReport {
 public:
  explicit AuxiliaryReport(const nn::AuxiliaryLog::Extents& extents);

  /// Number of layers that metrics describe: 0 for a model without experts.
  std::size_t routed_layers() const { return routing_.size(); }
  /// Adds the losses of the step, and how the routers of all layers distributed its choices. The record refers to this
  /// object until the next call. `log` has the extents of the constructor.
  void add_to(StepRecord& record, const nn::AuxiliaryLog& log);

 private:
  std::array<double, options::most_predictions> prediction_losses_ = {};
  std::vector<RoutingRecord> routing_;  ///< of each layer
};

}  // namespace tessera::training
