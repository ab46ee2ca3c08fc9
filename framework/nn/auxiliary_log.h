#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::nn {

/// What the routers of experts and the layers of multi-token prediction report of a training step, summed over
/// micro-batches and, once values() has been summed over the ranks, over the run. All memory is allocated by the
/// constructor.
class AuxiliaryLog {
 public:
  /// Of the whole model, the same on every rank.
  struct Extents {
    std::int64_t layers = 0;       ///< transformer layers; those without experts report nothing
    std::int64_t experts = 0;      ///< of each layer; 0: the model has none
    std::int64_t predictions = 0;  ///< layers of multi-token prediction
    bool balances = false;         ///< routers have a load-balancing loss, perhaps with coefficient 0
    bool has_z_loss = false;       ///< likewise
    bool per_layer = false;        ///< the losses of each layer are reported to TensorBoard too
  };
  /// One layer with experts. Sums over `reports` micro-batches.
  struct Layer {
    double reports = 0;               ///< 0: the layer has no experts
    double gap = 0;                   ///< smallest difference between a chosen and a refused score; infinity: none
    double aux_loss = 0, z_loss = 0;  ///< without their coefficients
    std::span<const double> chosen;   ///< [experts] choices of each expert, before dropping
    std::span<const double> kept;     ///< [experts] those that were not dropped
  };

  explicit AuxiliaryLog(const Extents& extents);

  const Extents& extents() const { return extents_; }
  /// The choices of each expert [experts] by the tokens of a micro-batch, before and after dropping. `gap`: the
  /// smallest difference between a chosen and a refused score.
  void add_routing(std::int64_t layer, double aux_loss, double z_loss, double gap, std::span<const float> counts,
                   std::span<const float> kept);
  /// The mean loss of a micro-batch over its tokens that count, of prediction layer `index`.
  void add_prediction(std::int64_t index, double loss);
  /// A step begins: all sums are zero.
  void clear();

  /// All sums, to be summed over the ranks.
  std::span<double> values() { return values_; }
  /// Of each layer its smallest gap, negated; -infinity where there is none. To be reduced to the maximum over the
  /// ranks.
  std::span<float> negative_gaps() { return negative_gaps_; }
  Layer layer(std::int64_t index) const;
  /// Means over micro-batches, layers with experts and ranks; 0 if nothing was reported.
  double aux_loss() const;
  double z_loss() const;
  /// Mean over micro-batches and ranks.
  double prediction_loss(std::int64_t index) const;

 private:
  std::size_t at(std::int64_t layer) const { return static_cast<std::size_t>(layer) * width_; }
  std::size_t at_prediction(std::int64_t index) const {
    return at(extents_.layers) + 2 * static_cast<std::size_t>(index);
  }

  Extents extents_;
  std::size_t width_;           ///< of a layer: reports, aux loss, z loss, chosen, kept
  std::vector<double> values_;  ///< layers, then for each prediction reports and sum
  std::vector<float> negative_gaps_;
};

}  // namespace tessera::nn
