#include "framework/preprocessing/encoding_pipeline.h"

#include <algorithm>

#include "framework/base/memory_limit.h"
#include "framework/base/start_threads.h"

namespace tessera::preprocessing {
namespace {

constexpr std::size_t most_bytes_under_way = std::size_t{32} << 20U;
constexpr std::size_t bytes_worth_freeing = std::size_t{4} << 20U;  // what one very long line has left behind

void free_if_large(EncodingPipeline::Item& item) {
  if (item.chunk.bytes.capacity() < bytes_worth_freeing) return;
  item.chunk.bytes = {};
  item.encoded = {};
}

}  // namespace

EncodingPipeline::EncodingPipeline(ChunkReader& reader, const tokenizers::Tokenizer& tokenizer,
                                   const EncodingOptions& options, int workers)
    : reader_(reader), slots_(2 * static_cast<std::size_t>(std::max(1, workers)) + 2) {
  for (int w = 0; w < std::max(1, workers); ++w)
    encoders_.push_back(std::make_unique<ChunkEncoder>(tokenizer, options));
  // The reader comes last: what waits for the next bytes of a pipe cannot be stopped.
  const auto work = [this, &reader](std::size_t i) {
    i < encoders_.size() ? encode_all(*encoders_[i]) : read_all(reader);
  };
  start_threads(threads_, encoders_.size() + 1, "reading and encoding", "--workers", work, [this] { stop(); });
}

EncodingPipeline::~EncodingPipeline() {
  stop();
  for (auto& thread : threads_) thread.join();
}

void EncodingPipeline::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  can_read_.notify_all();
  can_encode_.notify_all();
}

void EncodingPipeline::read_all(ChunkReader& reader) {
  for (;;) {
    Slot* to = nullptr;
    {
      std::unique_lock lock(mutex_);
      can_read_.wait(lock, [&] {
        return stopped_ ||
               (slot(read_).stage == Stage::free && (bytes_under_way_ < most_bytes_under_way || read_ == written_));
      });
      if (stopped_) return;
      to = &slot(read_);
    }
    bool more = false;
    std::exception_ptr failed;
    try {
      more = reader.next(to->item.chunk);
    } catch (...) {
      failed = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (!more) {
      ended_ = true;
      read_failed_ = failed;
      can_encode_.notify_all();
      can_write_.notify_all();
      return;
    }
    bytes_under_way_ += to->item.chunk.bytes.size();
    to->stage = Stage::read;
    ++read_;
    can_encode_.notify_one();
  }
}

void EncodingPipeline::encode_all(ChunkEncoder& encoder) {
  for (;;) {
    Slot* at = nullptr;
    {
      std::unique_lock lock(mutex_);
      can_encode_.wait(lock, [&] { return stopped_ || taken_ < read_ || ended_; });
      if (stopped_ || taken_ == read_) return;
      at = &slot(taken_++);
      at->stage = Stage::encoding;
    }
    try {
      encoder.encode(at->item.chunk, at->item.encoded);
    } catch (...) {
      at->failed = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    at->stage = Stage::encoded;
    can_write_.notify_one();
  }
}

const EncodingPipeline::Item* EncodingPipeline::next() {
  std::unique_lock lock(mutex_);
  if (handed_out_) {
    auto& done = slot(written_);
    bytes_under_way_ -= done.item.chunk.bytes.size();
    free_if_large(done.item);
    done.stage = Stage::free;
    ++written_;
    handed_out_ = false;
    can_read_.notify_one();
  }
  can_write_.wait(lock, [&] {
    return (written_ < read_ && slot(written_).stage == Stage::encoded) || (ended_ && written_ == read_);
  });
  if (written_ == read_) {
    if (read_failed_) std::rethrow_exception(read_failed_);
    return nullptr;
  }
  auto& ready = slot(written_);
  if (ready.failed)
    within_memory(
        text("encoding ", ready.item.chunk.bytes.size(), " bytes of ", reader_.shown_name(ready.item.chunk.input)),
        [&] { std::rethrow_exception(ready.failed); });
  handed_out_ = true;
  return &ready.item;
}

}  // namespace tessera::preprocessing
