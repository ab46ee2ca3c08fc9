#pragma once

#include <deque>

#include "framework/data/batch_loader.h"

namespace tessera::training {

/// The micro-batches of one step or one evaluation, addressed by number.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual std::int64_t samples() const = 0;     ///< rows of a micro-batch: samples, or two for each pair
  virtual std::int64_t seq_length() const = 0;  ///< tokens of a row; if lengths vary, the most
  virtual const BatchFields& fields() const { return token_fields(); }
  /// A batch with the extents of every micro-batch, unless they vary; its elements are not read, but for those of
  /// fields that say how many rows others have.
  virtual TokenBatch extents() const { return {.samples = samples(), .seq_length = seq_length()}; }
  /// Whether micro-batches differ in length; on all stages of a pipeline alike.
  virtual bool lengths_vary() const { return false; }
  /// If lengths vary, whether this source knows them: then read() gives `batch` the length of the micro-batch. Else the
  /// caller gives `batch` its length before.
  virtual bool knows_lengths() const { return true; }
  /// Fills `batch`, a Batch(fields(), samples(), seq_length()), with micro-batch `micro_batch`, counted from 0. Returns
  /// how long the caller waited, in seconds. Rethrows exceptions of the dataset.
  virtual double read(std::int64_t micro_batch, Batch& batch) = 0;
};

/// The micro-batches of one data-parallel rank, starting after the first `consumed` samples of the run.
class LoadedBatches final : public BatchSource {
 public:
  /// `loader` must outlive this object and must have been created for `share`.
  LoadedBatches(data::BatchLoader& loader, const data::BatchShare& share, std::int64_t consumed)
      : loader_(loader), share_(share), consumed_(consumed) {}
  std::int64_t samples() const override { return share_.samples * loader_.dataset().rows_per_sample(); }
  std::int64_t seq_length() const override { return loader_.dataset().seq_length(); }
  const BatchFields& fields() const override { return loader_.dataset().fields(); }
  bool lengths_vary() const override { return loader_.dataset().extents_vary(); }
  bool knows_lengths() const override { return loader_.dataset().knows_extents(); }
  double read(std::int64_t micro_batch, Batch& batch) override {
    const auto given = batch.seq_length;
    const auto waited = loader_.read(consumed_ + micro_batch * share_.of_all_ranks(), batch);
    const auto& contents = loader_.contents();
    digest_.low += contents.digest.low;
    digest_.high += contents.digest.high;
    bad_.insert(bad_.end(), contents.bad.begin(), contents.bad.end());
    if (!knows_lengths()) fill_again(batch, given);
    row_lengths_ += batch.seq_length;
    return waited;
  }
  const data::Dataset& data() const { return loader_.dataset(); }
  /// Digest of the samples of all micro-batches read so far.
  const data::SampleDigest& digest() const { return digest_; }
  /// Tokens of a row, padding included, summed over these micro-batches.
  std::int64_t row_lengths() const { return row_lengths_; }
  /// The samples among these that could not be used.
  const std::vector<data::BadSample>& bad() const { return bad_; }

 private:
  /// Writes samples without tokens of another length.
  void fill_again(Batch& batch, std::int64_t length) const {
    batch.resize(length);
    for (std::int64_t row = 0; row < batch.samples; ++row) loader_.dataset().read(0, batch.sample(row));
  }

  data::BatchLoader& loader_;
  data::BatchShare share_;
  std::int64_t consumed_;
  data::SampleDigest digest_;
  std::int64_t row_lengths_ = 0;
  std::vector<data::BadSample> bad_;
};

/// The batch loaders of one data-parallel rank, one for each dataset and order; each is created at its first use.
class BatchLoaders {
 public:
  /// `workers`: number of threads of each loader.
  BatchLoaders(const data::BatchShare& share, std::int64_t workers, data::BatchLoader::OnBadSample on_bad_sample)
      : share_(share), workers_(workers), on_bad_sample_(on_bad_sample) {}
  /// The micro-batches of `data` in `order`, starting after `consumed` samples. Both must outlive this object.
  LoadedBatches batches(const data::Dataset& data, const data::Sampler& order, std::int64_t consumed) {
    for (auto& one : loaders_)
      if (&one.dataset() == &data && &one.order() == &order) return {one, share_, consumed};
    return {loaders_.emplace_back(data, order, share_, workers_, on_bad_sample_), share_, consumed};
  }

 private:
  data::BatchShare share_;
  std::int64_t workers_;
  data::BatchLoader::OnBadSample on_bad_sample_;
  std::deque<data::BatchLoader> loaders_;
};

}  // namespace tessera::training
