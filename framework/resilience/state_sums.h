#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "framework/optim/optimizer.h"
#include "framework/tensor/arena.h"

namespace tessera::resilience {

/// Which unintended change was found in state in memory between two updates.
enum class Damage : std::uint32_t {
  none,
  state,   ///< values that only the optimizer reads have changed: all gradients are correct
  weights  ///< weights that the model reads have changed: gradients computed since may be wrong, on all ranks
};
/// The more serious of two kinds of damage.
inline Damage worse(Damage a, Damage b) { return a < b ? b : a; }

/// Checksums of weights and optimizer state, one pair for each piece. The update stores them when it has completed a
/// piece and checks them before it changes the piece again, so a bit that flipped in between is found. They are in a
/// section of the state file or in memory of this process.
class StateSums {
 public:
  /// Checksums of the elements of one piece.
  struct Sums {
    std::uint64_t weights = 0, state = 0;
  };
  static Sums of(const optim::Block& block);
  /// Size of the section in bytes.
  static std::size_t bytes(std::size_t pieces);

  /// Uses `memory`, which contains zeros (the checksums of zeros) or what an earlier process left. The memory must
  /// outlive this object. Throws BugError if it is too short.
  StateSums(std::span<std::byte> memory, std::size_t pieces);
  /// Uses memory that this object owns, filled with zeros.
  explicit StateSums(std::size_t pieces);

  /// Stores the checksums of a piece. Different threads may store and compare different pieces.
  void keep(std::size_t piece, const Sums& sums);
  /// Compares a piece, whose checksums now are `found`, with the stored ones. `read`: the model reads these weights,
  /// not a rounded copy of them.
  Damage compare(std::size_t piece, const Sums& found, bool read) const;
  /// CRC-32C of all stored checksums. Equal state, in the same pieces, has equal ones.
  std::uint32_t stored_checksum() const;
  /// Records that an update is about to change a piece with this damage. A later process that takes over the section
  /// sees it, too. Thread-safe.
  void note(Damage damage);
  /// The most serious damage recorded since clear().
  Damage noted() const { return static_cast<Damage>(header_->noted.load(std::memory_order_acquire)); }
  void clear() { header_->noted.store(0, std::memory_order_release); }

 private:
  struct alignas(64) Header {
    std::atomic<std::uint32_t> noted;
  };
  struct Pair {
    std::atomic<std::uint64_t> weights, state;
  };

  StateSums(Storage own, std::size_t pieces);

  Storage own_;
  Header* header_;
  std::span<Pair> pairs_;
};

}  // namespace tessera::resilience
