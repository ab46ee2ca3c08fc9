#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/weight_source.h"
#include "framework/interop/mindspeed_mm/mm_options.h"
#include "framework/options/mappings.h"

namespace tessera::mindspeed_mm {

/// The class of MindSpeed-MM's mm-convert that converts a Qwen2-VL.
inline constexpr const char* converter_name = "Qwen2VLConverter";

/// The releases of MindSpeed-MM whose folders are known; the first is the default.
std::vector<std::string> releases(const options::Mappings& mappings);

/// Does what `mm-convert Qwen2VLConverter COMMAND` of MindSpeed-MM's release `release` does with the options in the
/// group `cfg` of `tree`, without constructing a model; one tensor at a time is in memory. Returns lines for people.
/// Throws ConfigError with all mistakes of the options; also if the output folder has content, if the model is no
/// Qwen2-VL, if the layout does not fit it, or if the checkpoint was saved with another layout; IoError.
///
/// It differs from the original where that loses tensors: the layers of a text model that starts after the first stage
/// (26.0.0), and the copy of a tied embedding in resplit. For every layout, converting to A and then resplitting to B
/// gives what converting to B gives. In mm_to_hf, mm_dir may also be a run folder or a checkpoint of Tessera; then the
/// layout only has to fit the model, and the weights get the type that config.json names.
std::vector<std::string> mm_convert(MmCommand command, const options::Value& tree, const std::string& release,
                                    const options::Mappings& mappings);

/// Writes weights under our names as a checkpoint folder of MindSpeed-MM, as mm_convert does; `model_config` is in
/// canonical form, with vision_config in it, as for hugging_face::write_hugging_face. `type`: of every tensor; nothing:
/// as in `weights`. Throws ConfigError, IoError.
void write_mindspeed_mm(const std::filesystem::path& out, const checkpoint::WeightSource& weights,
                        const options::Value& model_config, const MmLayout& layout, std::optional<DType> type,
                        const options::Mappings& mappings);

}  // namespace tessera::mindspeed_mm
