#include "framework/nn/auxiliary_log.h"

#include <algorithm>
#include <limits>

namespace tessera::nn {
namespace {

constexpr std::size_t sums = 3;  // values of a layer before the counts of its experts

double mean(double sum, double reports) { return reports > 0 ? sum / reports : 0; }

}  // namespace

AuxiliaryLog::AuxiliaryLog(const Extents& extents)
    : extents_(extents),
      width_(extents.experts > 0 ? sums + 2 * static_cast<std::size_t>(extents.experts) : 0),
      values_(at_metric(extents.metrics), 0.0),
      negative_gaps_(static_cast<std::size_t>(extents.layers)) {
  clear();
}

void AuxiliaryLog::add_routing(std::int64_t layer, double aux_loss, double z_loss, double gap,
                               std::span<const float> counts, std::span<const float> kept) {
  auto& smallest = negative_gaps_[static_cast<std::size_t>(layer)];
  smallest = std::max(smallest, static_cast<float>(-gap));
  const auto all = std::span(values_).subspan(at(layer), width_);
  all[0] += 1;
  all[1] += aux_loss;
  all[2] += z_loss;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    all[sums + e] += static_cast<double>(counts[e]);
    all[sums + counts.size() + e] += static_cast<double>(kept[e]);
  }
}

void AuxiliaryLog::add_prediction(std::int64_t index, double loss) {
  values_[at_prediction(index)] += 1;
  values_[at_prediction(index) + 1] += loss;
}

void AuxiliaryLog::add_metric(std::int64_t index, double sum, double count) {
  values_[at_metric(index)] += count;
  values_[at_metric(index) + 1] += sum;
}

void AuxiliaryLog::clear() {
  std::fill(values_.begin(), values_.end(), 0.0);
  std::fill(negative_gaps_.begin(), negative_gaps_.end(), -std::numeric_limits<float>::infinity());
}

AuxiliaryLog::Layer AuxiliaryLog::layer(std::int64_t index) const {
  const auto all = std::span(values_).subspan(at(index), width_);
  if (all.empty()) return {};
  const auto experts = static_cast<std::size_t>(extents_.experts);
  const auto gap = -static_cast<double>(negative_gaps_[static_cast<std::size_t>(index)]);
  return {all[0], gap, all[1], all[2], all.subspan(sums, experts), all.subspan(sums + experts)};
}

double AuxiliaryLog::aux_loss() const {
  double sum = 0, reports = 0;
  for (std::int64_t i = 0; i < extents_.layers; ++i) sum += layer(i).aux_loss, reports += layer(i).reports;
  return mean(sum, reports);
}

double AuxiliaryLog::z_loss() const {
  double sum = 0, reports = 0;
  for (std::int64_t i = 0; i < extents_.layers; ++i) sum += layer(i).z_loss, reports += layer(i).reports;
  return mean(sum, reports);
}

double AuxiliaryLog::prediction_loss(std::int64_t index) const {
  const auto first = at_prediction(index);
  return mean(values_[first + 1], values_[first]);
}

double AuxiliaryLog::metric(std::int64_t index) const {
  return mean(values_[at_metric(index) + 1], values_[at_metric(index)]);
}

}  // namespace tessera::nn
