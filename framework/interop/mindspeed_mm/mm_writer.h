#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "framework/interop/mindspeed_mm/mm_layout.h"
#include "framework/interop/mindspeed_mm/mm_source.h"

namespace tessera::mindspeed_mm {

/// The file of a rank's folder.
inline constexpr const char* weights_file_name = "model_optim_rng.pt";

/// The folder of a rank: "mp_rank_01", or with several stages "mp_rank_01_002".
std::string rank_folder(const MmLayout& layout, std::int64_t rank, std::int64_t stage);
/// The key of a chunk in a rank's file: "model", or with several chunks "model1".
std::string chunk_key(std::size_t chunk, std::size_t chunks);
/// Where a tensor is; `layer` counts in the whole tower.
MmPlace place_of(const MmRow& row, std::int64_t layer, const MmLayout& layout);

/// What of a layout does not fit a model: ranks that cannot divide a tensor.
std::vector<std::string> indivisible(const MmSource& source, const MmLayout& layout);

/// Writes the files of every rank, release/mp_rank_*/model_optim_rng.pt, and latest_checkpointed_iteration.txt into the
/// existing folder `out`. Only one tensor at a time is in memory. In a tied model, the last of several stages gets a
/// copy of the embedding. `without_text`: leave out the text model. Throws ShapeError if ranks cannot divide a tensor;
/// IoError.
void write_mm_folder(const std::filesystem::path& out, const MmSource& source, const MmLayout& layout,
                     const MmTable& table, bool without_text);

}  // namespace tessera::mindspeed_mm
