#include "framework/interop/torch/tensor_folder.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/manifest.h"

namespace tessera::torch {
namespace {

namespace fs = std::filesystem;
using checkpoint::WholeTensor;

constexpr const char *sharding_key = "DCP_SHARDING_INFO", *whole_model = "model.safetensors",
                     *whole_index = "model.safetensors.index.json";
constexpr std::int64_t most_offset = std::int64_t{1} << 48;

/// Memory for a tensor, as an owner that whoever reads can keep.
std::pair<std::shared_ptr<std::vector<std::byte>>, Tensor> new_tensor(DType type, const Shape& shape) {
  auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(shape.elements()) * size_of(type));
  const Tensor tensor{std::span<std::byte>(*memory), type, shape};
  return {std::move(memory), tensor};
}

std::vector<fs::path> safetensors_files(const fs::path& folder) {
  auto files = list_folder(folder);
  std::erase_if(files, [](const auto& file) { return file.extension() != ".safetensors"; });
  std::sort(files.begin(), files.end());
  return files;
}

/// The number of the process in "shard-00002-model-00001-of-00001.safetensors"; 0: there is none.
std::int64_t shard_of(const fs::path& file) {
  const std::string begin = "shard-", name = file.filename().string();
  if (name.rfind(begin, 0) != 0) return 0;
  std::int64_t number = 0;
  for (auto at = begin.size(); at < name.size() && at < begin.size() + 9; ++at) {
    if (std::isdigit(static_cast<unsigned char>(name[at])) == 0) break;
    number = 10 * number + (name[at] - '0');
  }
  return number;
}

/// Where the part of a tensor begins: zeros where `all`, the sharding of a file, does not name it.
std::vector<std::int64_t> offsets_of(const Json& all, const std::string& name, const Shape& part,
                                     const std::string& speaker) {
  std::vector<std::int64_t> offsets(part.rank(), 0);
  const auto about = all.value(name, Json());
  if (!about.is_object() || !about.contains("saved_offsets")) return offsets;
  const auto& given = about["saved_offsets"];
  const auto refuse = [&] {
    throw ConfigError(text(speaker, ": ", sharding_key, " of tensor '", name, "' is ", about.dump(), "; ", part.rank(),
                           " offsets were expected, for a part of shape ", part));
  };
  if (!given.is_array() || given.size() != part.rank()) refuse();
  for (std::size_t dim = 0; dim < offsets.size(); ++dim) {
    if (!given[dim].is_number_integer()) refuse();
    offsets[dim] = given[dim].get<std::int64_t>();
    if (offsets[dim] < 0 || offsets[dim] > most_offset) refuse();
  }
  return offsets;
}

}  // namespace

bool is_plain_dcp(const fs::path& folder) {
  return fs::exists(folder / dcp_index_file) && !fs::exists(folder / "metadata.json");
}

DcpTensors::DcpTensors(const fs::path& folder) : path_(folder), folder_(std::make_shared<const DcpFolder>(folder)) {
  for (const auto& tensor : folder_->index().tensors) tensors_.emplace(tensor.key, &tensor);
}

namespace {

struct StateKey {
  std::string word, name;
};

/// What a key says of optimizer state. `is_model`: whether a name is one of the model's. A module that wraps the model
/// is in the name of the state, and may be in `prefix`.
std::optional<StateKey> state_in(const std::string& key, const std::string& prefix,
                                 const std::function<bool(const std::string& name)>& is_model) {
  const std::string begin = "state.";
  auto at = key.find(begin);
  while (at != std::string::npos && at > 0 && key[at - 1] != '.') at = key.find(begin, at + 1);
  const auto dot = key.rfind('.');
  if (at == std::string::npos || dot <= at + begin.size()) return std::nullopt;
  const auto name = key.substr(at + begin.size(), dot - at - begin.size());
  if (is_model(name)) return StateKey{key.substr(dot + 1), name};
  for (std::size_t first = 0; first < prefix.size(); first = prefix.find('.', first) + 1) {
    const auto wrapper = prefix.substr(first);
    if (name.starts_with(wrapper) && is_model(name.substr(wrapper.size())))
      return StateKey{key.substr(dot + 1), name.substr(wrapper.size())};
  }
  return std::nullopt;
}

}  // namespace

