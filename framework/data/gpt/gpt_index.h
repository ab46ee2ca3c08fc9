#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "framework/data/gpt/index_array.h"
#include "framework/data/gpt/split.h"
#include "framework/data/indexed/token_source.h"

namespace tessera::data {

/// What decides which tokens a sample is made of.
struct GptIndexRequest {
  SequenceRange range;  ///< of the split
  std::int64_t seq_length = 0;
  std::optional<std::int64_t> samples;  ///< wanted; none: one epoch
  std::uint32_t seed = 1234;
  bool extra_token = true;  ///< each sample has one token more, the label of its last
  bool drop_last = true;    ///< leave out the last sample when it is not full
  /// Largest values of the narrow types; smaller ones are for tests of the wide types.
  std::int64_t most_narrow_start = std::numeric_limits<std::int32_t>::max();
  std::int64_t most_narrow_samples = std::int64_t{std::numeric_limits<std::uint32_t>::max()} - 2;
};

/// The sizes of an index, before it is built.
struct GptIndexPlan {
  std::int64_t epochs = 1;
  bool last_apart = false;               ///< the last epoch is shuffled by itself, as it is wanted in part only
  std::int64_t samples_before_last = 0;  ///< with last_apart: samples of the epochs before it
  std::int64_t documents = 0;            ///< sequences of all epochs
  std::int64_t samples = 0;
  IndexType start_type = IndexType::int32;     ///< int64 for more documents, or tokens of one, than int32 can count
  IndexType shuffle_type = IndexType::uint32;  ///< int64 for 2^32 - 2 samples or more
};

/// Where a sample begins: an entry of GptIndex::documents and a token of that sequence.
struct SampleStart {
  std::int64_t document, offset;
};

/// Megatron-LM's document, sample and shuffle index, value by value and type by type: sequences in a random order for
/// as many epochs as are needed, joined and cut every seq_length tokens, the samples in a random order. The last epoch
/// keeps its samples at the end when less than 80 % of them are wanted.
struct GptIndex {
  IndexArray documents;  ///< [documents] int32: sequence numbers
  IndexArray starts;     ///< [samples + 1, 2]: document and offset; a sample ends where the next begins
  IndexArray shuffle;    ///< [samples]: sample -> its row of `starts`

  std::int64_t samples() const { return shuffle.size(); }
  SampleStart start(std::int64_t row) const { return {starts[2 * row], starts[2 * row + 1]}; }
};

/// Bytes of an index of so many samples, without its documents.
constexpr std::int64_t index_bytes(std::int64_t samples) {
  return samples * static_cast<std::int64_t>(2 * sizeof(std::int32_t) + sizeof(std::uint32_t));
}

/// Looks at the length of every sequence of the range. Throws ConfigError if the range holds no token, if a length is
/// negative, if not one sample can be made although some are wanted, or if a number does not fit into its type.
GptIndexPlan plan_gpt_index(const TokenSource& source, const GptIndexRequest& request);

/// `threads` > 1: the sample index and the shuffle index are made at the same time.
GptIndex build_gpt_index(const TokenSource& source, const GptIndexRequest& request, const GptIndexPlan& plan,
                         int threads = 1);

}  // namespace tessera::data
