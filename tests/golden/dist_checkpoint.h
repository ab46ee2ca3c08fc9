#pragma once

#include <filesystem>

#include "tests/golden/run_ranks.h"

namespace tessera::golden {

/// Whether `folder` (iter_0000010) was saved with --ckpt-format torch_dist.
bool is_dist_checkpoint(const std::filesystem::path& folder);

/// Its weights by our names, fp32 masters where there are, and what it has of the optimizer's state as
/// "optimizer.<slot>.<weight>"; whole, however many ranks saved it. The file .metadata tells boxes of whole tensors and
/// where each lies in the *.distcp files, as torch.save wrote it; layers alike are one tensor with the layers as first
/// dim. State that is kept flat is left out. `scratch` is for files. Throws ConfigError.
RecordedTensors read_dist_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& scratch);

}  // namespace tessera::golden
