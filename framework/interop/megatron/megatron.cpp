#include "framework/interop/megatron/megatron.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "framework/base/files.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/megatron/megatron_folders.h"
#include "framework/options/yaml.h"

namespace tessera::megatron {
namespace {

namespace fs = std::filesystem;

constexpr double most_ranks = 100000;  // of one kind: five digits

std::vector<std::string> ranks_in(const fs::path& folder) {
  std::vector<std::string> ranks;
  for (const auto& entry : list_folder(folder))
    if (entry.filename().string().rfind("mp_rank_", 0) == 0) ranks.push_back(entry.filename().string());
  return ranks;
}

/// The numbers in "mp_rank_00_001"; none for what is no such name.
std::vector<std::int64_t> numbers_in(const std::string& name) {
  std::vector<std::int64_t> numbers;
  const auto end = name.size();
  for (auto at = std::string("mp_rank").size(); at < end;) {
    const auto next = std::min(name.find('_', at + 1), end);
    const auto digits = name.substr(at + 1, next - at - 1);
    if (name[at] != '_' || digits.empty() || digits.size() > 5 ||
        !std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      return {};
    numbers.push_back(std::stoll(digits));
    at = next;
  }
  return numbers;
}

}  // namespace

fs::path megatron_iteration_folder(const fs::path& folder) {
  if (const auto found = MegatronFormat().find(folder)) return *found;
  const auto tracker = folder / checkpoint::tracker_name("");
  if (fs::exists(tracker) && !checkpoint::tracked_name(folder))
    throw ConfigError(text(tracker.string(), ": says '", read_file(tracker), "'; an iteration was expected"));
  throw ConfigError(text(folder.string(),
                         ": is not a Megatron-LM checkpoint: it has neither a folder iter_* of one nor a folder "
                         "mp_rank_*; give the folder of Megatron-LM's --save, or one of its iter_* folders"));
}

std::optional<fs::path> MegatronFormat::find(const fs::path& folder) const {
  if (!fs::is_directory(folder) || fs::exists(folder / "manifest.json")) return std::nullopt;
  return ranks_in(folder).empty() ? chosen_iteration(folder, list(folder)) : std::optional(folder);
}

std::vector<checkpoint::FoundCheckpoint> MegatronFormat::list(const fs::path& folder) const {
  return iterations_in(folder, *this, [](const fs::path& iteration) -> std::optional<std::string> {
    const auto ranks = ranks_in(iteration);
    if (ranks.empty() || fs::exists(iteration / "manifest.json")) return std::nullopt;
    for (const auto& rank : ranks)
      if (!fs::exists(iteration / rank / weights_file)) return text(rank, " has no ", weights_file);
    return "";
  });
}

std::unique_ptr<checkpoint::OpenedCheckpoint> MegatronFormat::open(const fs::path& folder,
                                                                   const options::Mappings& mappings) const {
  return std::make_unique<MegatronCheckpoint>(folder, mappings);
}

std::unique_ptr<checkpoint::OpenedCheckpoint> MegatronFormat::open_described(const fs::path& folder,
                                                                             const options::Mappings& mappings,
                                                                             const options::Value& model) const {
  return std::make_unique<MegatronCheckpoint>(folder, mappings, model);
}

void MegatronCheckpoint::refuse(const std::string& message) const {
  throw ConfigError(text(folder_.string(), ": ", message));
}

MegatronCheckpoint::MegatronCheckpoint(const fs::path& folder, const options::Mappings& mappings,
                                       const options::Value& model)
    : folder_(megatron_iteration_folder(folder)),
      blobs_(checkpoint::read_blobs_beside(folder_)),
      mappings_(mappings),
      model_(model) {
  if (fs::exists(folder_ / "metadata.json")) refuse("was saved with --ckpt-format torch_dist, not torch");
  const auto table = mappings_.table("weights/megatron.yaml");
  open_ranks(table);
  place_layers(table);
  if (layout_.tensor > 1) know_parts();
}

void MegatronCheckpoint::know_parts() {
  const auto saved = blobs_.find(checkpoint::recipe_blob);
  try {
    parts_ = rank_parts(saved == blobs_.end() ? recipe() : options::parse_yaml(saved->second, checkpoint::recipe_blob),
                        layout_);
  } catch (const Error& error) {
    refuse(text("the weights of its ", layout_.tensor,
                " tensor-parallel ranks are joined as the model of each rank divides them, and that model cannot be "
                "constructed: ",
                error.what()));
  }
  for (const auto& [name, own] : holders_)
    for (const auto r : own.ranks) {
      const auto& part = weight_part(name, r);
      const auto given = rank(r, own.stage).shape(name), expected = part.shape();
      // Later versions of Megatron-LM give every rank all of the down-projections of latent attention.
      const bool whole = name.find("_down_proj.") != std::string::npos && given == part.global_shape;
      if (given != expected && !whole)
        refuse(text("'", name, "' is ", given, " on tensor-parallel rank ", layout_.tensor_rank(r), ", and ", expected,
                    " in the model of that rank"));
    }
}

const WeightPart& MegatronCheckpoint::weight_part(const std::string& name, std::int64_t rank) const {
  const auto& own = parts_[static_cast<std::size_t>(rank)];
  const auto found = own.find(checkpoint::weight_of(name));
  if (found == own.end()) refuse(text("'", name, "' is not in the model that its recipe describes"));
  return found->second;
}

/// Reads the layout off the names of the folders and the arguments of the run.
MegatronCheckpoint::Folders MegatronCheckpoint::folders_by_place(const NamedFolders& named, const MegatronRank& first) {
  const auto said = [&](const char* name) {
    const auto value = first.number(first.argument(name)).value_or(1);
    return value >= 1 && value < most_ranks ? static_cast<std::int64_t>(value) : 1;
  };
  const auto tensors = std::max(said("tensor_model_parallel_size"), said("model_parallel_size")),  // its name before
      stages = said("pipeline_model_parallel_size");
  layout_.expert = said("expert_model_parallel_size");
  if (first.number(first.argument("num_experts")).value_or(0) > 0 &&
      first.number(first.argument("expert_tensor_parallel_size")))
    layout_.expert_tensor = said("expert_tensor_parallel_size");
  const bool divided = layout_.expert > 1;
  const auto* extended = first.argument("moe_extended_tp");  // later versions ignore it
  if (divided && layout_.expert_tensor == 0 && extended != nullptr && extended->flag)
    refuse("was saved with moe_extended_tp, by which all ranks of a stage shard each expert; that is not read");
  std::map<std::array<std::int64_t, 3>, std::string> by_numbers;  // tensor, stage, expert
  for (const auto& [name, numbers] : named) {
    if (numbers.size() > (divided ? 3 : 2) || (divided && numbers.size() < 2))
      refuse(text("holds ", name, ", which has no place in a layout of tensors, stages",
                  divided ? text(" and ", layout_.expert, " ranks that divide the experts") : ""));
    const auto stage = numbers.size() == (divided ? 3 : 2) ? numbers[1] : 0;
    by_numbers[{numbers[0], stage, divided ? numbers.back() : 0}] = name;
    layout_.tensor = std::max(layout_.tensor, numbers[0] + 1);
    layout_.layers.resize(std::max(layout_.layers.size(), static_cast<std::size_t>(stage) + 1));
  }
  if (layout_.tensor < tensors || layout_.stages() < stages)
    refuse(text("was saved by ", tensors, " tensor parallel ranks times ", stages, " stages; only ", layout_.tensor,
                " times ", layout_.stages(), " are there"));
  if (layout_.sharers_of_expert() > layout_.tensor)
    refuse(text("was saved with expert_tensor_parallel_size ", layout_.sharers_of_expert(),
                ", above tensor_model_parallel_size ", layout_.tensor,
                ": ranks that share an expert saved to the same folder, so parts of it are lost"));
  Folders found;
  for (std::int64_t stage = 0; stage < layout_.stages(); ++stage)
    for (std::int64_t rank = 0; rank < layout_.ranks(); ++rank) {
      const auto own = by_numbers.find({layout_.tensor_rank(rank), stage, layout_.expert_rank(rank)});
      if (own == by_numbers.end())
        refuse(text(megatron_rank_folder(layout_, rank, stage), " is missing: its ranks are ", layout_.tensor,
                    " of tensor parallelism times ", layout_.stages(), " stages",
                    layout_.expert > 1 ? text(", and ", layout_.expert, " divide the experts") : ""));
      found[{stage, rank}] = own->second;
      by_numbers.erase(own);
    }
  if (!by_numbers.empty())
    refuse(text("holds ", by_numbers.begin()->second, ", which no rank of its layout saves: tensor parallelism ",
                layout_.tensor, ", expert parallelism ", layout_.expert, " with ", layout_.sharers_of_expert(),
                " ranks that share an expert"));
  return found;
}

void MegatronCheckpoint::open_ranks(const options::Value& table) {
  NamedFolders named;
  for (const auto& name : ranks_in(folder_)) {
    named[name] = numbers_in(name);
    if (named[name].empty()) refuse(text("holds ", name, ", which has no place in a layout"));
  }
  if (named.empty()) refuse("holds no mp_rank_00");
  const auto lowest = named.begin()->first;
  auto first = std::make_unique<MegatronRank>(folder_ / lowest, table);
  const auto folders = folders_by_place(named, *first);
  for (const auto& [place, name] : folders)
    ranks_.push_back(name == lowest ? std::move(first) : std::make_unique<MegatronRank>(folder_ / name, table));
  const auto number = [&](const char* name) {
    return static_cast<std::int64_t>(ranks_[0]->number(ranks_[0]->argument(name)).value_or(0));
  };
  layout_.data = std::max<std::int64_t>(1, number("data_parallel_size"));
  layout_.vocabulary = number("padded_vocab_size");
  if (layout_.vocabulary == 0) layout_.vocabulary = layout_.tensor * ranks_[0]->rows_of_vocabulary();
  layout_.distributed_optimizer = fs::exists(folder_ / folders.begin()->second / "distrib_optim.pt");
}

/// Layers are numbered through chunk 0 of all stages, then chunk 1, ...
void MegatronCheckpoint::place_layers(const options::Value& table) {
  const auto chunks = ranks_[0]->chunks();
  std::vector<std::vector<std::int64_t>> first(static_cast<std::size_t>(layout_.stages()));
  std::int64_t next = 0;
  for (std::size_t c = 0; c < chunks; ++c)
    for (std::int64_t stage = 0; stage < layout_.stages(); ++stage) {
      const auto& own = rank(0, stage);
      if (own.chunks() != chunks) refuse(text("stage ", stage, " has ", own.chunks(), " chunks, stage 0 ", chunks));
      first[static_cast<std::size_t>(stage)].push_back(next);
      layout_.layers[static_cast<std::size_t>(stage)].push_back(own.layers(c));
      next += own.layers(c);
    }
  const bool tied = is_tied();
  const auto heads = heads_of_rank();
  for (std::int64_t stage = 0; stage < layout_.stages(); ++stage)
    for (std::int64_t r = 0; r < layout_.ranks(); ++r) {
      auto& own = *ranks_[static_cast<std::size_t>(stage * layout_.ranks() + r)];
      if (own.chunks() != chunks) refuse(text("the ranks of stage ", stage, " have not as many chunks"));
      own.place({.stage = stage,
                 .first_layers = first[static_cast<std::size_t>(stage)],
                 .expert_rank = layout_.expert_rank(r),
                 .stages = layout_.stages(),
                 .tied = tied && layout_.stages() > 1,
                 .heads = heads});
      note_holders(stage, r);
    }
  check_holders();
  for (std::size_t c = 0; c < chunks; ++c)
    for (std::int64_t stage = 0; stage < layout_.stages(); ++stage) {
      const auto names = names_of_chunk(stage, c, table);
      names_.insert(names_.end(), names.begin(), names.end());
    }
}

bool MegatronCheckpoint::is_tied() const {
  const auto saved = ranks_[0]->saved();
  if (saved.arguments() != nullptr) return saved.is_tied();
  const auto* untied = model_.at("model_config.untie_embeddings_and_output_weights");
  return untied != nullptr && untied->scalar == "false";
}

/// 0: not known.
std::int64_t MegatronCheckpoint::heads_of_rank() const {
  const auto saved = ranks_[0]->saved();
  const auto* described = model_.at("model_config.num_attention_heads");
  const auto heads = saved.arguments() != nullptr ? saved.count("num_attention_heads", 0)
                     : described != nullptr       ? std::strtoll(described->scalar.c_str(), nullptr, 10)
                                                  : 0;
  return heads % layout_.tensor == 0 ? heads / layout_.tensor : 0;
}

/// The weights of a chunk that its ranks have, in the order of the modules.
std::vector<std::string> MegatronCheckpoint::names_of_chunk(std::int64_t stage, std::size_t chunk,
                                                            const options::Value& table) const {
  auto all = rank(0, stage).names(chunk);
  if (layout_.expert == 1) return all;
  std::set<std::string> known(all.begin(), all.end());
  for (std::int64_t r = 1; r < layout_.ranks(); ++r)
    for (auto& name : rank(r, stage).names(chunk))
      if (known.insert(name).second) all.push_back(std::move(name));
  std::vector<std::string> sorted;
  for (const auto index : megatron_order(all, table)) sorted.push_back(std::move(all[index]));
  return sorted;
}

void MegatronCheckpoint::note_holders(std::int64_t stage, std::int64_t r) {
  for (const auto& name : rank(r, stage).all_names()) {
    const bool of_expert = megatron_is_of_expert(name);
    const auto parts = of_expert ? layout_.sharers_of_expert() : layout_.tensor;
    const auto own = of_expert ? layout_.expert_tensor_rank(r) : layout_.tensor_rank(r);
    auto& holder = holders_.emplace(name, Holder{stage, std::vector<std::int64_t>(static_cast<std::size_t>(parts), -1)})
                       .first->second;
    if (holder.stage != stage) refuse(text("'", name, "' is on two stages"));
    auto& held = holder.ranks[static_cast<std::size_t>(own)];
    if (held >= 0 && of_expert && layout_.expert_rank(held) != layout_.expert_rank(r))
      refuse(text("'", name, "' is on two of the ranks that divide the experts"));
    if (held < 0) held = r;
  }
}

void MegatronCheckpoint::check_holders() const {
  for (const auto& [name, holder] : holders_)
    for (const auto r : holder.ranks)
      if (r < 0 || rank(r, holder.stage).shape(name) != rank(holder.ranks[0], holder.stage).shape(name))
        refuse(text("'", name, "' is not the same on all tensor parallel ranks"));
}

const MegatronCheckpoint::Holder& MegatronCheckpoint::holder(const std::string& name) const {
  const auto found = holders_.find(name);
  if (found == holders_.end()) refuse(text("has no tensor '", name, "'"));
  return found->second;
}

DType MegatronCheckpoint::dtype(const std::string& name) const {
  const auto& own = holder(name);
  return rank(own.ranks[0], own.stage).dtype(name);
}

Shape MegatronCheckpoint::shape(const std::string& name) const {
  const auto& own = holder(name);  // throws for a name that is not there
  return layout_.tensor == 1 ? rank(own.ranks[0], own.stage).shape(name) : weight_part(name, own.ranks[0]).global_shape;
}

void MegatronCheckpoint::read(const std::string& name, const Tensor& into) const {
  read_box(checkpoint::whole(name, into));
}

void MegatronCheckpoint::read_box(const checkpoint::TensorRange& into) const {
  const auto all = shape(into.name);
  const auto wanted = Box::of(into.offsets, into.tensor.shape());
  const auto& own = holder(into.name);
  for (const auto r : own.ranks) {
    const auto there = rank(r, own.stage).tensor(into.name);
    const auto boxes = there.shape() == all ? std::vector{Box::whole(all)} : weight_part(into.name, r).boxes;
    std::int64_t row = 0;
    for (const auto& box : boxes) {
      const auto rows = boxes.size() == 1 ? there : there.slice(row, box.extent[0]);
      row += box.extent[0];
      const auto common = intersection(box, wanted);
      if (!common) continue;
      auto first = box.begin;
      first[0] = common->begin[0];
      checkpoint::must_be_finite(rows.slice(common->begin[0] - box.begin[0], common->extent[0]),
                                 text(folder_.string(), ": tensor '", into.name, "'"), first);
      checkpoint::copy_box(*common, rows, box, into.tensor, wanted);
    }
    rank(r, own.stage).require_intact();
    if (there.shape() == all) return;  // every rank has all of it
  }
}

bool MegatronCheckpoint::reads_rows(const std::string& name) const {
  const auto& own = holder(name);
  return rank(own.ranks[0], own.stage).has_rows_of_ours(name);
}

std::vector<std::string> MegatronCheckpoint::optimizer_names() const {
  std::vector<std::string> names;
  for (const auto& holder : holders_)
    if (holder.first.rfind("optimizer.", 0) == 0) names.push_back(holder.first);
  return names;
}

std::int64_t MegatronCheckpoint::iteration() const { return ranks_[0]->saved().iteration(); }

std::uint64_t MegatronCheckpoint::bytes() const {
  std::uint64_t all = 0;
  for (const auto& rank : ranks_) all += rank->bytes();
  for (const auto& [name, content] : blobs_) all += content.size();
  return all;
}

void MegatronCheckpoint::verify() const {
  try {
    for (const auto& rank : ranks_) rank->verify();
  } catch (const ConfigError& error) {
    throw checkpoint::DamageError(error.what());
  }
}

std::string MegatronCheckpoint::description() const {
  const auto counted = [](std::int64_t count, const char* what) {
    return text(count, " ", what, count == 1 ? "" : "s");
  };
  return text("torch (Megatron-LM's), of ", counted(layout_.tensor, "tensor parallel rank"), " x ",
              counted(layout_.stages(), "stage"),
              layout_.expert > 1 ? text(", experts divided over ", counted(layout_.expert, "rank")) : "");
}

std::optional<checkpoint::Progress> MegatronCheckpoint::progress() const {
  if (folder_.filename() == release_folder) return std::nullopt;
  if (auto own = checkpoint::progress_in(blobs_, folder_)) return own;
  const auto& first = *ranks_[0];
  const auto optimizers = first.optimizers();
  const auto* scaler = optimizers.empty() ? nullptr : optimizers[0]->find("grad_scaler");
  return first.saved().progress(first.updates(), first.saved().loss_scale(scaler));
}

options::Value MegatronCheckpoint::recipe() const {
  const auto saved = ranks_[0]->saved();
  return saved.arguments() == nullptr && !model_.fields.empty() ? model_ : saved.recipe(mappings_);
}

std::vector<std::string> MegatronCheckpoint::notes() const {
  if (ranks_[0]->saved().arguments() != nullptr || model_.fields.empty()) return {};
  return {text(folder_.string(), ": its files have no 'args'; its model is that of the recipe given")};
}

}  // namespace tessera::megatron
