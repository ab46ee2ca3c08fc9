#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "framework/interop/megatron/megatron.h"
#include "framework/model/architecture.h"
#include "framework/nn/weight_parts.h"

namespace tessera {

/// Calls `visit(index, stage, rank, model)` for the model of each chunk of each rank of the layout, where `index`
/// counts the ranks stage by stage.
template <class Visit>
void for_every_chunk(const options::Value& recipe, const checkpoint::CheckpointLayout& layout, const Visit& visit) {
  options::Report report;
  options::Group group(recipe, "model_config", report);
  const auto choice = model::models().read(group);
  const auto size = options::read_own<model::ModelSizeOptions>(group);
  options::Group experts(recipe, "moe_config", report);
  const auto moe = options::read_own<model::MoeOptions>(experts);
  report.must_be_good();
  const auto architecture = choice.make({size.seq_length, moe});
  const auto stages = layout.stages(), ranks = layout.ranks();
  const auto chunks = layout.layers.empty() ? std::size_t{1} : layout.layers[0].size();
  std::int64_t first = 0;
  for (std::size_t c = 0; c < chunks; ++c)
    for (std::int64_t stage = 0; stage < stages; ++stage) {
      std::optional<parallel::ModelChunk> chunk;
      if (!layout.layers.empty()) {
        chunk = {.embedding = stage == 0 && c == 0,
                 .first_layer = first,
                 .layers = layout.layers[static_cast<std::size_t>(stage)][c],
                 .loss = stage + 1 == stages && c + 1 == chunks};
        first += chunk->layers;
      }
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        auto parts = megatron::megatron_model_parts(layout, rank);
        parts.vocabulary = size.vocab_size.value_or(0);
        parts.chunk = chunk;
        visit(static_cast<std::size_t>(stage * ranks + rank), stage, rank, *architecture->build(parts));
      }
    }
}

/// What each rank of the layout has of the model that `recipe` describes, stage by stage.
inline std::vector<checkpoint::RankWeights> ranks_of(const options::Value& recipe,
                                                     const checkpoint::CheckpointLayout& layout) {
  std::vector<checkpoint::RankWeights> all(static_cast<std::size_t>(layout.stages() * layout.ranks()));
  for_every_chunk(recipe, layout, [&](std::size_t index, std::int64_t stage, std::int64_t rank, model::Model& model) {
    all[index].rank = rank, all[index].stage = stage;
    all[index].chunks.push_back(nn::held_parts(model.parameters()));
  });
  return all;
}

/// What each of these ranks saves, so that each element is saved once.
inline std::vector<std::vector<WeightPart>> owned_by_ranks(const options::Value& recipe,
                                                           const checkpoint::CheckpointLayout& layout) {
  std::vector<std::vector<WeightPart>> all(static_cast<std::size_t>(layout.stages() * layout.ranks()));
  for_every_chunk(recipe, layout, [&](std::size_t index, std::int64_t, std::int64_t rank, model::Model& model) {
    auto saved = model.parameters();
    std::erase_if(saved, [&](const auto* parameter) {
      return rank >=
             (parameter->role == ParameterRole::expert ? layout.sharers_of_expert() * layout.expert : layout.tensor);
    });
    for (auto& part : nn::owned_parts(saved)) all[index].push_back(std::move(part));
  });
  return all;
}

/// What a test saves for Megatron-LM as <root>/iter_<progress.iteration>.
inline checkpoint::ForeignSave megatron_save(const std::filesystem::path& root, const checkpoint::Progress& progress,
                                             const options::Value& recipe, DType type,
                                             const options::Mappings& mappings,
                                             const checkpoint::CheckpointLayout& layout = {}) {
  checkpoint::ForeignSave save{.root = root,
                               .iteration = progress.iteration,
                               .progress = progress,
                               .recipe = recipe,
                               .type = type,
                               .layout = layout,
                               .mappings = mappings};
  save.layout.vocabulary = std::stoll(recipe.at("model_config.vocab_size")->scalar);
  return save;
}

/// `tensors` cover every tensor. Returns the folder of the iteration.
inline std::filesystem::path save_megatron(const std::filesystem::path& root, const checkpoint::Progress& progress,
                                           std::span<const checkpoint::TensorRange> tensors,
                                           const options::Value& recipe, DType type, const options::Mappings& mappings,
                                           const checkpoint::CheckpointLayout& layout = {}) {
  return checkpoint::save_all_ranks(megatron::MegatronFormat(),
                                    megatron_save(root, progress, recipe, type, mappings, layout),
                                    ranks_of(recipe, layout), tensors);
}

}  // namespace tessera
