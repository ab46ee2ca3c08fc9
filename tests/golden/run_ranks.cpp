#include "tests/golden/run_ranks.h"

#include <algorithm>

#include "framework/base/files.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/model/gpt_options.h"
#include "framework/recipe/build.h"
#include "framework/recipe/saved_layout.h"
#include "tests/golden/data_cases.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;

std::int64_t number(const RunFlags& flags, const char* flag) {
  return flags.has(flag) ? std::stoll(flags.value(flag)) : 1;
}

/// The first layer of each chunk, [stage][chunk]: they are numbered through chunk 0 of all stages, then chunk 1, ...
std::vector<std::vector<std::int64_t>> first_layers(const checkpoint::CheckpointLayout& layout) {
  auto first = layout.layers;
  std::int64_t next = 0;
  for (std::size_t chunk = 0; !layout.layers.empty() && chunk < layout.layers[0].size(); ++chunk)
    for (std::size_t stage = 0; stage < layout.layers.size(); ++stage) {
      first[stage][chunk] = next;
      next += layout.layers[stage][chunk];
    }
  return first;
}

/// "model1.decoder..." -> 1, and the prefix goes away; 0 without one.
std::size_t take_chunk(std::string& name) {
  const std::string prefix = "model";
  const auto dot = name.find('.');
  if (name.rfind(prefix, 0) != 0 || dot == std::string::npos || dot == prefix.size()) return 0;
  const auto digits = name.substr(prefix.size(), dot - prefix.size());
  if (!std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) return 0;
  name.erase(0, dot + 1);
  return std::stoull(digits);
}

/// Puts the parts of ranks into whole tensors.
class Assembly {
 public:
  explicit Assembly(const recipe::Recipe& recipe)
      : table_(options::Mappings().table("weights/megatron.yaml")),
        rows_(recipe::vocabulary(recipe, recipe.tokenizer.make().get())),
        layout_(recipe::saved_layout(recipe, rows_)),
        ranks_(recipe::rank_weights(recipe, rows_)),
        first_layers_(first_layers(layout_)),
        experts_(recipe.experts() / layout_.expert) {
    const auto* gpt = recipe.model.options<model::GptOptions>();
    tied_ = gpt != nullptr && !gpt->untie_embeddings_and_output_weights;
  }

  const checkpoint::CheckpointLayout& layout() const { return layout_; }

  /// `in_stage`: below layout().ranks().
  void add(const checkpoint::SafetensorsReader& file, std::int64_t in_stage, std::int64_t stage) {
    const auto& rank = ranks_.at(static_cast<std::size_t>(stage * layout_.ranks() + in_stage));
    for (const auto& theirs : file.names()) {
      auto name = theirs;
      const auto chunk = take_chunk(name);
      name = megatron::our_name_of_megatron(name, table_);
      if (name.empty() || (tied_ && name == "output_layer.weight")) continue;
      const auto& firsts = first_layers_.at(static_cast<std::size_t>(stage));
      if (chunk >= firsts.size()) throw ConfigError(text(theirs, ": the stage has ", firsts.size(), " chunks"));
      name = megatron::megatron_shifted_expert(name, experts_ * layout_.expert_rank(in_stage));
      add(megatron::megatron_shifted(name, firsts[chunk]), file.tensor(theirs), rank.chunks.at(chunk));
    }
  }

  RecordedTensors tensors;

 private:
  void add(const std::string& name, const Tensor& own, const std::vector<WeightPart>& chunk) {
    const auto found = std::find_if(chunk.begin(), chunk.end(), [&](const auto& part) { return part.name == name; });
    WeightPart part{name, ParameterRole::matrix, own.shape(), {Box::whole(own.shape())}};  // of none of our models
    if (found != chunk.end()) part = *found;
    if (part.shape() != own.shape())
      throw ConfigError(text(name, ": is ", own.shape(), " on its rank, and ", part.shape(), " in the model here"));
    auto& whole = tensors[name];
    whole.shape = part.global_shape;
    whole.elements.resize(static_cast<std::size_t>(whole.shape.elements()));
    const auto all = Box::whole(whole.shape);
    std::int64_t row = 0;
    for (const auto& box : part.boxes) {
      const auto rows = part.boxes.size() == 1 ? own : own.slice(row, box.extent[0]);
      row += box.extent[0];
      checkpoint::copy_box(box, rows, box, Tensor(std::span(whole.elements), whole.shape), all);
    }
  }

  options::Value table_;
  std::int64_t rows_;
  checkpoint::CheckpointLayout layout_;
  std::vector<checkpoint::RankWeights> ranks_;  ///< stage by stage
  std::vector<std::vector<std::int64_t>> first_layers_;
  std::int64_t experts_;  ///< of a layer on each rank
  bool tied_ = false;
};

/// The file of whichever rank of a stage kept one of those that have the same weights: `in_stage`, which is below
/// layout.ranks(), and all that repeat it. Empty: none did.
fs::path file_of(const fs::path& folder, const std::string& kind, const RunRanks& ranks,
                 const checkpoint::CheckpointLayout& layout, std::int64_t in_stage, std::int64_t stage) {
  for (auto rank = in_stage; rank < ranks.tensor * ranks.replicas; rank += layout.ranks()) {
    const auto global = ranks.rank(rank % ranks.tensor, rank / ranks.tensor, stage);
    const auto file = folder / text(kind, ".rank", global, ".safetensors");
    if (fs::exists(file)) return file;
  }
  return {};
}

}  // namespace

bool has_gate(const recipe::Recipe& recipe) {
  const auto* gpt = recipe.model.options<model::GptOptions>();
  return gpt != nullptr && nn::is_gated(gpt->feed_forward());
}

RunRanks::RunRanks(const RunFlags& flags, std::int64_t all)
    : world(all),
      tensor(number(flags, "--tensor-model-parallel-size")),
      stages(number(flags, "--pipeline-model-parallel-size")),
      stages_before_replicas(flags.has("--use-tp-pp-dp-mapping")) {
  if (tensor < 1 || stages < 1 || world % (tensor * stages) != 0)
    throw NotSupported{text("world size ", world, " with ", tensor, " tensor parallel ranks and ", stages, " stages")};
  replicas = world / (tensor * stages);
}

std::int64_t RunRanks::rank(std::int64_t t, std::int64_t replica, std::int64_t stage) const {
  return t + tensor * (stages_before_replicas ? stage + stages * replica : replica + replicas * stage);
}

std::int64_t RunRanks::replica_of(std::int64_t rank) const {
  return stages_before_replicas ? rank / tensor / stages : rank / tensor % replicas;
}

std::int64_t world_of(const fs::path& folder) {
  return Json::parse(read_file(folder / "arguments.json")).at("world_size");
}

std::optional<RecordedTensors> whole_tensors(const fs::path& folder, const std::string& kind, const RunRanks& ranks,
                                             const recipe::Recipe& recipe) {
  Assembly assembly(recipe);
  for (std::int64_t stage = 0; stage < ranks.stages; ++stage)
    for (std::int64_t rank = 0; rank < assembly.layout().ranks(); ++rank) {
      const auto file = file_of(folder, kind, ranks, assembly.layout(), rank, stage);
      if (file.empty()) return std::nullopt;
      assembly.add(checkpoint::SafetensorsReader(file), rank, stage);
    }
  return std::move(assembly.tensors);
}

}  // namespace tessera::golden
