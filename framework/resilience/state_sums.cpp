#include "framework/resilience/state_sums.h"

#include <array>

#include "framework/base/crc32c.h"

namespace tessera::resilience {

StateSums::Sums StateSums::of(const optim::Block& block) {
  Sums sums;
  optim::add_sums(block, sums.weights, sums.state);
  return sums;
}

std::size_t StateSums::bytes(std::size_t pieces) { return sizeof(Header) + pieces * sizeof(Pair); }

StateSums::StateSums(std::span<std::byte> memory, std::size_t pieces) {
  must(memory.size() >= bytes(pieces), "the section of checksums is as long as it asks for");
  header_ = reinterpret_cast<Header*>(memory.data());
  pairs_ = {reinterpret_cast<Pair*>(memory.data() + sizeof(Header)), pieces};
}

StateSums::StateSums(Storage own, std::size_t pieces) : StateSums(own.bytes(), pieces) { own_ = std::move(own); }

StateSums::StateSums(std::size_t pieces) : StateSums(Storage(bytes(pieces)), pieces) {}

void StateSums::keep(std::size_t piece, const Sums& sums) {
  pairs_[piece].weights.store(sums.weights, std::memory_order_release);
  pairs_[piece].state.store(sums.state, std::memory_order_release);
}

Damage StateSums::compare(std::size_t piece, const Sums& found, bool read) const {
  const auto& kept = pairs_[piece];
  const bool weights = kept.weights.load(std::memory_order_relaxed) != found.weights;
  if (weights && read) return Damage::weights;
  return weights || kept.state.load(std::memory_order_relaxed) != found.state ? Damage::state : Damage::none;
}

std::uint32_t StateSums::stored_checksum() const {
  std::uint32_t all = 0;
  for (const auto& pair : pairs_) {
    const std::array both = {pair.weights.load(std::memory_order_acquire), pair.state.load(std::memory_order_acquire)};
    all = crc32c(std::as_bytes(std::span(both)), all);
  }
  return all;
}

void StateSums::note(Damage damage) {
  auto before = header_->noted.load();
  const auto now = static_cast<std::uint32_t>(damage);
  while (before < now && !header_->noted.compare_exchange_weak(before, now)) {
  }
}

}  // namespace tessera::resilience
