#pragma once

#include "framework/checkpoint/format.h"

namespace tessera::megatron {

/// Minor version of Megatron-LM core that first reads optimizer state of the distributed optimizer that is not
/// flattened (fully_reshardable).
inline constexpr int first_version_with_reshardable_state = 15;

/// Megatron-LM's --ckpt-format torch_dist. MegatronDistCheckpoint reads it.
///
/// Each rank writes the elements that it owns to a file of its own
/// (dcp_writer.h); rank 0 then writes common.pt, what is not sharded, the index .metadata, and last metadata.json. All
/// of it is in a folder named <iteration>_tmp, which then gets its name: a folder with the name of a checkpoint is a
/// whole one.
///
/// Optimizer state is stored as the weights are, or flattened with use_distributed_optimizer, which Megatron-LM before
/// core_v0.15 expects then; for later versions as the weights are, with "param" for master weights
/// (fully_reshardable).
class MegatronDistFormat final : public checkpoint::CheckpointFormat {
 public:
  std::string name() const override { return "torch_dist"; }
  std::string program() const override { return "megatron"; }
  std::optional<std::filesystem::path> find(const std::filesystem::path& folder) const override;
  std::vector<checkpoint::FoundCheckpoint> list(const std::filesystem::path& folder) const override;
  std::unique_ptr<checkpoint::OpenedCheckpoint> open(const std::filesystem::path& folder,
                                                     const options::Mappings& mappings) const override;

  bool saves() const override { return true; }
  bool saves_owned() const override { return true; }
  std::vector<options::Finding> refusals(const checkpoint::SavedRun& run) const override;
  void begin(const checkpoint::ForeignSave& save) const override;
  void write_owned(const checkpoint::ForeignSave& save, const checkpoint::RankWeights& rank, std::int64_t writer,
                   const checkpoint::StateSnapshot& owned) const override;
  std::filesystem::path finish(const checkpoint::ForeignSave& save) const override;
  void abandon(const checkpoint::ForeignSave& save) const noexcept override;
};

}  // namespace tessera::megatron
