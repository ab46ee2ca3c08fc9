#pragma once

#include <vector>

#include "framework/indexed/token_source.h"

namespace tessera::gpt {

/// The synthetic tokens of Megatron-LM's MockGPTDataset: 100000 sequences of 1 to 4095 tokens that count 1, 2, 3, ...
/// and end with `eod`. Each token follows from the preceding one, so a model learns them within some steps. If the
/// vocabulary has fewer than 4096 entries, counting restarts at 1 after its last entry. With fewer `documents` it has
/// the first ones of these sequences.
class MockSource final : public indexed::TokenSource {
 public:
  static constexpr std::int64_t documents_of_megatron = 100000;
  MockSource(std::int64_t vocab_size, std::int32_t eod, std::int64_t documents = documents_of_megatron);
  std::int64_t sequences() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t length(std::int64_t sequence) const override { return lengths_[static_cast<std::size_t>(sequence)]; }
  const std::byte* lengths() const override { return reinterpret_cast<const std::byte*>(lengths_.data()); }
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const override;
  std::string place(std::int64_t sequence, std::int64_t offset) const override;

 private:
  std::int64_t vocab_size_;
  std::int32_t eod_;
  std::vector<std::int32_t> lengths_;
};

}  // namespace tessera::gpt
