#pragma once

#include "framework/checkpoint/format.h"

namespace tessera::megatron {

/// The checkpoint format of Megatron-LM's --ckpt-format torch_dist.
class MegatronDistFormat final : public checkpoint::CheckpointFormat {
 public:
  std::string name() const override { return "torch_dist"; }
  std::string program() const override { return "megatron"; }
  std::optional<std::filesystem::path> find(const std::filesystem::path& folder) const override;
  std::unique_ptr<checkpoint::OpenedCheckpoint> open(const std::filesystem::path& folder,
                                                     const options::Mappings& mappings) const override;
};

}  // namespace tessera::megatron
