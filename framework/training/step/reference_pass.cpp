#include "framework/training/step/reference_pass.h"

#include <utility>

namespace tessera::training {

double KeptBatches::read(std::int64_t micro_batch, Batch& batch) {
  if (!knows_lengths()) return source_->read(micro_batch, batch);
  batch = batches_[static_cast<std::size_t>(micro_batch)];
  return std::exchange(waited_, 0);
}

void KeptBatches::keep(BatchSource& source, std::int64_t count) {
  source_ = &source;
  count_ = source.knows_lengths() ? static_cast<std::size_t>(count) : 0;
  for (std::size_t i = 0; i < count_; ++i) {
    if (i == batches_.size()) batches_.emplace_back(source.fields(), source.samples(), source.seq_length());
    waited_ += source.read(static_cast<std::int64_t>(i), batches_[i]);
  }
}

ReferencePass::ReferencePass(Pipeline& pipeline, const ReferenceModel& model, const model::ReferenceScores& scores,
                             const comm::Communicator& world, ReferenceCache* cache)
    : pipeline_(pipeline), model_(model), scores_(scores), world_(world), cache_(cache) {}

BatchSource& ReferencePass::seen(BatchSource& source, std::int64_t count) {
  kept_.keep(source, count);
  if (cache_ && all_known(source)) return kept_;
  model_.require_intact();
  if (!cache_) scores_.clear();
  pipeline_.observe(kept_, count, model_.chunks(), scores_);
  const auto added = scores_.take_added();
  if (cache_) cache_->add(added);
  return kept_;
}

/// Whether no rank that judges needs the reference model. The other ranks cannot know it.
bool ReferencePass::all_known(const BatchSource& source) const {
  double missing = 0;
  if (cache_->judges() && source.knows_lengths())
    for (const auto& batch : kept_.batches())
      if (!scores_.has(batch.view())) ++missing;
  world_.all_reduce(std::span(&missing, 1), "log-probabilities that are not stored");
  return missing == 0;
}

}  // namespace tessera::training
