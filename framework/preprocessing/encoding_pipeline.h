#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/preprocessing/chunk_encoder.h"

namespace tessera::preprocessing {

/// Reads and encodes chunks and returns them in order: one thread reads, `workers` threads encode, the caller writes.
/// The number of chunks, and of bytes, in progress is bounded. Not thread-safe.
class EncodingPipeline {
 public:
  EncodingPipeline(ChunkReader& reader, const tokenizers::Tokenizer& tokenizer, const EncodingOptions& options,
                   int workers);
  EncodingPipeline(const EncodingPipeline&) = delete;
  EncodingPipeline& operator=(const EncodingPipeline&) = delete;
  /// Stops the threads, also if chunks remain.
  ~EncodingPipeline();

  struct Item {
    TextChunk chunk;
    EncodedChunk encoded;
  };
  /// The next chunk; null at the end. Valid until the next call. Rethrows an error of the reader, after the chunks
  /// before it.
  const Item* next();

 private:
  enum class Stage { free, read, encoding, encoded };
  struct Slot {
    Stage stage = Stage::free;
    Item item;
    std::exception_ptr failed;
  };
  Slot& slot(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }
  void stop();
  void read_all(ChunkReader& reader);
  void encode_all(ChunkEncoder& encoder);

  const ChunkReader& reader_;
  std::mutex mutex_;
  std::condition_variable can_read_, can_encode_, can_write_;
  std::vector<Slot> slots_;                          // chunk number n is in slot n % size
  std::int64_t read_ = 0, taken_ = 0, written_ = 0;  // index of the next chunk to read, encode, write
  std::size_t bytes_under_way_ = 0;
  bool handed_out_ = false;  // the chunk `written_`, which the caller has
  bool ended_ = false, stopped_ = false;
  std::exception_ptr read_failed_;
  std::vector<std::unique_ptr<ChunkEncoder>> encoders_;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::preprocessing
