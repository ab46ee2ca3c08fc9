#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/resilience/coverage.h"
#include "framework/resilience/state_file.h"
#include "framework/training/model_state.h"
#include "framework/training/run_position.h"

namespace tessera::training {

/// What another rank has to know of the shards of a layout to update a copy of them: the parameter of each, with the
/// shape of the shard. As text, a line for each.
std::string write_outline(const StateLayout& layout);
/// The parameters of a copy, one for each shard. Throws BugError for what is no outline.
std::vector<nn::Parameter> read_outline(const std::string& outline);
/// Bytes of the file with a copy of the shards of `layout`, in the memory of its holder. Exact.
std::size_t copy_file_bytes(const StateLayout& layout, const optim::Optimizer& optimizer);

/// The copies that this rank keeps of shards that no other host has, and the way of its own shards to the ranks that
/// keep theirs (resilience_config.policy replica). The holder of a copy gets the reduced gradients of its shard in
/// every step and makes the same update, so that the copy has the same bits at the same step.
///
/// Each copy is in a file of its own beside the state file of its holder, whose journal is valid for it as well: a file
/// that is ready is at the step of its holder.
class StateCopies {
 public:
  /// What a copy has in common with the run. `setup` outlives this.
  struct Run {
    const comm::Communicator& world;
    const OptimizationSetup& optimization;
    std::filesystem::path folder;
    std::uint64_t recipe = 0;  ///< checksum
    std::vector<resilience::SharedShard> shards;
    bool checks_updates = false;  ///< resilience_config.check_updates
  };
  /// Collective. `outlines`: of each part of this rank's state. `keeps`: this rank has found its own state; else copies
  /// that are found are worth nothing.
  StateCopies(Run run, const std::vector<std::string>& outlines, bool keeps);
  ~StateCopies();

  /// The copies of all ranks that earlier processes left. Collective.
  std::vector<resilience::ShardCopy> found() const;
  /// Deletes those of this rank.
  void discard();

  /// From now on `plan` are the copies of the run: those that are not there yet are made from the state of their
  /// owners, which have completed the same step as all others. Collective. Throws IoError with the number of bytes if a
  /// holder has no room; then no rank has any copy of `plan`.
  void arrange(const std::vector<resilience::ShardCopy>& plan, ModelState& state, kernels::Threads& threads);
  /// Makes all copies again from the state of their owners, which has changed otherwise than by an update. Collective.
  void refresh(ModelState& state, kernels::Threads& threads);

  /// A step: the gradients of the shards go to the holders, which wait for them. Collective.
  void send_gradients(ModelState& state);
  void begin_update();
  /// The update, or what is left of an interrupted one.
  void update(kernels::Threads& threads, const StepIntent& intent);

  /// The shards whose copies this rank holds.
  std::vector<std::size_t> held_shards() const;
  /// A copy that this rank holds.
  SharedState& copy_of(std::size_t shard);

 private:
  struct Copy;
  std::filesystem::path path_of(std::size_t shard) const;
  std::unique_ptr<Copy> open(std::size_t shard) const;
  Copy* held(std::size_t shard) const;

  Run run_;
  std::vector<std::string> outlines_;  ///< of each shard
  std::vector<std::unique_ptr<Copy>> copies_;
  std::vector<resilience::ShardCopy> plan_;
};

/// Sends or receives ranges of floats, which sender and receiver list alike.
void start_transfers(const comm::Communicator& world, std::vector<comm::Transfer>& transfers,
                     const std::vector<std::span<float>>& ranges, int from, int to, int tag, std::string_view who);

}  // namespace tessera::training
