#include "framework/interop/megatron/megatron.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/tables/config_table.h"
#include "framework/options/yaml.h"

namespace tessera::megatron {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Kind = torch::PickleNode::Kind;

constexpr const char* tracker = "latest_checkpointed_iteration.txt";
constexpr int most_ranks = 100000;  // of one kind

std::vector<std::string> ranks_in(const fs::path& folder) {
  std::vector<std::string> ranks;
  for (const auto& entry : list_folder(folder))
    if (entry.filename().string().rfind("mp_rank_", 0) == 0) ranks.push_back(entry.filename().string());
  return ranks;
}

std::string trimmed(std::string words) {
  while (!words.empty() && std::isspace(static_cast<unsigned char>(words.back())) != 0) words.pop_back();
  return words;
}

/// Plain values and lists of them as JSON; objects (enumerations, types) say nothing.
Json json_of(const torch::PickleNode& node, bool in_list = false) {
  switch (node.kind) {
    case Kind::list:
    case Kind::tuple: {
      auto list = Json::array();
      for (const auto* item : node.items)
        if (!in_list) list.push_back(json_of(*item, true));
      return in_list ? Json() : list;
    }
    case Kind::boolean:
      return node.flag;
    case Kind::integer:
      return node.integer;
    case Kind::real:
      return node.real;
    case Kind::words:
      return node.text;
    default:
      return {};
  }
}

}  // namespace

fs::path megatron_iteration_folder(const fs::path& folder) {
  if (!ranks_in(folder).empty()) return folder;
  if (!fs::exists(folder / tracker))
    throw ConfigError(
        text(folder.string(), ": holds no ", tracker, " and no mp_rank_00: no checkpoint of Megatron-LM"));
  const auto words = trimmed(read_file(folder / tracker));
  if (words == "release") return folder / words;
  const bool counts = !words.empty() && words.size() < 12 &&
                      std::all_of(words.begin(), words.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!counts) throw ConfigError(text((folder / tracker).string(), ": says '", words, "'; an iteration was expected"));
  return folder / checkpoint::checkpoint_name("", std::stoll(words));
}