void DcpTensors::take_below(const std::string& prefix) {
  Tensors taken;
  const auto is_below = [&](const std::string& key) { return key.size() > prefix.size() && key.starts_with(prefix); };
  for (const auto& [key, tensor] : tensors_)
    if (is_below(key)) taken.emplace(key.substr(prefix.size()), tensor);
  for (const auto& [key, tensor] : tensors_) {
    if (const auto state = state_in(key, prefix, [&](const auto& name) { return taken.contains(name); })) {
      if (!states_[state->word].emplace(state->name, tensor).second)
        throw ConfigError(text(path_.string(), ": '", key, "' and another tensor are both the ", state->word, " of '",
                               state->name, "'; save one optimizer for each parameter"));
      if (is_below(key)) taken.erase(key.substr(prefix.size()));
    } else if (!is_below(key) && left_out_.second++ == 0) {
      left_out_.first = key;
    }
  }
  tensors_ = std::move(taken);
}

std::vector<std::string> DcpTensors::state_words() const {
  std::vector<std::string> words;
  for (const auto& [word, tensors] : states_) words.push_back(word);
  return words;
}

std::unique_ptr<DcpTensors> DcpTensors::state(const std::string& word) const {
  auto one = std::make_unique<DcpTensors>(*this);
  one->tensors_ = states_.at(word);
  one->states_.clear();
  one->left_out_ = {};
  return one;
}

std::vector<std::string> DcpTensors::notes() const {
  if (left_out_.second == 0) return {};
  return {text(path_.string(), ": ", left_out_.second, " tensors beside those of the model are not read, such as '",
               left_out_.first, "': of a folder of torch.distributed.checkpoint only the weights are, and optimizer ",
               "state under the names of torch's get_optimizer_state_dict")};
}

std::vector<std::string> DcpTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

const DcpTensor& DcpTensors::stored(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw ConfigError(text(path_.string(), ": has no tensor '", name, "'"));
  return *found->second;
}

WholeTensor DcpTensors::whole(const std::string& name) const {
  const auto& tensor = stored(name);
  const auto& index = folder_->index();
  const auto chunks = index.chunks_of(tensor);
  if (chunks.size() == 1) {  // the index has checked that it is all of the tensor
    auto elements = folder_->elements(tensor, chunks[0]);
    folder_->require_intact(chunks[0]);
    return {elements};
  }
  auto [memory, into] = new_tensor(tensor.type, tensor.size);
  read_box(name, Box::whole(tensor.size), into);
  return {into, std::move(memory)};
}

void DcpTensors::read_box(const std::string& name, const Box& box, const Tensor& into) const {
  const auto& tensor = stored(name);
  const auto& index = folder_->index();
  for (const auto& chunk : index.chunks_of(tensor)) {
    const auto offsets = index.offsets(tensor, chunk);
    const auto there = Box::of({offsets.begin(), offsets.end()}, Shape(index.extents(tensor, chunk)));
    const auto common = intersection(there, box);
    if (!common) continue;
    checkpoint::copy_box(*common, folder_->elements(tensor, chunk), there, into, box);
    folder_->require_intact(chunk);
  }
}

bool DcpTensors::verify() const {
  folder_->verify();
  return true;
}

bool PartedSafetensors::is_here(const fs::path& folder) {
  if (!fs::is_directory(folder) || fs::exists(folder / whole_model) || fs::exists(folder / whole_index)) return false;
  const auto files = safetensors_files(folder);
  return !files.empty() && shard_of(files.front()) > 0;
}

PartedSafetensors::PartedSafetensors(const fs::path& folder) : folder_(folder) {
  std::int64_t expected = 1;
  for (const auto& file : safetensors_files(folder)) {
    const auto shard = shard_of(file);
    if (shard != expected && shard != expected - 1)
      throw ConfigError(text(folder.string(), ": a file shard-", expected, "-... was expected before ",
                             file.filename().string(), ": copy the files of all processes that saved"));
    expected = shard + 1;
    add_file(file);
  }
  for (auto& [name, tensor] : tensors_) finish(name, tensor);
}

