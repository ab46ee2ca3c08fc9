#include "framework/interop/megatron/megatron_dist_checkpoint.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/sha256.h"
#include "framework/checkpoint/blobs.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_dist_buffers.h"
#include "framework/interop/megatron/megatron_dist_format.h"
#include "framework/interop/megatron/megatron_folders.h"
#include "framework/options/yaml.h"

namespace tessera::megatron {
namespace {

namespace fs = std::filesystem;
using torch::DcpFolder;
using torch::PickleNode;

constexpr const char* end_mark_file = "metadata.json";  // Megatron-LM writes it last
constexpr std::int64_t newest_version = 1;              // of its backends
constexpr const char* common_file = "common.pt";
constexpr const char* common_object = "common_state/shard_0_1";

bool is_dist_folder(const fs::path& folder) {
  if (!fs::is_directory(folder) || fs::exists(folder / "manifest.json")) return false;
  if (fs::exists(folder / end_mark_file) || fs::exists(folder / torch::dcp_index_file)) return true;
  const auto entries = list_folder(folder);
  return std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.extension() == ".distcp"; });
}

/// `folder`, if its save came to its end, in the form that is read.
const fs::path& whole_folder(const fs::path& folder) {
  const auto mark = folder / end_mark_file;
  if (!fs::exists(mark) && fs::exists(folder / torch::dcp_index_file) && !fs::exists(folder / common_file) &&
      !torch::DcpFolder(folder).index().paths.empty())
    throw ConfigError(
        text(folder.string(),
             ": is a checkpoint of torch.distributed.checkpoint itself, which does not say what model "
             "its tensors are of; copy the config.json of the model into the folder, for tensors with the "
             "names of Hugging Face Transformers, or convert it with "
             "torch.distributed.checkpoint.format_utils.dcp_to_torch_save"));
  if (!fs::exists(mark))
    throw ConfigError(text(folder.string(), ": is a distributed checkpoint without ", end_mark_file,
                           ", which Megatron-LM writes last: the save was interrupted; give an earlier iteration"));
  const auto json = parse_json(read_file(mark));
  const auto backend = json.is_object() ? json.value("sharded_backend", "") : "";
  if (backend != "torch_dist")
    throw ConfigError(text(mark.string(), ": sharded_backend is '", backend,
                           "'; torch_dist is read: convert the checkpoint with Megatron-LM's "
                           "--ckpt-convert-format torch_dist"));
  for (const char* key : {"sharded_backend_version", "common_backend_version"})
    if (const auto version = json.value(key, std::int64_t{newest_version}); version > newest_version)
      throw ConfigError(text(mark.string(), ": ", key, " is ", version, "; at most ", newest_version,
                             " is read: convert the checkpoint with the Megatron-LM that saved it, to --ckpt-format "
                             "torch"));
  if (!fs::exists(folder / torch::dcp_index_file))
    throw ConfigError(text(folder.string(), ": has no ", torch::dcp_index_file,
                           ", the index of its tensors: copy the whole folder, or give an earlier iteration"));
  return folder;
}

/// The dicts of the optimizers: one, or several under 0, 1, ...
std::vector<const PickleNode*> optimizers_in(const PickleNode& root) {
  const auto* optimizer = root.find("optimizer");
  if (optimizer == nullptr || optimizer->kind != PickleNode::Kind::dict) return {};
  const auto& items = optimizer->items;
  if (items.empty() || items[0]->kind != PickleNode::Kind::integer) return {optimizer};
  std::vector<const PickleNode*> all;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) all.push_back(items[i + 1]);
  return all;
}

