#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::nn {

/// Losses and expert counts that routers, the layers of multi-token prediction and the objective report during a
/// training step. They are summed over the micro-batches of this rank and, after an all-reduce of values(), over all
/// ranks. The constructor allocates all memory.
class AuxiliaryLog {
 public:
  /// Extents of the whole model, the same on every rank.
  struct Extents {
    std::int64_t layers = 0;       ///< number of transformer layers; layers without experts report nothing
    std::int64_t experts = 0;      ///< number of experts in each layer that has experts; 0: the model has none
    std::int64_t predictions = 0;  ///< number of layers of multi-token prediction
    std::int64_t metrics = 0;      ///< number of values that the objective reports
    bool balances = false;         ///< routers have a load-balancing loss, possibly with coefficient 0
    bool has_z_loss = false;       ///< routers have a z-loss, possibly with coefficient 0
    bool per_layer = false;        ///< the losses of each layer are written to TensorBoard too
  };
  /// The reports of one layer, summed over `reports` micro-batches; `gap` is the minimum over them.
  struct Layer {
    double reports = 0;               ///< number of reports; 0: the layer has no experts
    double gap = 0;                   ///< smallest gap, as choose_experts (kernels/router.h) returns it
    double aux_loss = 0, z_loss = 0;  ///< without their coefficients
    std::span<const double> chosen;   ///< [experts] choices of each expert, before dropping
    std::span<const double> kept;     ///< [experts] choices of each expert, after dropping
  };

  explicit AuxiliaryLog(const Extents& extents);

  const Extents& extents() const { return extents_; }
  /// Adds the report of one router for one micro-batch. `counts` and `kept` [experts]: choices of each expert before
  /// and after dropping. `gap`: as choose_experts (kernels/router.h) returns it.
  void add_routing(std::int64_t layer, double aux_loss, double z_loss, double gap, std::span<const float> counts,
                   std::span<const float> kept);
  /// Adds the report of prediction layer `index` for one micro-batch: its mean loss over the tokens that count.
  void add_prediction(std::int64_t index, double loss);
  /// Adds to value `index` of the objective, for one micro-batch.
  void add_metric(std::int64_t index, double sum, double count);
  /// Sets all sums to zero; called at the beginning of a step.
  void clear();

  /// All sums, for an all-reduce (sum) over the ranks in place.
  std::span<double> values() { return values_; }
  /// The negated smallest gap of each layer, for an all-reduce (maximum) over the ranks in place; -infinity: no gap was
  /// reported.
  std::span<float> negative_gaps() { return negative_gaps_; }
  /// The sums of layer `index`; its spans refer to memory of this log.
  Layer layer(std::int64_t index) const;
  /// Mean losses over micro-batches, layers with experts and ranks, without coefficients; 0 if nothing was reported.
  double aux_loss() const;
  double z_loss() const;
  /// Mean loss of prediction layer `index` over micro-batches and ranks; 0 if nothing was reported.
  double prediction_loss(std::int64_t index) const;
  /// Value `index` of the objective: its sum over the step divided by its count; 0 if nothing was reported.
  double metric(std::int64_t index) const;

 private:
  std::size_t at(std::int64_t layer) const { return static_cast<std::size_t>(layer) * width_; }
  std::size_t at_prediction(std::int64_t index) const {
    return at(extents_.layers) + 2 * static_cast<std::size_t>(index);
  }
  std::size_t at_metric(std::int64_t index) const { return at_prediction(extents_.predictions + index); }

  Extents extents_;
  std::size_t width_;           ///< values per layer: reports, aux loss, z-loss, chosen [experts], kept [experts]
  std::vector<double> values_;  ///< [layers, width_], then for each prediction layer its reports and sum of losses; for
                                ///< each metric its count and sum
  std::vector<float> negative_gaps_;
};

}  // namespace tessera::nn
