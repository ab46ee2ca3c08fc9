#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/options/mappings.h"

namespace tessera::hugging_face {

/// The implementation of CheckpointFormat::quantised. The folder is `<how.cache>/<name of folder>-nf4`, as Transformers
/// and bitsandbytes write and read it: each tensor of the files is quantised whole, in the type that it has there, so
/// the values do not depend on a layout; weights that the files have transposed are quantised as [out, in]. Other
/// tensors are copied. `quantised_from.txt` identifies the source by names, sizes and times of its files; if the source
/// or `how` is another one now, the folder is written again. It appears whole or not at all. Memory: one file of it,
/// about 256 MiB, and one tensor. A folder that has these weights in NF4 already is returned itself.
std::filesystem::path quantised_folder(const std::filesystem::path& folder, const checkpoint::Quantisation& how,
                                       const options::Mappings& mappings, std::vector<std::string>& notes);

}  // namespace tessera::hugging_face