/// The optimizer steps that an optimizer's groups or its state tell.
std::optional<double> steps_of(const MegatronSaved& saved, const PickleNode& optimizer) {
  const auto* nested = optimizer.find("optimizer");
  const auto& inner = nested != nullptr ? *nested : optimizer;
  if (const auto* state = inner.find("state"); state != nullptr)
    if (const auto step = saved.number(state->find("common_step"))) return step;
  const auto* groups = inner.find("param_groups");
  if (groups == nullptr) return std::nullopt;
  for (const auto* group : groups->items)
    if (const auto step = saved.number(group->find("step"))) return step;
  return std::nullopt;
}

/// The checksums of whole files that later versions of Megatron-LM can save.
void verify_integrity(const fs::path& folder) {
  const auto path = folder / "integrity.json";
  if (!fs::exists(path)) return;
  const auto json = parse_json(read_file(path));
  const auto* files = json.is_object() ? json.find("files") : nullptr;
  if (files == nullptr || !files->is_object() || json.value("algorithm", "") != "sha256")
    throw checkpoint::DamageError(text(path.string(), ": is no list of SHA-256 sums of files"));
  for (const auto& [name, sum] : files->items()) {
    std::error_code unusable;  // a name that is longer than any file's
    if (name.find('/') != std::string::npos || !fs::exists(folder / name, unusable))
      throw checkpoint::DamageError(text(path.string(), ": names ", name, ", which is not in the folder"));
    const MappedFile file(folder / name);
    const std::string_view content(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    const auto found = sha256(content);
    file.require_intact();
    if (!sum.is_string() || sum.get<std::string>() != found)
      throw checkpoint::DamageError(text((folder / name).string(), ": its SHA-256 is not the one of integrity.json"));
  }
}

bool ends_with_text(const std::string& words, const std::string& end) {
  return words.size() >= end.size() && words.compare(words.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::optional<fs::path> MegatronDistFormat::find(const fs::path& folder) const {
  if (is_dist_folder(folder)) return folder;
  if (!fs::is_directory(folder) || fs::exists(folder / "manifest.json")) return std::nullopt;
  return chosen_iteration(folder, list(folder));
}

std::vector<checkpoint::FoundCheckpoint> MegatronDistFormat::list(const fs::path& folder) const {
  return iterations_in(folder, *this, [](const fs::path& iteration) -> std::optional<std::string> {
    if (!is_dist_folder(iteration)) return std::nullopt;
    for (const char* name : {end_mark_file, torch::dcp_index_file})
      if (!fs::exists(iteration / name)) return text("it has no ", name);
    return "";
  });
}

std::unique_ptr<checkpoint::OpenedCheckpoint> MegatronDistFormat::open(const fs::path& folder,
                                                                       const options::Mappings& mappings) const {
  return std::make_unique<MegatronDistCheckpoint>(folder, mappings);
}

void MegatronDistCheckpoint::refuse(const std::string& message) const {
  throw ConfigError(text(folder_.string(), ": ", message));
}

/// Refuses experts of --moe-use-legacy-grouped-gemm: weights that are stored as one tensor of all experts, and
/// flattened optimizer state, have an order of their own, which depends on the ranks that saved them. Source:
/// Megatron-LM core, GroupedMLP.sharded_state_dict.
const torch::DcpFolder& MegatronDistCheckpoint::files_of_known_order() const {
  const bool is_legacy = saved_.flag("moe_use_legacy_grouped_gemm");
  const auto ends = [](const std::string& key, std::string_view end) {
    return key.size() >= end.size() && key.compare(key.size() - end.size(), end.size(), end) == 0;
  };
  for (const auto& tensor : files_.index().tensors) {
    if (tensor.key.find(".mlp.experts.") == std::string::npos) continue;
    const bool is_joined = ends(tensor.key, ".weight1") || ends(tensor.key, ".weight2");
    if (!is_joined && !(is_legacy && tensor.flattened_from.rank() > 0)) continue;
    refuse(
        text("'", tensor.key, "' is ", is_joined ? "a tensor of all experts of a layer" : "flattened state of experts",
             " in the order of --moe-use-legacy-grouped-gemm, which is not read; let Megatron-LM load it and save it "
             "without that flag",
             is_joined ? ", or with --ckpt-format torch" : ", or with --no-save-optim, or with --ckpt-format torch"));
  }
  return files_;
}

std::unique_ptr<torch::TorchFile> MegatronDistCheckpoint::open_common() const {
  if (fs::exists(folder_ / common_file)) {
    auto common = std::make_unique<torch::TorchFile>(folder_ / common_file);
    common->verify();
    return common;
  }
  auto object = files_.object(common_object);
  if (!object) refuse(text("has neither ", common_file, " nor the object ", common_object));
  return object;
}

MegatronDistCheckpoint::MegatronDistCheckpoint(const fs::path& folder, const options::Mappings& mappings)
    : folder_(whole_folder(folder)),
      blobs_(checkpoint::read_blobs_beside(folder_)),
      mappings_(mappings),
      table_(mappings_.table("weights/megatron.yaml")),
      files_(folder_),
      common_(open_common()),
      saved_(*common_, DcpFolder::content(*common_)),
      weights_(files_of_known_order(), table_, folder_.string()) {
  if (has_buffers(files_.index())) {
    const auto own = blobs_.find(checkpoint::recipe_blob);
    const auto described = own == blobs_.end() ? recipe() : options::parse_yaml(own->second, checkpoint::recipe_blob);
    buffers_ = add_buffers(weights_, files_, saved_, described, table_, folder_.string());
  }
  weights_.finish();
}

void MegatronDistCheckpoint::read(const std::string& name, const Tensor& into) const {
  read_box(checkpoint::whole(name, into));
}

void MegatronDistCheckpoint::read_box(const checkpoint::TensorRange& into) const {
  weights_.read(into.name, Box::of(into.offsets, into.tensor.shape()), into.tensor);
}

std::vector<std::string> MegatronDistCheckpoint::optimizer_names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : weights_.tensors())
    if (checkpoint::is_optimizer_state(name)) names.push_back(name);
  return names;
}

std::string MegatronDistCheckpoint::description() const {
  return text("torch_dist (Megatron-LM's), ", files_.index().tensors.size(), " tensors in ",
              files_.index().chunks.size(), " chunks");
}

std::uint64_t MegatronDistCheckpoint::bytes() const {
  std::uint64_t all = files_.bytes() + fs::file_size(folder_ / end_mark_file);
  if (fs::exists(folder_ / common_file)) all += common_->bytes();
  for (const auto& [name, content] : blobs_) all += content.size();
  return all;
}

void MegatronDistCheckpoint::verify() const {
  try {
    verify_integrity(folder_);
    common_->verify();
    files_.verify();
  } catch (const ConfigError& error) {
    throw checkpoint::DamageError(error.what());
  }
}

std::optional<checkpoint::Progress> MegatronDistCheckpoint::progress() const {
  if (folder_.filename() == release_folder) return std::nullopt;
  if (auto own = checkpoint::progress_in(blobs_, folder_)) return own;
  double updates = -1;
  std::optional<checkpoint::LossScaleState> scale;
  for (const auto* optimizer : optimizers_in(saved_.root())) {
    updates = steps_of(saved_, *optimizer).value_or(updates);
    if (!scale) scale = saved_.loss_scale(optimizer->find("grad_scaler"));
  }
  for (const auto& [key, place] : files_.index().objects) {  // of state that only the same layout can load
    const bool has_groups = ends_with_text(key, ".optimizer/shard_0_1");
    if (!has_groups && !ends_with_text(key, ".grad_scaler/shard_0_1")) continue;
    const auto object = files_.object(key);
    const MegatronSaved own(*object, DcpFolder::content(*object));
    if (has_groups) updates = steps_of(own, own.root()).value_or(updates);
    if (!has_groups && !scale) scale = own.loss_scale(&own.root());
  }
  return saved_.progress(updates, scale);
}

}  // namespace tessera::megatron
