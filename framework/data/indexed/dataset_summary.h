#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/indexed/indexed_dataset.h"

namespace tessera::data {

/// What the index of a dataset says. Lengths are in tokens.
struct DatasetSummary {
  struct Bucket {
    std::int64_t from = 0, to = 0;  ///< lengths, both included
    std::int64_t sequences = 0, tokens = 0;
  };
  std::int64_t documents = 0, empty_documents = 0;
  std::int64_t shortest_document = 0, longest_document = 0;
  std::int64_t shortest_sequence = 0, longest_sequence = 0;
  double mean_sequence = 0;
  std::vector<Bucket> histogram;  ///< by length: 0, 1, 2-3, 4-7, 8-15, ...; from the first that occurs to the last
};

/// Reads the whole index and no token.
DatasetSummary summarize(const IndexedDataset& data);

/// What reading all tokens found.
struct TokenCheck {
  std::int64_t tokens = 0;
  std::int64_t least = 0, greatest = 0;  ///< ids; 0 if there is no token
  std::int64_t outside = 0;              ///< ids below 0, above 2^31 - 1 or not in the vocabulary
  std::string first_outside;             ///< place and value of the first of them
  std::int64_t unused_bytes = 0;         ///< bytes of the .bin file that belong to no sequence
  std::int64_t out_of_order = 0;         ///< sequences that do not begin where the one before ends
};

/// Reads all tokens. `vocab_size`: ids must be below it; none: any id from 0 is accepted. `progress` is told tokens.
TokenCheck check_tokens(const IndexedDataset& data, std::optional<std::int64_t> vocab_size,
                        const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace tessera::data
