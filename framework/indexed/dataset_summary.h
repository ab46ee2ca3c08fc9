#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/indexed/indexed_dataset.h"

namespace tessera::indexed {

/// Statistics of a dataset from its index. Lengths are in tokens.
struct DatasetSummary {
  struct Bucket {
    std::int64_t from = 0, to = 0;  ///< smallest and largest length of the bucket, both included
    std::int64_t sequences = 0, tokens = 0;
  };
  std::int64_t documents = 0, empty_documents = 0;
  std::int64_t shortest_document = 0, longest_document = 0;
  std::int64_t shortest_sequence = 0, longest_sequence = 0;
  double mean_sequence = 0;
  /// Buckets by length: 0, 1, 2-3, 4-7, 8-15, ...; from the first to the last that is not empty.
  std::vector<Bucket> histogram;
};

/// Computes the statistics. Reads the whole index but no tokens.
DatasetSummary summarize(const IndexedDataset& data);

/// The result of reading all tokens.
struct TokenCheck {
  std::int64_t tokens = 0;
  std::int64_t least = 0, greatest = 0;  ///< smallest and largest id; 0 if there are no tokens
  std::int64_t outside = 0;              ///< ids below 0, above 2^31 - 1 or not in the vocabulary
  std::string first_outside;             ///< position and value of the first of these ids
  std::int64_t unused_bytes = 0;         ///< bytes of the .bin file that belong to no sequence
  std::int64_t out_of_order = 0;         ///< sequences that do not begin at the end of the preceding one
};

/// Reads and checks all tokens. `vocab_size`: ids must be below it; none: every id from 0 on is accepted. `progress` is
/// called with numbers of tokens.
TokenCheck check_tokens(const IndexedDataset& data, std::optional<std::int64_t> vocab_size,
                        const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace tessera::indexed
