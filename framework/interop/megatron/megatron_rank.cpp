#include "framework/interop/megatron/megatron_rank.h"

#include <algorithm>

#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/tables/our_names.h"

namespace tessera::megatron {
namespace {

namespace fs = std::filesystem;
using Kind = torch::PickleNode::Kind;

constexpr const char* weights_file = "model_optim_rng.pt";
constexpr const char* shared_file = "distrib_optim.pt";
constexpr std::int64_t most_layers = 1000000;
const std::string table_name = "embedding.word_embeddings.weight", head_name = "output_layer.weight";

/// Whether a weight decays, as Megatron's groups tell it.
bool decays(const std::string& name, std::size_t rank) {
  return rank != 1 && (name.size() < 5 || name.compare(name.size() - 5, 5, ".bias") != 0);
}

bool flag_of(const torch::PickleNode& group, const char* key) {
  const auto* value = group.find(key);
  return value != nullptr && value->kind == Kind::boolean && value->flag;
}

}  // namespace

MegatronRank::MegatronRank(const fs::path& folder, std::int64_t stage, const options::Value& table)
    : folder_(folder), stage_(stage) {
  file_ = std::make_unique<torch::TorchFile>(folder / weights_file);
  if (const auto* model = root().find("model"); model != nullptr) {
    take_chunk(*model, table);
  } else {
    while (const auto* chunk = root().find(text("model", chunks_.size()))) take_chunk(*chunk, table);
  }
  if (chunks_.empty()) refuse("its file holds no 'model'");
  if (fs::exists(folder / shared_file)) shared_ = std::make_unique<torch::TorchFile>(folder / shared_file);
}

void MegatronRank::refuse(const std::string& story) const { throw ConfigError(text(folder_.string(), ": ", story)); }

void MegatronRank::take_chunk(const torch::PickleNode& model, const options::Value& table) {
  if (model.kind != Kind::dict) refuse("its file holds no 'model'");
  auto& weights = chunks_.emplace_back();
  for (std::size_t i = 0; i + 1 < model.items.size(); i += 2) {
    const auto& theirs = model.items[i]->text;
    const auto ours = our_name_of_megatron(theirs, table);
    if (ours.empty()) continue;
    if (!torch::TorchFile::is_tensor(*model.items[i + 1])) refuse(text("'", theirs, "' is no tensor"));
    if (checkpoint::layer_of(ours) > most_layers) refuse(text("'", theirs, "' is of a layer beyond ", most_layers));
    weights.push_back({ours, model.items[i + 1]});
  }
}

const torch::PickleNode* MegatronRank::arguments() const {
  const auto* args = root().find("args");
  if (args == nullptr || args->kind == Kind::dict) return args;
  return args->kind == Kind::call && args->items.size() > 2 ? args->items[2] : nullptr;  // an argparse.Namespace
}

const torch::PickleNode* MegatronRank::argument(const char* name) const {
  const auto* args = arguments();
  return args == nullptr ? nullptr : args->find(name);
}

std::optional<double> MegatronRank::number(const torch::PickleNode* node) const {
  if (node == nullptr) return std::nullopt;
  if (node->kind == Kind::integer) return static_cast<double>(node->integer);
  if (node->kind == Kind::real) return node->real;
  if (!torch::TorchFile::is_tensor(*node)) return std::nullopt;
  const auto tensor = file_->tensor(*node, "a number");
  if (tensor.elements() != 1) return std::nullopt;
  double out = 0;
  if (tensor.dtype() == DType::int64 || tensor.dtype() == DType::int32) {
    std::int64_t whole_number = 0;
    checkpoint::copy_converted(tensor, Tensor(std::span(&whole_number, 1), Shape{1}));
    return static_cast<double>(whole_number);
  }
  checkpoint::copy_converted(tensor, Tensor(std::span(&out, 1), Shape{1}));
  return out;
}

std::int64_t MegatronRank::layers(std::size_t chunk) const {
  std::int64_t count = 0;
  for (const auto& weight : chunks_[chunk]) count = std::max(count, checkpoint::layer_of(weight.name) + 1);
  return count;
}

void MegatronRank::place(const std::vector<std::int64_t>& first_layers, bool tied) {
  must(first_layers.size() == chunks_.size(), "every chunk of a rank is placed");
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const bool has_table =
        std::any_of(chunks_[c].begin(), chunks_[c].end(), [](const auto& weight) { return weight.name == table_name; });
    for (auto& weight : chunks_[c]) {
      weight.name = megatron_shifted(weight.name, first_layers[c]);
      weight.copy = tied && !has_table && weight.name == head_name;
      if (!weight.copy && !pieces_.emplace(weight.name, Piece{file_.get(), weight.node}).second)
        refuse(text("'", weight.name, "' is there twice"));
    }
  }
  if (shared_)
    take_shared_optimizer();
  else
    take_optimizer();
}

