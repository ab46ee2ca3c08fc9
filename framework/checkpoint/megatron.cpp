#include "framework/checkpoint/megatron.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/checkpoint/config_table.h"
#include "framework/checkpoint/convert.h"
#include "framework/options/option_type.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Kind = PickleNode::Kind;

constexpr const char* tracker = "latest_checkpointed_iteration.txt";
constexpr const char* weights_file = "model_optim_rng.pt";

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

/// A number whatever it is kept as; a tensor of one element too.
std::optional<double> number_of(const PickleNode* node, const TorchFile& file) {
  if (node == nullptr) return std::nullopt;
  if (node->kind == Kind::integer) return static_cast<double>(node->integer);
  if (node->kind == Kind::real) return node->real;
  if (!TorchFile::is_tensor(*node)) return std::nullopt;
  const auto tensor = file.tensor(*node, "a number");
  if (tensor.elements() != 1) return std::nullopt;
  double out = 0;
  if (tensor.dtype() == DType::int64 || tensor.dtype() == DType::int32) {
    std::int64_t whole_number = 0;
    copy_converted(tensor, Tensor(std::span(&whole_number, 1), Shape{1}));
    return static_cast<double>(whole_number);
  }
  copy_converted(tensor, Tensor(std::span(&out, 1), Shape{1}));
  return out;
}

/// Plain values as JSON; objects (enumerations, types) say nothing.
Json json_of(const PickleNode& node) {
  switch (node.kind) {
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

/// The arguments of the run: an argparse.Namespace.
const PickleNode* arguments_of(const PickleNode& root) {
  const auto* args = root.find("args");
  if (args == nullptr) return nullptr;
  if (args->kind == Kind::dict) return args;
  return args->kind == Kind::call && args->items.size() > 2 ? args->items[2] : nullptr;
}

/// Whether a weight decays, as Megatron's groups tell it.
bool decays(const std::string& name, std::size_t rank) {
  return rank != 1 && (name.size() < 5 || name.compare(name.size() - 5, 5, ".bias") != 0);
}
bool is_embedding_or_output(const std::string& name) { return has_vocabulary_rows(name); }

bool flag_of(const PickleNode& group, const char* key) {
  const auto* value = group.find(key);
  return value != nullptr && value->kind == Kind::boolean && value->flag;
}

}  // namespace

bool is_megatron_folder(const fs::path& folder) {
  if (!fs::is_directory(folder) || fs::exists(folder / "manifest.json")) return false;
  if (!ranks_in(folder).empty()) return true;
  if (!fs::exists(folder / tracker)) return false;
  try {
    return !ranks_in(megatron_iteration_folder(folder)).empty();
  } catch (const ConfigError&) {
    return false;
  }
}

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
  return folder / checkpoint_name("", std::stoll(words));
}

void MegatronCheckpoint::refuse(const std::string& story) const {
  throw ConfigError(text(folder_.string(), ": ", story));
}

MegatronCheckpoint::MegatronCheckpoint(const fs::path& folder, const Mappings& mappings)
    : folder_(megatron_iteration_folder(folder)), mappings_(mappings) {
  const auto ranks = ranks_in(folder_);
  if (fs::exists(folder_ / "metadata.json")) refuse("was saved with --ckpt-format torch_dist; only torch is read yet");
  if (ranks.empty()) refuse("holds no mp_rank_00");
  if (ranks.size() > 1)
    refuse(text("was saved by ", ranks.size(), " ranks (", ranks[0], ", ", ranks[1],
                ", ...); what one rank saved is read yet"));
  file_ = std::make_unique<TorchFile>(folder_ / ranks[0] / weights_file);
  const auto& root = file_->root();
  const auto* model = root.find("model");
  if (root.find("model0") != nullptr) refuse("was cut into virtual stages (model0, ...), which are not read yet");
  if (model == nullptr || model->kind != Kind::dict) refuse("its file holds no 'model'");
  take_weights(*model);
  if (fs::exists(folder_ / ranks[0] / "distrib_optim.pt")) return;  // read by whoever asks: then it is missing by name
  if (const auto* optimizer = root.find("optimizer"); optimizer != nullptr) take_optimizer(*optimizer);
}

void MegatronCheckpoint::take_weights(const PickleNode& model) {
  const auto table = mappings_.table("weights/megatron.yaml");
  for (std::size_t i = 0; i + 1 < model.items.size(); i += 2) {
    const auto& theirs = model.items[i]->text;
    const auto ours = our_name_of_megatron(theirs, table);
    if (ours.empty()) continue;
    if (!TorchFile::is_tensor(*model.items[i + 1])) refuse(text("'", theirs, "' is no tensor"));
    if (!tensors_.emplace(ours, model.items[i + 1]).second) refuse(text("'", theirs, "' is there twice"));
    names_.push_back(ours);
  }
}

void MegatronCheckpoint::take_optimizer(const PickleNode& optimizer) {
  if (optimizer.kind == Kind::list) refuse("has several optimizers (of experts), which are not read yet");
  const auto* nested = optimizer.find("optimizer");
  const auto& inner = nested != nullptr ? *nested : optimizer;
  const auto *groups = inner.find("param_groups"), *state = inner.find("state");
  if (groups == nullptr || groups->kind != Kind::list || state == nullptr) return;  // no state was saved
  take_groups(*groups, *state, optimizer.find("fp32_from_fp16_params"));
}

