#pragma once

#include "framework/data/dataset.h"

namespace tessera::data {

/// A dataset of pairs: a prompt and a chosen completion, then the same prompt and a rejected one. The lengths are those
/// of the rows if they vary, else each row ends with padding. The prompt has no loss.
class PairsOfRows final : public Dataset {
 public:
  explicit PairsOfRows(bool varies = false, std::int64_t samples = 400, std::int64_t seq_length = 16)
      : varies_(varies), samples_(samples), seq_length_(seq_length) {}
  std::int64_t samples() const override { return samples_; }
  std::int64_t rows_per_sample() const override { return 2; }
  std::int64_t seq_length() const override { return seq_length_; }
  bool extents_vary() const override { return varies_; }
  bool one_document_each() const override { return true; }
  /// Tokens of row `row` of a pair.
  static std::int64_t tokens_of(std::int64_t index, std::int64_t row) { return 5 + (index * 7 + row * 4) % 11; }
  static std::int64_t prompt_of(std::int64_t index) { return 1 + index % 3; }
  static std::int32_t token(std::int64_t index, std::int64_t row, std::int64_t t) {
    return static_cast<std::int32_t>((index * 5 + t * 3 + (t < prompt_of(index) ? 0 : 17 * row)) % 60);
  }
  std::int64_t extents(std::int64_t index, std::span<std::int64_t>) const override {
    return std::max(tokens_of(index, 0), tokens_of(index, 1));
  }
  void read(std::int64_t index, const SampleView& out) const override {
    must(out.samples == 2, "a pair is written into two rows");
    for (std::int64_t row = 0; row < 2; ++row) {
      const auto one = samples_of<SampleView>(out, row, 1);
      const auto count = tokens_of(index, row);
      for (std::int64_t t = 0; t < out.seq_length; ++t) {
        const auto at = static_cast<std::size_t>(t);
        const bool labelled = t + 1 < count;
        one.tokens[at] = t < count ? token(index, row, t) : 0;
        one.labels[at] = labelled ? token(index, row, t + 1) : -1;
        one.loss_mask[at] = labelled && t + 1 >= prompt_of(index) ? 1.0F : 0.0F;
        one.positions[at] = static_cast<std::int32_t>(t);
        one.document_start[at] = 0;
      }
    }
  }

 private:
  bool varies_;
  std::int64_t samples_, seq_length_;
};

inline std::unique_ptr<DataSplits> make_pairs_of_rows(const options::NoOptions&, DataParts parts) {
  auto splits = std::make_unique<DataSplits>();
  splits->train = std::make_unique<PairsOfRows>(false, 400, parts.seq_length);
  splits->valid = std::make_unique<PairsOfRows>(false, 400, parts.seq_length);
  return splits;
}
inline std::unique_ptr<DataSplits> make_ragged_pairs(const options::NoOptions&, DataParts parts) {
  auto splits = std::make_unique<DataSplits>();
  splits->train = std::make_unique<PairsOfRows>(true, 400, parts.seq_length);
  splits->valid = std::make_unique<PairsOfRows>(true, 400, parts.seq_length);
  return splits;
}

/// Registers the types `pairs_of_rows` and, with lengths that vary, `ragged_pairs`.
inline void register_pairs(DatasetRegistry& registry) {
  registry.add("pairs_of_rows", make_pairs_of_rows, "Pairs of rows of one length.");
  registry.add("ragged_pairs", make_ragged_pairs, "Pairs of rows whose lengths vary.");
  for (const auto* type : {"pairs_of_rows", "ragged_pairs"})
    registry.declare_rows_per_sample(type, [](const DatasetRegistry::Choice&) { return std::int64_t{2}; });
}

}  // namespace tessera::data
