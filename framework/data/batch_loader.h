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
/// `workers` threads fill a queue of `workers` x `batches_ahead_of_worker` consecutive micro-batches: if one follows
/// `consumed` samples, the next one follows consumed + (samples of a micro-batch on all ranks). A call of read() for
/// another position empties the queue and continues from there, so that every read() returns bit for bit what
/// read_batch() would return, whatever the number of workers. With 0 workers there is no thread, and read() itself
/// reads the samples.
///
/// An error of the dataset or sampler is stored and thrown by the read() of its micro-batch, not earlier. With
/// OnBadSample::note, the loader instead fills the rows of bad samples with meaningless tokens and reports them in
/// contents(); in fields with rows of their own they have none. In steady state nothing is allocated: read() swaps the
/// memory of the caller's batch with that of the queue.
class BatchLoader {
 public:
  /// As PyTorch's DataLoader (prefetch_factor).
  static constexpr std::int64_t batches_ahead_of_worker = 2;

  /// Information about the micro-batch of a read().
  struct Contents {
    SampleDigest digest;         ///< checksum of its samples
    std::vector<BadSample> bad;  ///< its unusable samples; always empty with OnBadSample::error
  };
  enum class OnBadSample { error, note };

  /// `dataset` and `order` are not owned and must outlive this object. Nothing is read before the first read().
  BatchLoader(const Dataset& dataset, const Sampler& order, const BatchShare& share, std::int64_t workers,
              OnBadSample on_bad_sample = OnBadSample::error);
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;
  /// Waits for reads in progress.
  ~BatchLoader();

  /// Fills `batch` with the samples that follow `consumed`, waiting for them if necessary. Returns the time, in
  /// seconds, for which the caller waited for the batch, without the time to wake the workers; with 0 workers, the time
  /// of reading. Throws ShapeError if the batch does not fit the share and the dataset; rethrows errors
  /// of the dataset or sampler. Must not be called by several threads at a time.
  double read(std::int64_t consumed, Batch& batch);
  /// The contents of the last read(). Valid until the next one.
  const Contents& contents() const { return contents_; }

  const Dataset& dataset() const { return dataset_; }
  const Sampler& order() const { return order_; }

 private:
  struct Slot {
    Slot(Batch memory, std::size_t samples) : batch(std::move(memory)), indices(samples) {}
    Batch batch;
    std::vector<std::int64_t> indices;  ///< indices of its samples in the dataset
    Contents contents;
    std::exception_ptr error;
    bool filled = false;  ///< filled, or failed with `error`
  };

  void finish();
  void work();
  void fill(std::int64_t consumed, std::span<const std::int64_t> indices, Batch& batch, Contents& contents) const;
  bool read_all(std::int64_t consumed, std::span<const std::int64_t> indices, Batch& batch, Contents& contents) const;
  bool read_or_note(std::int64_t index, Batch& batch, std::int64_t sample, Contents& contents) const;
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
  /// Held while a slot is claimed: the sampler is called by one thread at a time, in the order of samples.
  std::mutex turn_;
  std::mutex mutex_;  ///< guards the members below and Slot::filled
  std::condition_variable freed_, filled_;
  bool open_ = false, stop_ = false;      ///< open_: slots may be claimed
  std::int64_t first_ = 0;                ///< samples consumed before micro-batch number 0
  std::int64_t taken_ = 0, claimed_ = 0;  ///< micro-batches taken by read(), and claimed by workers
  std::int64_t reading_ = 0;              ///< claimed micro-batches that are not filled yet
  std::vector<std::thread> workers_;      ///< last member, so that the others exist when the threads start
};

}  // namespace tessera::data
