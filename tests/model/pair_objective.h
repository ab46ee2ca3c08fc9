#pragma once

#include <cmath>

#include "framework/model/objective.h"

namespace tessera::model {

/// Prefers each sample of even row to the one after it, as direct preference optimization does: the objective of a pair
/// is -log sigmoid(beta * (difference of their mean log-probabilities)), that of a micro-batch the mean over pairs.
class PairObjective final : public Objective {
 public:
  static constexpr double beta = 3;
  std::vector<std::string> metrics() const override { return {"pair_margin", "pair_accuracy"}; }
  autograd::LossSum judge(const Losses& losses, std::span<float> seeds,
                          std::span<autograd::LossSum> metrics) const override {
    const auto pairs = losses.batch.samples / 2;
    autograd::LossSum all;
    for (std::int64_t p = 0; p < pairs; ++p) {
      const double margin = beta * (mean(losses, 2 * p) - mean(losses, 2 * p + 1)), wrong = 1 / (1 + std::exp(margin));
      all += {std::log1p(std::exp(-margin)), 1};
      metrics[0] += {margin, 1};
      metrics[1] += {margin > 0 ? 1.0 : 0.0, 1};
      if (seeds.empty()) continue;
      const auto slope = beta * wrong * losses.share.scale / (static_cast<double>(pairs) * losses.share.parts());
      add(losses, 2 * p, slope, seeds);
      add(losses, 2 * p + 1, -slope, seeds);
    }
    return all;
  }

 private:
  static std::size_t at(const Losses& losses, std::int64_t row, std::int64_t t) {
    return static_cast<std::size_t>(row * losses.batch.seq_length + t);
  }
  static double counted(const Losses& losses, std::int64_t row) {
    double sum = 0;
    for (std::int64_t t = 0; t < losses.batch.seq_length; ++t)
      sum += static_cast<double>(losses.batch.loss_mask[at(losses, row, t)]);
    return sum;
  }
  static double mean(const Losses& losses, std::int64_t row) {
    double sum = 0;
    for (std::int64_t t = 0; t < losses.batch.seq_length; ++t) {
      const auto i = at(losses, row, t);
      sum -= static_cast<double>(losses.batch.loss_mask[i]) * static_cast<double>(losses.each[i]);
    }
    return sum / counted(losses, row);
  }
  static void add(const Losses& losses, std::int64_t row, double slope, std::span<float> seeds) {
    const auto tokens = counted(losses, row);
    for (std::int64_t t = 0; t < losses.batch.seq_length; ++t) {
      const auto i = at(losses, row, t);
      seeds[i] += static_cast<float>(slope * static_cast<double>(losses.batch.loss_mask[i]) / tokens);
    }
  }
};

}  // namespace tessera::model
