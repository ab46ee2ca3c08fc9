#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "framework/data/split.h"
#include "framework/data/token_source.h"

namespace tessera {

/// What decides which tokens a sample is made of.
struct GptIndexRequest {
  SequenceRange range;  ///< of the split
  std::int64_t seq_length = 0;
  std::optional<std::int64_t> samples;  ///< wanted; none: one epoch
  std::uint32_t seed = 1234;
  bool extra_token = true;  ///< each sample has one token more, the label of its last
  bool drop_last = true;    ///< leave out the last sample when it is not full
};

/// Where a sample begins: a place in GptIndex::documents and a token of that sequence.
struct SampleStart {
  std::int32_t document, offset;
};

/// Megatron-LM's document, sample and shuffle index, value by value: sequences in a random order for as many epochs as
/// are needed, joined and cut every seq_length tokens, the samples in a random order. The last epoch keeps its samples
/// at the end when it is wanted for less than 80 % of them.
struct GptIndex {
  std::vector<std::int32_t> documents;  ///< sequence numbers
  std::vector<SampleStart> starts;      ///< one more than samples: a sample ends where the next begins
  std::vector<std::uint32_t> shuffle;   ///< sample -> its place in `starts`
  std::int64_t epochs = 0;
};

/// Bytes of an index of so many samples, without its documents.
constexpr std::int64_t index_bytes(std::int64_t samples) {
  return samples * static_cast<std::int64_t>(sizeof(SampleStart) + sizeof(std::uint32_t));
}

/// Throws ConfigError when the range holds no token or less than one sample could be made of it.
GptIndex build_gpt_index(const TokenSource& source, const GptIndexRequest& request);

}  // namespace tessera
