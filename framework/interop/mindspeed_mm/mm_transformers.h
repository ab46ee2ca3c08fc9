#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/safetensors.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/weight_table.h"
#include "framework/interop/mindspeed_mm/mm_source.h"
#include "framework/options/mappings.h"

namespace tessera::mindspeed_mm {

/// The model_type of Transformers whose models MindSpeed-MM's checkpoints here have.
inline constexpr const char* family_name = "qwen2_vl";

/// A Qwen2-VL as the config.json of Hugging Face Transformers describes it, and which of its tensors each tensor of
/// MindSpeed-MM is made of.
class MmModel {
 public:
  /// `concatenated`: the tower's query, key and value projections are [all queries; all keys; all values] in
  /// MindSpeed-MM's files, too. Throws ConfigError if config.json describes another model.
  MmModel(const hugging_face::HuggingFaceConfig& config, const std::string& speaker, const options::Mappings& mappings,
          const MmTable& table, bool concatenated);
  /// The same of a file config.json.
  MmModel(const std::filesystem::path& config, const options::Mappings& mappings, const MmTable& table,
          bool concatenated);

  /// One for each tensor of MindSpeed-MM, under its name with layer numbers of the whole tower.
  const std::vector<hugging_face::WeightRow>& rows() const { return rows_; }
  const hugging_face::WeightTable& table() const { return table_; }
  bool is_tied() const { return tied_; }
  /// Shape of the embedding.
  const Shape& embedding() const { return embedding_; }
  /// What of a layout does not fit the model: sums of layers, and ranks that do not divide the heads.
  std::vector<options::Finding> mistakes(const MmLayout& layout, const std::vector<std::string>& names) const;

 private:
  hugging_face::WeightTable table_;
  std::vector<hugging_face::WeightRow> rows_;
  std::vector<std::int64_t> layers_;                ///< of each tower
  std::vector<hugging_face::WeightRow> attention_;  ///< the projections of each tower's first layer
  Shape embedding_;
  bool tied_ = false;
};

/// The weights of a folder of Transformers in MindSpeed-MM's layout.
class TransformersSource final : public MmSource {
 public:
  /// Throws ConfigError as HuggingFaceModel does.
  TransformersSource(const std::filesystem::path& folder, const options::Mappings& mappings, const MmModel& model,
                     const MmTable& table);

  const MmTensors& tensors() const override { return tensors_; }
  bool is_tied() const override { return model_.is_tied(); }
  void read(const MmTensor& tensor, std::span<std::byte> into) const override;

 private:
  std::vector<Shape> part_shapes(const hugging_face::WeightRow& row) const;

  hugging_face::HuggingFaceModel checked_;
  checkpoint::SafetensorsReader files_;
  const MmModel& model_;
  MmTensors tensors_;
  std::map<std::string, const hugging_face::WeightRow*> rows_;  ///< by the names of tensors_
};

/// Writes the tensors of `source` as a folder of Transformers into the existing folder `out`: to the files that
/// model.safetensors.index.json of `like` names, else to model.safetensors, and copies the other files of `like`. Only
/// one tensor at a time is in memory. Throws ConfigError if `source` has not the tensors that `like` describes.
void write_transformers(const std::filesystem::path& out, const MmSource& source, const MmModel& model,
                        const std::filesystem::path& like);

}  // namespace tessera::mindspeed_mm
