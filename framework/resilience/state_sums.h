#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "framework/optim/optimizer.h"
#include "framework/tensor/arena.h"

namespace tessera::resilience {

/// What happened to state in memory between two updates.
enum class Damage : std::uint32_t {
  none,
  state,   ///< what only the optimizer reads was changed: no gradient is wrong
  weights  ///< a weight that the model reads was changed: gradients that were computed since may be wrong, on all ranks
};
/// The worse of two.
inline Damage worse(Damage a, Damage b) { return a < b ? b : a; }

/// Checksums of weights and optimizer state, piece by piece: the update writes one when it has completed a piece and
/// checks it before it changes the piece again, so that a bit that changed in between is found. They are in a section
/// of the state file, or in memory of this process.
class StateSums {
 public:
  /// Of the elements of one piece.
  struct Sums {
    std::uint64_t weights = 0, state = 0;
  };
  static Sums of(const optim::Block& block);
  /// Bytes of the section.
  static std::size_t bytes(std::size_t pieces);

  /// In `memory`: zeros, which are the sums of zeros, or what an earlier process left. The memory outlives this.
  StateSums(std::span<std::byte> memory, std::size_t pieces);
  /// In own memory.
  explicit StateSums(std::size_t pieces);

  /// From now on these are the right sums. Different pieces may be kept and checked by different threads.
  void keep(std::size_t piece, const Sums& sums);
  /// How a piece differs from its sums. `read`: the model reads these weights, not a rounded copy of them.
  Damage compare(std::size_t piece, const Sums& found, bool read) const;
  /// An update is about to change a piece with this damage. A later process learns of it too.
  void note(Damage damage);
  /// The worst damage that updates found since clear().
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
