#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/resilience/coverage.h"
#include "framework/resilience/state_file.h"
#include "framework/training/state/model_state.h"
#include "framework/training/step/run_position.h"

namespace tessera::training {

/// Describes the shards of a layout so that another rank can update a copy of them: the parameter of each shard with
/// the shape of the shard. A text with one line per shard.
std::string write_outline(const StateLayout& layout);
/// Reads the parameters of a copy, one for each shard. Throws BugError for a malformed text.
std::vector<nn::Parameter> read_outline(const std::string& outline);
/// Size in bytes of the file with a copy of the shards of `layout`, in memory of the holder. Exact.
std::size_t copy_file_bytes(const StateLayout& layout, const optim::Optimizer& optimizer);

/// The copies that this rank keeps of shards that exist on one other host only, and the transfer of its own shards to
/// the ranks that keep copies of them (resilience_config.policy replica). In every step the holder of a copy receives
/// the reduced gradients of the shard and performs the same update, so the copy is bitwise equal to the shard.
///
/// Each copy is in a file of its own beside the state file of its holder, and the holder's journal also applies to it:
/// a file that is ready is at the step of its holder.
class StateCopies {
 public:
  /// What the copies need to know about the run. The references must outlive the StateCopies object.
  struct Run {
    const comm::Communicator& world;
    const OptimizationSetup& optimization;
    std::filesystem::path folder;
    std::uint64_t recipe = 0;  ///< checksum of the resolved recipe
    std::vector<resilience::SharedShard> shards;
    bool checks_updates = false;  ///< resilience_config.check_updates
  };
  /// Collective. `outlines`: one for each part of this rank's state (write_outline). `keeps`: this rank has found its
  /// own state; if not, copies that are found are invalid.
  StateCopies(Run run, const std::vector<std::string>& outlines, bool keeps);
  ~StateCopies();

  /// The copies that earlier processes of all ranks have left. Collective.
  std::vector<resilience::ShardCopy> found() const;
  /// Deletes the copies of this rank.
  void discard();

  /// Makes `plan` the copies of the run: missing copies are made from the state of their owners, which have completed
  /// the same step as all other ranks. Collective. Throws IoError, with the number of bytes needed, if a holder has no
  /// room; then no rank has a copy of `plan`.
  void arrange(const std::vector<resilience::ShardCopy>& plan, ModelState& state, kernels::Threads& threads);
  /// Makes all copies again from the state of their owners, after it was changed by anything else than an update.
  /// Collective.
  void refresh(ModelState& state, kernels::Threads& threads);

  /// Sends the gradients of the shards to the holders of copies, in every step; returns when they have arrived.
  /// Collective.
  void send_gradients(ModelState& state);
  void begin_update();
  /// Updates the copies that this rank holds, or completes an interrupted update of them.
  void update(kernels::Threads& threads, const StepIntent& intent);

  /// Indices of the shards of which this rank holds a copy.
  std::vector<std::size_t> held_shards() const;
  /// The copy of `shard`. Throws BugError if this rank holds none.
  SharedState& copy_of(std::size_t shard);

 private:
  struct Copy;
  std::filesystem::path path_of(std::size_t shard) const;
  std::unique_ptr<Copy> open(std::size_t shard) const;
  Copy* held(std::size_t shard) const;
  /// Sends ranges of shards from their owners to the ranks that hold copies; waits until all have arrived.
  void send(ModelState& state, std::vector<std::span<float>> (SharedState::*elements)(), const char* what);

  Run run_;
  std::vector<std::string> outlines_;  ///< one for each shard
  std::vector<std::unique_ptr<Copy>> copies_;
  std::vector<resilience::ShardCopy> plan_;
};

/// Starts messages that send the `ranges` of rank `from` to rank `to`, which lists ranges of the same sizes; on other
/// ranks nothing. Appends them to `transfers`.
void start_transfers(const comm::Communicator& world, std::vector<comm::Transfer>& transfers,
                     const std::vector<std::span<float>>& ranges, int from, int to, int tag, std::string_view who);

}  // namespace tessera::training
