#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/indexed/indexed_dataset.h"

namespace tessera::recipe {

/// Where saving a checkpoint waits for no disk.
inline std::string folder_in_memory() {
  return std::filesystem::is_directory("/dev/shm") ? "/dev/shm/" : testing::TempDir();
}

/// Writes PREFIX.bin and PREFIX.idx: 40 documents of some twenty tokens below 60, each ended by 63. Another `step`
/// gives other tokens. A run on them starts in a fraction of the time of one with mock data, whose index has millions
/// of samples.
inline void write_token_file(const std::string& prefix, std::int32_t step) {
  indexed::IndexedDatasetBuilder data(prefix, indexed::TokenType::uint16);
  std::int32_t token = 1;
  for (std::int32_t i = 0; i < 40; ++i) {
    std::vector<std::int32_t> document;
    for (std::int32_t k = 0; k < 9 + i % 23; ++k) document.push_back(token = (token * step + i) % 60);
    document.push_back(63);
    data.add_sequence(document);
    data.end_document();
  }
  data.finish();
}

}  // namespace tessera::recipe
