#include "framework/data/batch_loader.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "framework/base/clock.h"
#include "framework/base/start_threads.h"
#include "framework/base/trace.h"

namespace tessera::data {

namespace {

/// In place of a row of a sample that cannot be used: what every model takes. Other fields are 0.
void fill_place(Batch& batch, std::int64_t row) {
  batch.clear_sample(row);
  const auto out = batch.sample(row);
  std::fill(out.tokens.begin(), out.tokens.end(), 0);
  std::fill(out.labels.begin(), out.labels.end(), 0);
  std::fill(out.loss_mask.begin(), out.loss_mask.end(), 1.0F);
  for (std::size_t i = 0; i < out.positions.size(); ++i)
    out.positions[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(out.seq_length));
}

/// Whether the exception in flight says that one sample cannot be used.
bool is_of_one_sample() {
  try {
    throw;
  } catch (const BadSampleError&) {
    return true;
  } catch (const IoError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

BatchLoader::BatchLoader(const Dataset& dataset, const Sampler& order, const BatchShare& share, std::int64_t workers,
                         OnBadSample on_bad_sample)
    : dataset_(dataset),
      order_(order),
      share_(share),
      on_bad_sample_(on_bad_sample),
      indices_(static_cast<std::size_t>(share.samples)) {
  must(share.rank >= 0 && share.rank < share.ranks && share.samples > 0, "a rank has a share of a micro-batch");
  must(workers >= 0, "there are 0 or more workers");
  const auto ahead = workers * batches_ahead_of_worker;
  slots_.reserve(static_cast<std::size_t>(ahead));
  for (std::int64_t i = 0; i < ahead; ++i)
    slots_.emplace_back(Batch(dataset.fields(), share.samples * dataset.rows_per_sample(), dataset.seq_length()),
                        static_cast<std::size_t>(share.samples));
  start_threads(
      workers_, static_cast<std::size_t>(workers), "reading of samples", "dataset_config.num_workers",
      [this](std::size_t) { work(); }, [this] { finish(); });
}

BatchLoader::~BatchLoader() {
  finish();
  for (auto& worker : workers_) worker.join();
}

void BatchLoader::finish() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  freed_.notify_all();
}

double BatchLoader::read(std::int64_t consumed, Batch& batch) {
  const bool fits = batch.has(dataset_.fields());
  const auto rows = share_.samples * dataset_.rows_per_sample();
  if (batch.samples != rows || batch.capacity() != dataset_.seq_length() || !fits)
    throw ShapeError(text("BatchLoader: the batch holds ", batch.samples, " samples of ", batch.capacity(),
                          " tokens; it reads ", rows, " of ", dataset_.seq_length(),
                          fits ? "" : ", with other fields"));
  const Stopwatch waiting;
  if (workers_.empty()) {
    for (std::int64_t i = 0; i < share_.samples; ++i)
      indices_[static_cast<std::size_t>(i)] = order_.index(share_.number(consumed, i));
    fill(consumed, indices_, batch, contents_);
    return waiting.seconds();
  }
  double waited = 0;
  std::exception_ptr error;
  {
    std::unique_lock lock(mutex_);
    if (!open_ || consumed != first_ + taken_ * share_.of_all_ranks()) restart(lock, consumed);
    auto& next = slot(taken_);
    filled_.wait(lock, [&] { return next.filled; });
    next.filled = false;
    error = std::exchange(next.error, nullptr);
    if (!error) std::swap(next.batch, batch);
    std::swap(next.contents, contents_);
    ++taken_;
    waited = waiting.seconds();
  }
  freed_.notify_one();  // at most one worker waits for it: the one that has the turn
  if (error) std::rethrow_exception(error);
  return waited;
}

/// Forget what was read and continue behind `consumed`. Reads that are under way are waited for, because they write
/// into the slots.
void BatchLoader::restart(std::unique_lock<std::mutex>& lock, std::int64_t consumed) {
  open_ = false;
  filled_.wait(lock, [&] { return reading_ == 0; });
  for (auto& one : slots_) {
    one.filled = false;
    one.error = nullptr;
  }
  first_ = consumed;
  taken_ = claimed_ = 0;
  open_ = true;
  freed_.notify_one();
}

/// The next slot to fill, with the indices of its samples; null when there is nothing more to do.
BatchLoader::Slot* BatchLoader::claim(std::int64_t& consumed) {
  const std::lock_guard turn(turn_);
  Slot* claimed = nullptr;
  {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return stop_ || (open_ && claimed_ - taken_ < static_cast<std::int64_t>(slots_.size())); });
    if (stop_) return nullptr;
    claimed = &slot(claimed_);
    consumed = first_ + claimed_ * share_.of_all_ranks();
    ++claimed_;
    ++reading_;
  }
  try {
    for (std::int64_t i = 0; i < share_.samples; ++i)
      claimed->indices[static_cast<std::size_t>(i)] = order_.index(share_.number(consumed, i));
  } catch (...) {
    claimed->error = std::current_exception();
  }
  return claimed;
}

/// Reads the micro-batch that follows `consumed`, whose samples have these indices.
void BatchLoader::fill(std::int64_t consumed, std::span<const std::int64_t> indices, Batch& batch,
                       Contents& contents) const {
  fit(
      dataset_, indices, share_, batch, on_bad_sample_ == OnBadSample::note ? is_of_one_sample : [] { return false; });
  std::vector<BadSample> reasons;  // a sample without rows of its own fails again, for another reason
  while (!read_all(consumed, indices, batch, contents)) {
    reasons.insert(reasons.end(), contents.bad.begin(), contents.bad.end());
    batch.resize(batch.seq_length);
  }
  for (auto& bad : contents.bad) {
    const auto first = std::ranges::find(reasons, bad.index, &BadSample::index);
    if (first != reasons.end()) bad = *first;
  }
}

// False if the batch must get its memory again, because a sample that could not be used had rows of its own: without
// their values the model could not take them.
bool BatchLoader::read_all(std::int64_t consumed, std::span<const std::int64_t> indices, Batch& batch,
                           Contents& contents) const {
  contents.digest = {};
  contents.bad.clear();
  bool complete = true;
  for (std::int64_t i = 0; i < share_.samples; ++i) {
    const auto index = indices[static_cast<std::size_t>(i)];
    const auto number = share_.number(consumed, i);
    if (!read_or_note(index, batch, i, contents)) {
      const auto own = batch.own_rows(i * dataset_.rows_per_sample(), dataset_.rows_per_sample());
      complete = complete && std::all_of(own.begin(), own.end(), [](std::int64_t rows) { return rows == 0; });
      std::fill(own.begin(), own.end(), 0);
    }
    write_ids(number, rows_of(dataset_, i, batch));
    contents.digest.add(number, index);
  }
  return complete;
}

// False for a sample that cannot be used.
bool BatchLoader::read_or_note(std::int64_t index, Batch& batch, std::int64_t sample, Contents& contents) const {
  const auto rows = dataset_.rows_per_sample();
  const auto note = [&](const Error& error) {
    if (on_bad_sample_ == OnBadSample::error) throw;
    contents.bad.push_back({index, error.what()});
    for (auto row = sample * rows; row < (sample + 1) * rows; ++row) fill_place(batch, row);
  };
  try {
    dataset_.read(index, rows_of(dataset_, sample, batch));
    return true;
  } catch (const BadSampleError& error) {
    note(error);
  } catch (const IoError& error) {
    note(error);
  }
  return false;
}

void BatchLoader::work() {
  // Linux then does not let a woken reader preempt the thread that woke it, which computes; a reader has time, because
  // it is ahead. If the system refuses, only that is lost.
  const sched_param none{};
  (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
  std::int64_t consumed = 0;
  while (auto* claimed = claim(consumed)) {
    try {
      const TraceSpan span(TraceKind::reading, "read a micro-batch", consumed);
      if (!claimed->error) fill(consumed, claimed->indices, claimed->batch, claimed->contents);
    } catch (...) {
      claimed->error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    claimed->filled = true;
    --reading_;
    filled_.notify_one();
  }
}

}  // namespace tessera::data