std::vector<std::string> MegatronRank::names(std::size_t chunk) const {
  std::vector<std::string> all;
  for (const auto& weight : chunks_[chunk])
    if (!weight.copy) all.push_back(weight.name);
  return all;
}

std::vector<const MegatronRank::Weight*> MegatronRank::weights() const {
  std::vector<const Weight*> all;
  for (const auto& chunk : chunks_)
    for (const auto& weight : chunk) all.push_back(&weight);
  return all;
}

void MegatronRank::take_optimizer() {
  const auto* optimizer = root().find("optimizer");
  if (optimizer == nullptr) return;
  if (optimizer->kind == Kind::list) refuse("has several optimizers (of experts), which are not read yet");
  const auto* nested = optimizer->find("optimizer");
  const auto& inner = nested != nullptr ? *nested : *optimizer;
  const auto *groups = inner.find("param_groups"), *state = inner.find("state");
  if (groups == nullptr || groups->kind != Kind::list || state == nullptr) return;  // no state was saved
  take_groups(*groups, *state, optimizer->find("fp32_from_fp16_params"));
}

/// Weights in the order of the model go to the group that says the same of them, each to the next place in it.
void MegatronRank::take_groups(const torch::PickleNode& groups, const torch::PickleNode& state,
                               const torch::PickleNode* masters) {
  std::map<std::int64_t, const torch::PickleNode*> state_of;
  for (std::size_t i = 0; i + 1 < state.items.size(); i += 2) state_of[state.items[i]->integer] = state.items[i + 1];
  const bool decoupled = std::any_of(groups.items.begin(), groups.items.end(),
                                     [](const auto* group) { return flag_of(*group, "is_decoupled_lr"); });
  std::vector<std::size_t> used(groups.items.size(), 0);
  for (const auto* weight : weights()) {
    const auto& name = weight->name;
    const double wd = decays(name, file_->tensor(*weight->node, name).shape().rank()) ? 1 : 0;
    std::size_t at = 0;
    const auto fits = [&](const torch::PickleNode& group) {
      return number(group.find("wd_mult")) == wd &&
             flag_of(group, "is_decoupled_lr") == (decoupled && tables::has_vocabulary_rows(name));
    };
    while (at < groups.items.size() && !fits(*groups.items[at])) ++at;
    const auto* ids = at < groups.items.size() ? groups.items[at]->find("params") : nullptr;
    if (ids == nullptr || used[at] >= ids->items.size())
      refuse(text("no group of its optimizer has a place for '", name, "' (wd_mult ", wd, ")"));
    const auto place = used[at]++;
    if (weight->copy) continue;
    if (masters != nullptr && masters->kind == Kind::list && at < masters->items.size() &&
        place < masters->items[at]->items.size())
      pieces_[name] = {file_.get(), masters->items[at]->items[place]};
    const auto found = state_of.find(ids->items[place]->integer);
    if (found != state_of.end() && found->second->kind == Kind::dict) take_state(*found->second, *weight);
  }
  for (const auto* group : groups.items)
    if (const auto step = number(group->find("step"))) updates_ = *step;
}

void MegatronRank::take_state(const torch::PickleNode& state, const Weight& weight) {
  const auto& slots = state.items;
  for (std::size_t i = 0; i + 1 < slots.size(); i += 2) {
    if (slots[i]->text == "step") updates_ = number(slots[i + 1]).value_or(updates_);
    if (slots[i]->text == "step" || !torch::TorchFile::is_tensor(*slots[i + 1])) continue;
    const auto key = text("optimizer.", slots[i]->text, ".", weight.name);
    pieces_[key] = {file_.get(), slots[i + 1]};
    const auto own = tensor(weight.name).shape(), kept = tensor(key).shape();
    if (kept != own) refuse(text("its optimizer keeps ", kept, " for '", weight.name, "' of ", own));
  }
}