void PartedSafetensors::add_file(const fs::path& file) {
  files_.emplace_back(file);
  const auto& reader = files_.back();
  const auto found = reader.metadata().find(sharding_key);
  const auto sharding = found == reader.metadata().end() ? Json() : parse_json(found->second);
  if (!sharding.is_object())
    throw ConfigError(text(file.string(), ": its metadata have no ", sharding_key,
                           ": it was not saved with save_distributed, or belongs to another model"));
  for (const auto& name : reader.names()) {
    const auto& part = reader.shape(name);
    const auto type = reader.dtype(name);
    auto& tensor = tensors_[name];
    if (!tensor.parts.empty() && tensor.type != type)
      throw ConfigError(text(file.string(), ": tensor '", name, "' is ", name_of(type), ", another part of it ",
                             name_of(tensor.type)));
    tensor.type = type;
    tensor.parts.push_back({files_.size() - 1, Box::of(offsets_of(sharding, name, part, file.string()), part)});
  }
}

/// The shape is that of the box around all parts. What a process had nothing of is a part without elements.
void PartedSafetensors::finish(const std::string& name, Parted& tensor) const {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(text(folder_.string(), ": tensor '", name, "': ", why, "; copy the files of all processes"));
  };
  std::vector<std::int64_t> dims(tensor.parts.front().box.begin.size(), 0);
  for (const auto& part : tensor.parts) {
    if (part.box.begin.size() != dims.size()) refuse("its parts have different numbers of axes");
    for (std::size_t dim = 0; dim < dims.size(); ++dim)
      dims[dim] = std::max(dims[dim], part.box.begin[dim] + part.box.extent[dim]);
  }
  try {
    tensor.shape = Shape(dims);
  } catch (const ShapeError& error) {
    refuse(error.what());
  }
  checkpoint::Manifest::TensorEntry entry;
  entry.global_shape = tensor.shape;
  for (const auto& part : tensor.parts) {
    auto& range = entry.ranges.emplace_back();
    range.offsets = part.box.begin;
    range.extents = Shape(part.box.extent);
  }
  if (const auto problem = checkpoint::coverage_problem(entry); !problem.empty()) refuse(problem);
  std::erase_if(tensor.parts, [](const auto& part) { return part.box.elements() == 0; });
}

std::vector<std::string> PartedSafetensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

const PartedSafetensors::Parted& PartedSafetensors::stored(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw ConfigError(text(folder_.string(), ": has no tensor '", name, "'"));
  return found->second;
}

WholeTensor PartedSafetensors::whole(const std::string& name) const {
  const auto& tensor = stored(name);
  if (tensor.parts.size() == 1) return {files_[tensor.parts[0].file].tensor(name)};
  auto [memory, into] = new_tensor(tensor.type, tensor.shape);
  read_box(name, Box::whole(tensor.shape), into);
  return {into, std::move(memory)};
}

void PartedSafetensors::read_box(const std::string& name, const Box& box, const Tensor& into) const {
  for (const auto& part : stored(name).parts)
    if (const auto common = intersection(part.box, box))
      checkpoint::copy_box(*common, files_[part.file].tensor(name), part.box, into, box);
}

std::optional<checkpoint::MappedTensor> PartedSafetensors::mapped_whole(const std::string& name) const {
  const auto& tensor = stored(name);
  if (tensor.parts.size() != 1) return std::nullopt;
  return files_[tensor.parts[0].file].mapped(name);
}

void PartedSafetensors::require_intact() const {
  for (const auto& file : files_) file.require_intact();
}

std::unique_ptr<checkpoint::NamedTensors> open_tensor_folder(const fs::path& folder) {
  if (PartedSafetensors::is_here(folder)) return std::make_unique<PartedSafetensors>(folder);
  if (is_plain_dcp(folder) && !fs::exists(folder / whole_model) && !fs::exists(folder / whole_index))
    return std::make_unique<DcpTensors>(folder);
  return std::make_unique<checkpoint::SafetensorsReader>(folder);
}

}  // namespace tessera::torch