/// Weights in the order of the model go to the group that says the same of them, each to the next place in it.
void MegatronCheckpoint::take_groups(const PickleNode& groups, const PickleNode& state, const PickleNode* masters) {
  std::map<std::int64_t, const PickleNode*> state_of;
  for (std::size_t i = 0; i + 1 < state.items.size(); i += 2) state_of[state.items[i]->integer] = state.items[i + 1];
  const bool decoupled = std::any_of(groups.items.begin(), groups.items.end(),
                                     [](const auto* group) { return flag_of(*group, "is_decoupled_lr"); });
  std::vector<std::size_t> used(groups.items.size(), 0);
  for (const auto& name : names_) {
    const double wd = decays(name, shape(name).rank()) ? 1 : 0;
    std::size_t number = 0;
    const auto fits = [&](const PickleNode& group) {
      return number_of(group.find("wd_mult"), *file_) == wd &&
             flag_of(group, "is_decoupled_lr") == (decoupled && is_embedding_or_output(name));
    };
    while (number < groups.items.size() && !fits(*groups.items[number])) ++number;
    const auto* ids = number < groups.items.size() ? groups.items[number]->find("params") : nullptr;
    if (ids == nullptr || used[number] >= ids->items.size())
      refuse(text("no group of its optimizer has a place for '", name, "' (wd_mult ", wd, ")"));
    const auto place = used[number]++;
    if (masters != nullptr && masters->kind == Kind::list && number < masters->items.size() &&
        place < masters->items[number]->items.size())
      tensors_[name] = masters->items[number]->items[place];
    const auto found = state_of.find(ids->items[place]->integer);
    if (found == state_of.end() || found->second->kind != Kind::dict) continue;
    const auto& slots = found->second->items;
    for (std::size_t i = 0; i + 1 < slots.size(); i += 2) {
      if (slots[i]->text == "step") updates_ = number_of(slots[i + 1], *file_).value_or(updates_);
      if (slots[i]->text == "step" || !TorchFile::is_tensor(*slots[i + 1])) continue;
      const auto key = text("optimizer.", slots[i]->text, ".", name);
      tensors_[key] = slots[i + 1];
      if (shape(key) != shape(name))
        refuse(text("its optimizer keeps ", shape(key), " for '", name, "' of ", shape(name)));
    }
  }
  for (const auto* group : groups.items)
    if (const auto step = number_of(group->find("step"), *file_)) updates_ = *step;
}

Tensor MegatronCheckpoint::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse(text("has no tensor '", name, "'"));
  return file_->tensor(*found->second, text("tensor '", name, "'"));
}

void MegatronCheckpoint::read(const std::string& name, const Tensor& into) const {
  const auto there = tensor(name);
  must_be_finite(there, text(folder_.string(), ": tensor '", name, "'"));
  copy_converted(there, into);
}

std::vector<std::string> MegatronCheckpoint::optimizer_names() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : tensors_)
    if (name.rfind("optimizer.", 0) == 0) names.push_back(name);
  return names;
}

std::string MegatronCheckpoint::progress() const {
  const auto& root = file_->root();
  const auto* args = arguments_of(root);
  const auto count = [&](const PickleNode* group, const char* key, std::int64_t otherwise) {
    const auto value = group != nullptr ? number_of(group->find(key), *file_) : std::nullopt;
    return value ? static_cast<std::int64_t>(*value) : otherwise;
  };
  const auto iteration = count(&root, "iteration", 0);
  Json json = {{"iteration", iteration},
               {"updates", updates_ >= 0 ? static_cast<std::int64_t>(updates_) : iteration},
               {"consumed_samples", count(args, "consumed_train_samples", 0)},
               {"skipped_samples", count(args, "skipped_train_samples", 0)},
               {"consumed_valid_samples", count(args, "consumed_valid_samples", 0)},
               {"seed", count(args, "seed", 1234)}};
  if (const auto* schedule = root.find("opt_param_scheduler"); schedule != nullptr && schedule->kind == Kind::dict)
    for (std::size_t i = 0; i + 1 < schedule->items.size(); i += 2)
      json["schedule"][schedule->items[i]->text] = json_of(*schedule->items[i + 1]);
  const auto* optimizer = root.find("optimizer");
  const auto* scaler = optimizer != nullptr ? optimizer->find("grad_scaler") : nullptr;
  if (scaler != nullptr && scaler->find("scale") != nullptr)
    json["loss_scale"] = {
        {"scale", OptionType<double>::write(number_of(scaler->find("scale"), *file_).value_or(1)).scalar},
        {"growth_tracker", count(scaler, "growth_tracker", 0)},
        {"hysteresis_tracker", count(scaler, "hysteresis_tracker", 0)}};
  return json.dump(1);
}

Value MegatronCheckpoint::recipe() const {
  const auto* args = arguments_of(file_->root());
  if (args == nullptr || args->kind != Kind::dict) refuse("its file holds no 'args', which would describe the model");
  Json json = Json::object();
  for (std::size_t i = 0; i + 1 < args->items.size(); i += 2) json[args->items[i]->text] = json_of(*args->items[i + 1]);
  return read_by_table(json.dump(), (folder_ / weights_file).string() + ": args",
                       mappings_.table("arguments/megatron.yaml"));
}

}  // namespace tessera