void MegatronRank::take_shared_optimizer() {
  const auto* optimizer = root().find("optimizer");
  const auto* inner = optimizer != nullptr ? optimizer->find("optimizer") : nullptr;
  if (const auto* groups = inner != nullptr ? inner->find("param_groups") : nullptr; groups != nullptr)
    for (const auto* group : groups->items)
      if (const auto step = number(group->find("step"))) updates_ = *step;
  const auto& buffers = shared_->root();
  if (buffers.kind != Kind::dict)
    refuse(text(shared_file, " has several optimizers (of experts), which are not read yet"));
  std::size_t chunk = 0;
  for (std::size_t i = 0; i + 1 < buffers.items.size(); i += 2) {
    if (buffers.items[i]->kind != Kind::integer) continue;  // buckets_coalesced
    const auto& types = *buffers.items[i + 1];
    if (types.kind != Kind::dict || types.items.size() != 2 || chunk >= chunks_.size())
      refuse(text(shared_file, " has other buffers than one for each chunk of the model"));
    take_buffer(*types.items[1], chunk++);
  }
  if (chunk != chunks_.size())
    refuse(text(shared_file, " has ", chunk, " buffers for ", chunks_.size(), " chunks of the model"));
}

/// Elements after which a bucket was full, as the run's arguments say; 0: there was one bucket.
std::int64_t MegatronRank::bucket_size(std::size_t chunk) const {
  const auto count = [&](const char* name) { return static_cast<std::int64_t>(number(argument(name)).value_or(0)); };
  const auto on = [&](const char* name) {
    const auto* value = argument(name);
    return value != nullptr && value->kind == Kind::boolean && value->flag;
  };
  if (!on("overlap_grad_reduce") || stage_ > 0 || chunk > 0 || on("overlap_param_gather_with_optimizer_step")) return 0;
  if (const auto buckets = count("ddp_num_buckets"); buckets > 0) {
    std::int64_t all = 0;
    for (const auto* weight : weights()) all += file_->tensor(*weight->node, weight->name).elements();
    return all / buckets;
  }
  if (const auto given = count("ddp_bucket_size"); given > 0) return given;
  const auto ranks = count("data_parallel_size") * std::max<std::int64_t>(1, count("context_parallel_size"));
  return std::max<std::int64_t>(40000000, 1000000 * ranks);
}

void MegatronRank::take_buffer(const torch::PickleNode& buffer, std::size_t chunk) {
  const auto stages = number(argument("pipeline_model_parallel_size")).value_or(1);
  const bool copied = std::any_of(chunks_[chunk].begin(), chunks_[chunk].end(), [](const auto& w) { return w.copy; });
  const auto* untied = argument("untie_embeddings_and_output_weights");
  const bool tied = copied || (untied != nullptr && untied->kind == Kind::boolean && !untied->flag);
  std::vector<MegatronFlat> flats;
  std::vector<Shape> shapes;
  for (const auto& weight : chunks_[chunk]) {
    shapes.push_back(file_->tensor(*weight.node, weight.name).shape());
    flats.push_back({shapes.back().elements(), tied && stages > 1 && tables::has_vocabulary_rows(weight.name)});
  }
  const auto places = megatron_flat_places(flats, bucket_size(chunk));
  for (std::size_t i = 0; i + 1 < buffer.items.size(); i += 2) {
    const auto& slot = buffer.items[i]->text;
    if (!torch::TorchFile::is_tensor(*buffer.items[i + 1])) continue;
    const auto there = shared_->tensor(*buffer.items[i + 1], slot).elements();
    if (there != places.back())
      refuse(text(shared_file, " has ", there, " elements of '", slot, "'; the model's layout makes ", places.back(),
                  " of them"));
    for (std::size_t w = 0; w < flats.size(); ++w) {
      const auto& weight = chunks_[chunk][w];
      if (weight.copy) continue;
      const auto key = slot == "param" ? weight.name : text("optimizer.", slot, ".", weight.name);
      pieces_[key] = {shared_.get(), buffer.items[i + 1], places[w], shapes[w]};
    }
  }
}

void MegatronRank::verify() const {
  file_->verify();
  if (shared_) shared_->verify();
}

std::vector<std::string> MegatronRank::all_names() const {
  std::vector<std::string> all;
  for (const auto& piece : pieces_) all.push_back(piece.first);
  return all;
}

Tensor MegatronRank::tensor(const std::string& name) const {
  const auto found = pieces_.find(name);
  if (found == pieces_.end()) refuse(text("has no tensor '", name, "'"));
  const auto& piece = found->second;
  const auto all = piece.file->tensor(*piece.node, text("tensor '", name, "'"));
  if (piece.first < 0) return all;
  return all.slice(piece.first, piece.shape.elements()).reshaped(piece.shape);
}

}  // namespace tessera::megatron
