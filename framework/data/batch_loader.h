#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "framework/data/bad_sample.h"
#include "framework/data/sample_digest.h"
#include "framework/data/sampler.h"

namespace tessera::data {

/// Reads the micro-batches of one dataset for one data-parallel rank, ahead of their use.
///
/// `workers` threads fill a queue of `workers` x `batches_ahead_of_worker` micro-batches, which follow each other in
/// the run: after the one that follows `consumed` samples comes the one that follows consumed + samples of all ranks. A
/// call of read() for another place empties the queue and continues there, so that every read() gives what read_batch()
/// would give, to the bit, whatever the number of workers. With 0 workers read() reads itself and there is no thread.
///
/// An error of a dataset or sampler is kept and thrown by the read() for its micro-batch, not earlier. A loader that is
/// told to note bad samples fills their places in the batch with tokens that mean nothing instead, and says which they
/// are. In steady state nothing is allocated: a read() swaps the memory of the caller's batch with that of the queue.
class BatchLoader {
 public:
  /// As PyTorch's DataLoader (prefetch_factor).
  static constexpr std::int64_t batches_ahead_of_worker = 2;

  /// What a read() gave besides the micro-batch.
  struct Contents {
    SampleDigest digest;         ///< of its samples
    std::vector<BadSample> bad;  ///< of these, those that could not be used; always empty if they are errors
  };
  enum class OnBadSample { error, note };

  /// Neither dataset nor sampler is owned; both outlive this. Nothing is read before the first read().
  BatchLoader(const Dataset& dataset, const Sampler& order, const BatchShare& share, std::int64_t workers,
              OnBadSample on_bad_sample = OnBadSample::error);
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;
  /// Waits for the reads that are under way.
  ~BatchLoader();

  /// Fill `batch` with the samples that follow `consumed`, waiting for them if necessary. Returns for how many seconds
  /// the caller had no batch: until it was taken from the queue, without waking the workers; with 0 workers, the
  /// reading. Throws ShapeError if the batch has another shape than the share and the dataset, and what the dataset or
  /// sampler threw. For one thread at a time.
  double read(std::int64_t consumed, Batch& batch);
  /// Of the last read().
  const Contents& contents() const { return contents_; }

  const Dataset& dataset() const { return dataset_; }
  const Sampler& order() const { return order_; }

 private:
  struct Slot {
    explicit Slot(Batch memory) : batch(std::move(memory)), indices(static_cast<std::size_t>(batch.samples)) {}
    Batch batch;
    std::vector<std::int64_t> indices;  ///< of its samples in the dataset
    Contents contents;
    std::exception_ptr error;
    bool filled = false;  ///< or failed
  };

  void finish();
  void work();
  void fill(std::int64_t consumed, std::span<const std::int64_t> indices, Batch& batch, Contents& contents) const;
  void read_or_note(std::int64_t index, const SampleView& out, Contents& contents) const;
  Slot* claim(std::int64_t& consumed);
  void restart(std::unique_lock<std::mutex>& lock, std::int64_t consumed);
  Slot& slot(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }

  const Dataset& dataset_;
  const Sampler& order_;
  BatchShare share_;
  OnBadSample on_bad_sample_;
  Contents contents_;                  ///< of the last read()
  std::vector<std::int64_t> indices_;  ///< of its samples, if there are no workers
  std::vector<Slot> slots_;
  std::mutex turn_;   ///< held while claiming: the sampler is asked in the order of samples, by one thread at a time
  std::mutex mutex_;  ///< of all that follows, and of Slot::filled
  std::condition_variable freed_, filled_;
  bool open_ = false, stop_ = false;      ///< open: slots may be claimed
  std::int64_t first_ = 0;                ///< samples before the micro-batch with number 0
  std::int64_t taken_ = 0, claimed_ = 0;  ///< micro-batches that read() took, and that workers began with
  std::int64_t reading_ = 0;              ///< of the claimed ones, those that are not filled yet
  std::vector<std::thread> workers_;      ///< last, so that all else exists when they begin
};

}  // namespace tessera::data
