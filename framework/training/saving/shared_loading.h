#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/checkpoint/range_stream.h"
#include "framework/comm/communicator.h"
#include "framework/tensor/box.h"

namespace tessera::training {

/// Memory for the messages that a rank sends at a time in load_shared(), in bytes. What it receives at a time is about
/// as much altogether, and at most a sixteenth of it from each rank.
inline constexpr std::size_t loading_bytes = std::size_t{32} << 20;

/// What one rank does in load_shared().
struct LoadingPlan {
  /// A box that a rank wants: `index` in its list.
  struct Want {
    int rank;
    std::int64_t index;
    Box box;
  };
  checkpoint::Checkpoint::Share share;                             ///< it reads
  std::unordered_map<std::int64_t, std::vector<Want>> wants = {};  ///< of all ranks, of the tensors in it, by id_of()

  std::uint64_t bytes() const;  ///< of the stored ranges that it reads
};
/// The plan of rank `rank`. `lists`: what each rank wants, as list_of_wanted() (box_message.h). `here`: if the
/// checkpoint is divided over hosts, Checkpoint::parts_here() of each rank. Throws DamageError.
LoadingPlan plan_loading(const checkpoint::Checkpoint& from, const std::vector<std::string>& lists, std::size_t rank,
                         const std::vector<std::vector<bool>>& here = {});

/// Fills the boxes `wanted` of each rank from a checkpoint that all ranks have opened. Together the ranks read each
/// stored range of the tensors that some rank wants once: each reads its Checkpoint::share(), with `check_crc` verifies
/// the checksums, and sends the others what they want of it. So a rank reads about as many bytes as any other, whatever
/// the layouts are, and tensors that nobody wants are not read. The checkpoint has the wanted tensors in their shapes,
/// which the caller has checked; elements are converted.
///
/// Returns the same on all ranks: empty, or what is damaged, with the file and the tensor. Then the elements are
/// undefined. Throws other errors as comm::together does. Collective. `bytes` is the memory for messages.
std::string load_shared(const comm::Communicator& world, const checkpoint::Checkpoint& from,
                        std::span<const checkpoint::TensorRange> wanted, bool check_crc,
                        std::size_t bytes = loading_bytes);

/// The same for a checkpoint of any format: of another program's, each rank reads what it wants.
std::string load_together(const comm::Communicator& world, const checkpoint::OpenedCheckpoint& from,
                          std::span<const checkpoint::TensorRange> wanted, bool check_crc);

/// Reads from a checkpoint of another program of which only reading tells whether it is what its index says: throws
/// DamageError where `read` throws ConfigError or IoError.
void naming_damage(const std::function<void()>& read);

/// Fills those of `ranges` whose vocabulary has another padding in `source` than here, on this rank alone. Returns all
/// others. `tokens` as for checkpoint::differs_in_padding; `notes` get what was done.
std::vector<checkpoint::TensorRange> read_other_paddings(const checkpoint::WeightSource& source,
                                                         const std::vector<checkpoint::TensorRange>& ranges,
                                                         std::int64_t tokens, std::vector<std::string>& notes);

/// Calls `work` on every rank; returns the same on all ranks: empty, or the message of the DamageError that it threw on
/// the lowest rank. Throws other errors as comm::together does. Collective.
std::string damage_found(const comm::Communicator& world, const std::function<void()>& work);

}  // namespace tessera::training