std::optional<fs::path> MegatronFormat::find(const fs::path& folder) const {
  if (!fs::is_directory(folder) || fs::exists(folder / "manifest.json")) return std::nullopt;
  if (!ranks_in(folder).empty()) return folder;
  if (!fs::exists(folder / tracker)) return std::nullopt;
  try {
    const auto newest = megatron_iteration_folder(folder);
    return ranks_in(newest).empty() ? std::nullopt : std::optional(newest);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::unique_ptr<checkpoint::OpenedCheckpoint> MegatronFormat::open(const fs::path& folder,
                                                                   const options::Mappings& mappings) const {
  return std::make_unique<MegatronCheckpoint>(folder, mappings);
}

void MegatronCheckpoint::refuse(const std::string& story) const {
  throw ConfigError(text(folder_.string(), ": ", story));
}

MegatronCheckpoint::MegatronCheckpoint(const fs::path& folder, const options::Mappings& mappings)
    : folder_(megatron_iteration_folder(folder)), blobs_(checkpoint::read_blobs_beside(folder_)), mappings_(mappings) {
  if (fs::exists(folder_ / "metadata.json")) refuse("was saved with --ckpt-format torch_dist; only torch is read yet");
  const auto table = mappings_.table("weights/megatron.yaml");
  open_ranks(table);
  place_layers();
  if (layout_.tensor > 1) know_parts();
}

void MegatronCheckpoint::know_parts() {
  const auto saved = blobs_.find(checkpoint::recipe_blob);
  const auto rows = static_cast<std::int64_t>(ranks_[0]->number(ranks_[0]->argument("padded_vocab_size")).value_or(0));
  try {
    parts_ = tensor_parallel_parts(
        saved == blobs_.end() ? recipe() : options::parse_yaml(saved->second, checkpoint::recipe_blob), rows,
        layout_.tensor);
  } catch (const Error& error) {
    refuse(text("the weights of its ", layout_.tensor,
                " tensor-parallel ranks are joined as the model of each rank divides them, and that model cannot be "
                "constructed: ",
                error.what()));
  }
  for (const auto& [name, stage] : holders_)
    for (std::int64_t tensor = 0; tensor < layout_.tensor; ++tensor) {
      const auto& own = weight_part(name, tensor);
      const auto given = part_shape(name, tensor), expected = own.shape();
      // Later versions of Megatron-LM give every rank all of the down-projections of latent attention.
      const bool whole = name.find("_down_proj.") != std::string::npos && given == own.global_shape;
      if (given != expected && !whole)
        refuse(text("'", name, "' is ", given, " on tensor-parallel rank ", tensor, ", and ", expected,
                    " in the model of that rank"));
    }
}

const WeightPart& MegatronCheckpoint::weight_part(const std::string& name, std::int64_t tensor_rank) const {
  const auto& own = parts_[static_cast<std::size_t>(tensor_rank)];
  const auto found = own.find(checkpoint::weight_of(name));
  if (found == own.end()) refuse(text("'", name, "' is not in the model that its recipe describes"));
  return found->second;
}

/// mp_rank_00_001 is tensor parallel rank 0 of stage 1.
void MegatronCheckpoint::open_ranks(const options::Value& table) {
  const auto folders = ranks_in(folder_);
  if (folders.empty()) refuse("holds no mp_rank_00");
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> by_place;
  bool staged = false;
  for (const auto& name : folders) {
    int tensor = 0, stage = 0, end = 0;
    const auto read = std::sscanf(name.c_str(), "mp_rank_%d%n_%d%n", &tensor, &end, &stage, &end);
    const bool possible = tensor >= 0 && stage >= 0 && tensor < most_ranks && stage < most_ranks;
    if (read < 1 || end != static_cast<int>(name.size()) || !possible)
      refuse(text("holds ", name, ", of which no place in a layout of tensors and stages can be told"));
    staged = staged || read == 2;
    by_place[{tensor, stage}] = name;
    layout_.tensor = std::max<std::int64_t>(layout_.tensor, tensor + 1);
    layout_.layers.resize(std::max<std::size_t>(layout_.layers.size(), static_cast<std::size_t>(stage) + 1));
  }
  for (std::int64_t stage = 0; stage < layout_.stages(); ++stage)
    for (std::int64_t tensor = 0; tensor < layout_.tensor; ++tensor) {
      const auto found = by_place.find({tensor, stage});
      if (found == by_place.end())
        refuse(text(megatron_rank_folder(tensor, stage, staged ? 2 : 1), " is missing: its ranks are ", layout_.tensor,
                    " of tensor parallelism times ", layout_.stages(), " stages"));
      ranks_.push_back(std::make_unique<MegatronRank>(folder_ / found->second, stage, table));
    }
  const auto said = [&](const char* name) { return ranks_[0]->number(ranks_[0]->argument(name)).value_or(1); };
  if (said("expert_model_parallel_size") > 1) refuse("holds experts on several ranks, which are not read yet");
  if (const auto tensors = said("tensor_model_parallel_size"), stages = said("pipeline_model_parallel_size");
      static_cast<double>(layout_.tensor) < tensors || static_cast<double>(layout_.stages()) < stages)
    refuse(text("was saved by ", tensors, " tensor parallel ranks times ", stages, " stages; only ", layout_.tensor,
                " times ", layout_.stages(), " are there"));
  layout_.data = static_cast<std::int64_t>(said("data_parallel_size"));
  layout_.distributed_optimizer = fs::exists(folder_ / by_place.begin()->second / "distrib_optim.pt");
}

/// Layers are numbered through chunk 0 of all stages, then chunk 1, ...
void MegatronCheckpoint::place_layers() {
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
  const auto* untied = ranks_[0]->argument("untie_embeddings_and_output_weights");
  const bool tied = untied != nullptr && untied->kind == Kind::boolean && !untied->flag;
  for (std::int64_t stage = 0; stage < layout_.stages(); ++stage)
    for (std::int64_t tensor = 0; tensor < layout_.tensor; ++tensor) {
      auto& own = *ranks_[static_cast<std::size_t>(stage * layout_.tensor + tensor)];
      if (own.chunks() != chunks) refuse(text("the ranks of stage ", stage, " have not as many chunks"));
      own.place(first[static_cast<std::size_t>(stage)], tied && layout_.stages() > 1);
      for (const auto& name : own.all_names()) {
        if (tensor == 0 && !holders_.emplace(name, stage).second) refuse(text("'", name, "' is on two stages"));
        const auto holder = holders_.find(name);
        if (holder == holders_.end() || holder->second != stage || part_shape(name, tensor) != part_shape(name, 0))
          refuse(text("'", name, "' is not the same on all tensor parallel ranks"));
      }
    }
  for (std::size_t c = 0; c < chunks; ++c)
    for (std::int64_t stage = 0; stage < layout_.stages(); ++stage) {
      const auto names = rank(0, stage).names(c);
      names_.insert(names_.end(), names.begin(), names.end());
    }
}

std::int64_t MegatronCheckpoint::stage_of(const std::string& name) const {
  const auto holder = holders_.find(name);
  if (holder == holders_.end()) refuse(text("has no tensor '", name, "'"));
  return holder->second;
}

Tensor MegatronCheckpoint::part(const std::string& name, std::int64_t tensor_rank) const {
  return rank(tensor_rank, stage_of(name)).tensor(name);
}

Shape MegatronCheckpoint::part_shape(const std::string& name, std::int64_t tensor_rank) const {
  return rank(tensor_rank, stage_of(name)).shape(name);
}

DType MegatronCheckpoint::dtype(const std::string& name) const { return rank(0, stage_of(name)).dtype(name); }

Shape MegatronCheckpoint::shape(const std::string& name) const {
  const auto own = part_shape(name, 0);  // throws for a name that is not there
  return layout_.tensor == 1 ? own : weight_part(name, 0).global_shape;
}

void MegatronCheckpoint::read(const std::string& name, const Tensor& into) const {
  read_box(checkpoint::whole(name, into));
}

void MegatronCheckpoint::read_box(const checkpoint::TensorRange& into) const {
  const auto all = shape(into.name);
  const auto wanted = Box::of(into.offsets, into.tensor.shape());
  for (std::int64_t tensor = 0; tensor < layout_.tensor; ++tensor) {
    const auto there = part(into.name, tensor);
    const auto boxes = there.shape() == all ? std::vector{Box::whole(all)} : weight_part(into.name, tensor).boxes;
    std::int64_t row = 0;
    for (const auto& box : boxes) {
      const auto rows = boxes.size() == 1 ? there : there.slice(row, box.extent[0]);
      row += box.extent[0];
      const auto common = intersection(box, wanted);
      if (!common) continue;
      checkpoint::must_be_finite(rows, text(folder_.string(), ": tensor '", into.name, "'"));
      checkpoint::copy_box(*common, rows, box, into.tensor, wanted);
    }
    if (there.shape() == all) return;  // every rank has all of it
  }
}

std::vector<std::string> MegatronCheckpoint::optimizer_names() const {
  std::vector<std::string> names;
  for (const auto& holder : holders_)
    if (holder.first.rfind("optimizer.", 0) == 0) names.push_back(holder.first);
  return names;
}

std::int64_t MegatronCheckpoint::iteration() const {
  const auto& first = *ranks_[0];
  return static_cast<std::int64_t>(first.number(first.root().find("iteration")).value_or(0));
}

std::uint64_t MegatronCheckpoint::bytes() const {
  std::uint64_t all = 0;
  for (const auto& rank : ranks_) all += rank->bytes();
  for (const auto& [name, content] : blobs_) all += content.size();
  return all;
}

void MegatronCheckpoint::verify() const {
  for (const auto& rank : ranks_) rank->verify();
}

std::string MegatronCheckpoint::description() const {
  const auto counted = [](std::int64_t count, const char* what) {
    return text(count, " ", what, count == 1 ? "" : "s");
  };
  return text("torch (Megatron-LM's), of ", counted(layout_.tensor, "tensor parallel rank"), " x ",
              counted(layout_.stages(), "stage"));
}

namespace {

/// A field of opt_param_scheduler: false when it is of another type.
bool take(const std::optional<double>& value, const torch::PickleNode&, double& field) {
  if (value) field = *value;
  return value.has_value();
}
bool take(const std::optional<double>& value, const torch::PickleNode&, std::int64_t& field) {
  if (value) field = static_cast<std::int64_t>(*value);
  return value.has_value();
}
bool take(const std::optional<double>&, const torch::PickleNode& node, std::string& field) {
  if (node.kind == Kind::words) field = node.text;
  return node.kind == Kind::words;
}

}  // namespace

std::optional<checkpoint::Progress> MegatronCheckpoint::progress() const {
  const auto& first = *ranks_[0];
  const auto& root = first.root();
  const auto whole_number = [&](const torch::PickleNode* node, std::int64_t otherwise) {
    const auto value = first.number(node);
    return value ? static_cast<std::int64_t>(*value) : otherwise;
  };
  const auto argument = [&](const char* key, std::int64_t otherwise) {
    return whole_number(first.argument(key), otherwise);
  };
  checkpoint::Progress out;
  out.iteration = iteration();
  out.updates = first.updates() >= 0 ? static_cast<std::int64_t>(first.updates()) : iteration();
  out.consumed_samples = argument("consumed_train_samples", 0);
  out.skipped_samples = argument("skipped_train_samples", 0);
  out.consumed_valid_samples = argument("consumed_valid_samples", 0);
  out.seed = static_cast<std::uint64_t>(argument("seed", 1234));
  if (const auto* schedule = root.find("opt_param_scheduler"); schedule != nullptr && schedule->kind == Kind::dict) {
    out.schedule.emplace();
    schedule::visit_fields(*out.schedule, [&](const char* name, auto& field) {
      const auto* node = schedule->find(name);
      if (node == nullptr || !take(first.number(node), *node, field))
        refuse(text("its opt_param_scheduler does not give ", name));
    });
  }
  const auto* optimizer = root.find("optimizer");
  const auto* scaler = optimizer != nullptr ? optimizer->find("grad_scaler") : nullptr;
  if (scaler != nullptr && scaler->find("scale") != nullptr)
    out.loss_scale = {static_cast<float>(first.number(scaler->find("scale")).value_or(1)),
                      whole_number(scaler->find("growth_tracker"), 0),
                      whole_number(scaler->find("hysteresis_tracker"), 0)};
  return out;
}

options::Value MegatronCheckpoint::recipe() const {
  const auto* args = ranks_[0]->arguments();
  if (args == nullptr || args->kind != Kind::dict) refuse("its file holds no 'args', which would describe the model");
  Json json = Json::object();
  for (std::size_t i = 0; i + 1 < args->items.size(); i += 2) json[args->items[i]->text] = json_of(*args->items[i + 1]);
  return tables::read_by_table(json.dump(), (folder_ / weights_file).string() + ": args",
                               mappings_.table("arguments/megatron.yaml"));
}

}  // namespace tessera::megatron
