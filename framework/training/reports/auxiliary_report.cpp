#include "framework/training/reports/auxiliary_report.h"

#include <algorithm>
#include <numeric>

namespace tessera::training {
namespace {

reporting::RoutingRecord routing_of(const nn::AuxiliaryLog::Layer& layer) {
  reporting::RoutingRecord record;
  if (layer.reports == 0) return record;
  record.has_experts = true;
  const auto least = std::min_element(layer.chosen.begin(), layer.chosen.end()),
             most = std::max_element(layer.chosen.begin(), layer.chosen.end());
  const auto all = std::accumulate(layer.chosen.begin(), layer.chosen.end(), 0.0),
             kept = std::accumulate(layer.kept.begin(), layer.kept.end(), 0.0);
  const auto mean = all / static_cast<double>(layer.chosen.size());
  record.least = least - layer.chosen.begin();
  record.most = most - layer.chosen.begin();
  if (all > 0) {
    record.least_load = *least / mean;
    record.most_load = *most / mean;
    record.dropped = (all - kept) / all;
  }
  record.gap = layer.gap;
  record.load_balancing_loss = layer.aux_loss / layer.reports;
  record.z_loss = layer.z_loss / layer.reports;
  return record;
}

}  // namespace

AuxiliaryReport::AuxiliaryReport(const nn::AuxiliaryLog::Extents& extents, const std::vector<std::string>& metrics)
    : routing_(extents.experts > 0 ? static_cast<std::size_t>(extents.layers) : 0) {
  for (const auto& name : metrics) metrics_.push_back({name});
}

void AuxiliaryReport::add_to(reporting::StepRecord& record, const nn::AuxiliaryLog& log) {
  const auto& extents = log.extents();
  if (extents.balances) record.load_balancing_loss = log.aux_loss();
  if (extents.has_z_loss) record.z_loss = log.z_loss();
  const auto predictions = static_cast<std::size_t>(extents.predictions);
  for (std::size_t k = 0; k < predictions; ++k)
    prediction_losses_[k] = log.prediction_loss(static_cast<std::int64_t>(k));
  record.prediction_losses = std::span(prediction_losses_).first(predictions);
  for (std::size_t i = 0; i < routing_.size(); ++i) routing_[i] = routing_of(log.layer(static_cast<std::int64_t>(i)));
  record.routing = routing_;
  for (std::size_t i = 0; i < metrics_.size(); ++i) metrics_[i].value = log.metric(static_cast<std::int64_t>(i));
  record.metrics = metrics_;
}

}  // namespace tessera::training
