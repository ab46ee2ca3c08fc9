#pragma once

#include <span>
#include <vector>

#include "framework/model/reference_scores.h"
#include "framework/training/setup/reference_model.h"
#include "framework/training/step/pipeline.h"
#include "framework/training/step/reference_cache.h"

namespace tessera::training {

/// Micro-batches that were read once, for several passes.
class KeptBatches final : public BatchSource {
 public:
  std::int64_t samples() const override { return source_->samples(); }
  std::int64_t seq_length() const override { return source_->seq_length(); }
  const BatchFields& fields() const override { return source_->fields(); }
  bool lengths_vary() const override { return source_->lengths_vary(); }
  bool knows_lengths() const override { return source_->knows_lengths(); }
  double read(std::int64_t micro_batch, Batch& batch) override;
  /// Reads micro-batches [0, count) of `source`, which must outlive their use; unless it does not know lengths: then
  /// read() reads from it, since all of its micro-batches of a length are equal.
  void keep(BatchSource& source, std::int64_t count);
  std::span<const Batch> batches() const { return std::span(batches_).first(count_); }

 private:
  BatchSource* source_ = nullptr;
  std::vector<Batch> batches_;
  std::size_t count_ = 0;
  double waited_ = 0;  ///< seconds, told with the next read()
};

/// Runs the reference model over the micro-batches of a step, through the stages of the run's pipeline and in its
/// memory, before the objective judges them. Collective: all ranks call the same functions.
class ReferencePass {
 public:
  /// All must outlive this object. `cache`: null: log-probabilities are computed whenever they are needed.
  ReferencePass(Pipeline& pipeline, const ReferenceModel& model, const model::ReferenceScores& scores,
                const comm::Communicator& world, ReferenceCache* cache);
  /// The first `count` micro-batches of `source`, after the reference model has seen them. Valid until the next call.
  BatchSource& seen(BatchSource& source, std::int64_t count);

 private:
  bool all_known(const BatchSource& source) const;

  Pipeline& pipeline_;
  const ReferenceModel& model_;
  const model::ReferenceScores& scores_;
  const comm::Communicator& world_;
  ReferenceCache* cache_;
  KeptBatches kept_;
};

}  // namespace tessera::training
