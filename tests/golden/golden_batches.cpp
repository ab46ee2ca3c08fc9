#include "tests/golden/golden_batches.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "framework/base/error.h"
#include "framework/checkpoint/safetensors.h"

namespace tessera {

/// The batches of a golden case as a dataset: sample b of step k is number k * batch + b.
struct GoldenBatchesOptions {
  std::string golden_file;
  std::optional<std::int64_t> golden_document_end;
};

void describe(options::Schema<GoldenBatchesOptions>& s) {
  s.option("golden_file", &GoldenBatchesOptions::golden_file, "batch.safetensors of a case.");
  s.option("golden_document_end", &GoldenBatchesOptions::golden_document_end,
           "The token behind which attention begins anew; null: samples are one document each.");
}

/// Pairs of a golden case as a dataset.
struct GoldenPairsOptions {
  std::string golden_pairs_file;
};

void describe(options::Schema<GoldenPairsOptions>& s) {
  s.option("golden_pairs_file", &GoldenPairsOptions::golden_pairs_file, "pairs.safetensors of a case.");
}

namespace golden {
namespace {

class GoldenBatches final : public data::Dataset {
 public:
  explicit GoldenBatches(const GoldenBatchesOptions& o) : file_(o.golden_file), document_end_(o.golden_document_end) {
    const auto& file = o.golden_file;
    const auto& shape = file_.shape("tokens");
    if (shape.rank() != 3) throw ConfigError(text(file, ": tokens are ", shape, "; [steps, batch, seq] was expected"));
    samples_ = shape[0] * shape[1];
    length_ = shape[2];
    for (const char* name : {"labels", "loss_mask", "position_ids", "document_ids"})
      if ((name != std::string("document_ids") || file_.has(name)) && file_.shape(name) != shape)
        throw ConfigError(text(file, ": ", name, " are ", file_.shape(name), "; tokens are ", shape));
  }

  std::int64_t samples() const override { return samples_; }
  std::int64_t seq_length() const override { return length_; }
  void read(std::int64_t index, const SampleView& out) const override {
    copy(file_.tensor("tokens").as<std::int64_t>(), index, out.tokens);
    copy(file_.tensor("labels").as<std::int64_t>(), index, out.labels);
    copy(file_.tensor("position_ids").as<std::int64_t>(), index, out.positions);
    copy(file_.tensor("loss_mask").floats(), index, out.loss_mask);
    if (file_.has("document_ids")) return mark_documents(index, out);
    std::int32_t start = 0;
    for (std::size_t i = 0; i < out.tokens.size(); ++i) {
      out.document_start[i] = start;
      if (document_end_ && out.tokens[i] == *document_end_) start = static_cast<std::int32_t>(i + 1);
    }
  }

 private:
  /// From the number of the document of each token.
  void mark_documents(std::int64_t index, const SampleView& out) const {
    copy(file_.tensor("document_ids").as<std::int64_t>(), index, out.document_start);
    std::int32_t start = 0, document = 0;
    for (std::size_t i = 0; i < out.tokens.size(); ++i) {
      const auto own = out.document_start[i];
      if (i == 0 || own != document) start = static_cast<std::int32_t>(i);
      document = own;
      out.document_start[i] = start;
    }
  }
  template <class From, class To>
  static void copy(std::span<From> all, std::int64_t index, std::span<To> out) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<To>(all[static_cast<std::size_t>(index) * out.size() + i]);
  }
  checkpoint::SafetensorsReader file_;
  std::optional<std::int64_t> document_end_;
  std::int64_t samples_, length_;
};

std::unique_ptr<data::DataSplits> make_golden_batches(const GoldenBatchesOptions& o, data::DataParts) {
  auto splits = std::make_unique<data::DataSplits>();
  splits->train = std::make_unique<GoldenBatches>(o);
  return splits;
}

class GoldenPairs final : public data::Dataset {
 public:
  explicit GoldenPairs(const GoldenPairsOptions& o) : file_(o.golden_pairs_file) {
    const auto& shape = file_.shape("input_ids");
    if (shape.rank() != 3 || shape[1] % 2 != 0)
      throw ConfigError(text(o.golden_pairs_file, ": input_ids are ", shape, "; [steps, 2 pairs, length] expected"));
    for (const char* name : {"attention_mask", "completion_mask"})
      if (file_.shape(name) != shape)
        throw ConfigError(text(o.golden_pairs_file, ": ", name, " is ", file_.shape(name), "; input_ids are ", shape));
    steps_ = shape[0];
    pairs_ = shape[1] / 2;
    length_ = shape[2];
  }

  std::int64_t samples() const override { return steps_ * pairs_; }
  std::int64_t rows_per_sample() const override { return 2; }
  std::int64_t seq_length() const override { return length_; }
  void read(std::int64_t index, const SampleView& out) const override {
    for (std::int64_t of_pair = 0; of_pair < 2; ++of_pair)
      read_row((index / pairs_ * 2 + of_pair) * pairs_ + index % pairs_, samples_of<SampleView>(out, of_pair, 1));
  }

 private:
  void read_row(std::int64_t row, const SampleView& out) const {
    const auto n = static_cast<std::size_t>(length_);
    const auto of_row = [&](const char* name) {
      return file_.tensor(name).as<std::int64_t>().subspan(static_cast<std::size_t>(row) * n, n);
    };
    const auto ids = of_row("input_ids"), is_token = of_row("attention_mask"), learned = of_row("completion_mask");
    for (std::size_t i = 0; i < n; ++i) {
      const bool has_label = i + 1 < n && is_token[i + 1] != 0 && learned[i + 1] != 0;
      out.tokens[i] = static_cast<std::int32_t>(ids[i]);
      out.labels[i] = has_label ? static_cast<std::int32_t>(ids[i + 1]) : -1;
      out.loss_mask[i] = has_label ? 1.0F : 0.0F;
    }
    std::iota(out.positions.begin(), out.positions.end(), 0);
    std::fill(out.document_start.begin(), out.document_start.end(), 0);
  }

  checkpoint::SafetensorsReader file_;
  std::int64_t steps_ = 0, pairs_ = 0, length_ = 0;
};

std::unique_ptr<data::DataSplits> make_golden_pairs(const GoldenPairsOptions& o, data::DataParts) {
  auto splits = std::make_unique<data::DataSplits>();
  splits->train = std::make_unique<GoldenPairs>(o);
  return splits;
}

}  // namespace

void add_golden_datasets(data::DatasetRegistry& registry) {
  registry.add("golden", make_golden_batches, "The batches of a golden case.");
  registry.add("golden_pairs", make_golden_pairs, "The pairs of a golden case.");
  registry.declare_rows_per_sample("golden_pairs", [](const auto&) { return std::int64_t{2}; });
}

}  // namespace golden
}  // namespace tessera
