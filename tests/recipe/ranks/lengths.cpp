// Micro-batches that differ in length, on four ranks: on every layout a run has the losses of one rank.
#include <gtest/gtest.h>

#include "tests/recipe/ranks/runs.h"

namespace tessera::recipe {
namespace {

/// Sentences of 3 to 17 tokens, padded to the length of their micro-batch.
class Sentences final : public data::Dataset {
 public:
  std::int64_t samples() const override { return 400; }
  std::int64_t seq_length() const override { return 32; }
  bool extents_vary() const override { return true; }
  bool one_document_each() const override { return true; }
  std::int64_t extents(std::int64_t index, std::span<std::int64_t>) const override { return 3 + index * 11 % 15; }
  void read(std::int64_t index, const SampleView& out) const override {
    const auto count = static_cast<std::size_t>(extents(index, {}));
    for (std::size_t t = 0; t < out.tokens.size(); ++t) {
      const bool counts = t + 1 < count && index % 5 != 3;  // some sentences have no label
      out.tokens[t] = t < count ? token(index, t) : 0;
      out.labels[t] = counts ? token(index, t + 1) : -1;
      out.loss_mask[t] = counts ? 1.0F : 0.0F;
      out.positions[t] = static_cast<std::int32_t>(t);
      out.document_start[t] = 0;
    }
  }

 private:
  static std::int32_t token(std::int64_t index, std::size_t t) {
    return static_cast<std::int32_t>((static_cast<std::size_t>(index) * 5 + t * 3) % 60);
  }
};

std::unique_ptr<data::DataSplits> make_sentences(const options::NoOptions&, data::DataParts) {
  auto splits = std::make_unique<data::DataSplits>();
  splits->train = std::make_unique<Sentences>();
  splits->valid = std::make_unique<Sentences>();
  return splits;
}

TEST_F(RunsOfRanks, OfSamplesOfAnyLengthHaveTheLossesOfOneRank) {
  registries.datasets.add("sentences", make_sentences, "Sentences.");
  for (const std::string micro : {"1", "2"})
    expect_same({"dataset_config.dataset_type=sentences", "dataset_config.batch_size=" + micro,
                 "dataset_config.num_workers=2", "model_config.seq_length=32"},
                {{p + "pipeline_model_parallel_size=4"},
                 {p + "context_parallel_size=2", p + "context_parallel_algo=ulysses_cp_algo"}});
}

}  // namespace
}  // namespace tessera::recipe
