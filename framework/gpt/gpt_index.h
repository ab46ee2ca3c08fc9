#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "framework/gpt/index_array.h"
#include "framework/gpt/split.h"
#include "framework/indexed/token_source.h"

namespace tessera::gpt {

/// The parameters that determine the tokens of each sample.
struct GptIndexRequest {
  SequenceRange range;  ///< sequences of the split
  std::int64_t seq_length = 0;
  std::optional<std::int64_t> samples;  ///< number of samples; none: one epoch
  std::uint32_t seed = 1234;
  bool extra_token = true;  ///< each sample has one additional token, the label of its last position
  bool drop_last = true;    ///< drop the last sample if it is incomplete
  /// Largest values stored in the narrow integer types; tests set smaller values to reach the wide types.
  std::int64_t most_narrow_start = std::numeric_limits<std::int32_t>::max();
  std::int64_t most_narrow_samples = std::int64_t{std::numeric_limits<std::uint32_t>::max()} - 2;
};

/// The sizes of an index, before it is built.
struct GptIndexPlan {
  std::int64_t epochs = 1;
  bool last_apart = false;               ///< the last epoch is shuffled separately, because only a part of it is used
  std::int64_t samples_before_last = 0;  ///< if last_apart: samples of all epochs before the last
  std::int64_t documents = 0;            ///< number of sequences in all epochs together
  std::int64_t samples = 0;
  IndexType start_type = IndexType::int32;     ///< int64 if a document number or token offset exceeds int32
  IndexType shuffle_type = IndexType::uint32;  ///< int64 for at least 2^32 - 2 samples
};

/// Start of a sample: an index into GptIndex::documents and a token offset in that sequence.
struct SampleStart {
  std::int64_t document, offset;
};

/// Megatron-LM's document, sample and shuffle index, with equal values and types: the sequences in random order,
/// repeated for the required number of epochs, concatenated and cut every seq_length tokens; the samples in random
/// order. The samples of the last epoch stay at the end if less than 80 % of them are used.
struct GptIndex {
  IndexArray documents;  ///< [documents] int32: sequence numbers
  IndexArray starts;     ///< [samples + 1, 2]: document and offset; a sample ends at the start of the next
  IndexArray shuffle;    ///< [samples]: index of the sample -> its row in `starts`

  std::int64_t samples() const { return shuffle.size(); }
  SampleStart start(std::int64_t row) const { return {starts[2 * row], starts[2 * row + 1]}; }
};

/// Size of an index of `samples` samples without its documents array, in bytes.
constexpr std::int64_t index_bytes(std::int64_t samples) {
  return samples * static_cast<std::int64_t>(2 * sizeof(std::int32_t) + sizeof(std::uint32_t));
}

/// Computes the sizes of an index from the length of every sequence of the range. Throws ConfigError if the range has
/// no tokens, a length is negative, samples are requested but not one can be made, or a number does not fit into its
/// type.
GptIndexPlan plan_gpt_index(const indexed::TokenSource& source, const GptIndexRequest& request);

/// Builds the index that `plan` describes. `threads` > 1: builds the sample index and the shuffle index concurrently.
GptIndex build_gpt_index(const indexed::TokenSource& source, const GptIndexRequest& request, const GptIndexPlan& plan,
                         int threads = 1);

/// Checks every entry of an index that was read from files: returns what differs from the index that build_gpt_index
/// builds, up to the order of documents and samples; "" if nothing does. The arrays must have the types and shapes of
/// `plan`. Takes about as long as building the index without shuffling.
std::string wrong_gpt_index(const IndexArray& documents, const IndexArray& starts, const IndexArray& shuffle,
                            const indexed::TokenSource& source, const GptIndexRequest& request,
                            const GptIndexPlan& plan);

/// Checksum (CRC-32C) of the lengths of the sequences of `range`, as int32. An index depends on nothing else of a
/// source.
std::uint32_t lengths_sum(const indexed::TokenSource& source, const SequenceRange& range);

}  // namespace tessera::gpt
