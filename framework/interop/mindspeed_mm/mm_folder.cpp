#include "framework/interop/mindspeed_mm/mm_folder.h"

#include <algorithm>
#include <set>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/mindspeed_mm/mm_writer.h"

namespace tessera::mindspeed_mm {
namespace {

namespace fs = std::filesystem;
using Kind = torch::PickleNode::Kind;

constexpr std::size_t most_named = 8;

std::set<std::string> rank_folders_in(const fs::path& folder) {
  std::set<std::string> all;
  for (const auto& entry : list_folder(folder))
    if (entry.filename().string().starts_with("mp_rank_")) all.insert(entry.filename().string());
  return all;
}

std::string some_of(const std::vector<std::string>& names) {
  std::string all;
  for (std::size_t i = 0; i < std::min(most_named, names.size()); ++i) all += "\n  " + names[i];
  return names.size() > most_named ? text(all, "\n  and ", names.size() - most_named, " more") : all;
}

std::string told_layout(const MmLayout& layout, const MmTable& table) {
  auto all = text("tp_size ", layout.tensor_parallel);
  for (std::size_t i = 0; i < layout.towers.size(); ++i)
    all += text(", ", table.tower_options()[i], "_pp_layers ", words(layout.towers[i]));
  return all;
}

const torch::PickleNode* chunk_in(const torch::TorchFile& file, std::size_t chunk, std::size_t chunks) {
  const auto* model = file.root().find(chunk_key(chunk, chunks));
  return model != nullptr && model->kind == Kind::dict ? model : nullptr;
}

std::size_t chunks_in(const torch::TorchFile& file) {
  if (chunk_in(file, 0, 1) != nullptr) return 1;
  std::size_t chunks = 0;
  while (chunk_in(file, chunks, chunks + 2) != nullptr) ++chunks;
  return chunks;
}

/// The tensor-parallel ranks and stages that the folders in `ranks` have. Throws ConfigError if one is missing.
MmLayout ranks_in_folder(const fs::path& ranks, const MmTable& table) {
  const auto there = rank_folders_in(ranks);
  MmLayout layout{1, std::vector<StageLayers>(table.towers().size())};
  const auto folders = [&](std::int64_t tensor_parallel, std::size_t stages) {
    layout.tensor_parallel = tensor_parallel;
    for (auto& tower : layout.towers) tower.chunks.assign(1, std::vector<std::int64_t>(stages, 0));
    std::set<std::string> all;
    for (std::int64_t rank = 0; rank < tensor_parallel; ++rank)
      for (std::size_t stage = 0; stage < stages; ++stage)
        all.insert(rank_folder(layout, rank, static_cast<std::int64_t>(stage)));
    return all;
  };
  const auto count = there.size();
  for (std::size_t stages = 1; stages <= count; ++stages)
    if (count % stages == 0 && folders(static_cast<std::int64_t>(count / stages), stages) == there) return layout;
  throw ConfigError(text(ranks.string(), ": has ", there.empty() ? "no folder mp_rank_*" : joined(there),
                         "; the folders of all tensor-parallel ranks and stages were expected, mp_rank_TT or "
                         "mp_rank_TT_PPP"));
}

}  // namespace

bool has_tensors_of(const fs::path& ranks, const MmTable& table) {
  const auto there = rank_folders_in(ranks);
  if (there.empty() || !fs::exists(ranks / *there.begin() / weights_file_name)) return false;
  const torch::TorchFile file(ranks / *there.begin() / weights_file_name);
  const auto chunks = chunks_in(file);
  for (std::size_t c = 0; c < chunks; ++c)
    for (const auto* item : chunk_in(file, c, chunks)->items)
      if (item->kind == Kind::words && table.theirs(item->text)) return true;
  return false;
}

MmLayout layout_of_folder(const fs::path& ranks, const MmTable& table) {
  auto layout = ranks_in_folder(ranks, table);
  const auto stages = layout.stages();
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const torch::TorchFile file(ranks / rank_folder(layout, 0, static_cast<std::int64_t>(stage)) / weights_file_name);
    const auto chunks = chunks_in(file);
    if (stage == 0)
      for (auto& tower : layout.towers) tower.chunks.assign(chunks, std::vector<std::int64_t>(stages, 0));
    if (chunks == 0 || chunks != layout.chunks())
      throw ConfigError(
          text(file.name(), ": has ", chunks, " chunks of the model (model, or model0, model1, ...); ",
               stage == 0 ? "not a checkpoint of MindSpeed-MM" : text(layout.chunks(), " were expected")));
    for (std::size_t c = 0; c < chunks; ++c)
      for (const auto* item : chunk_in(file, c, chunks)->items) {
        const auto name = item->kind == Kind::words ? table.theirs(item->text) : std::nullopt;
        if (!name || name->layer < 0) continue;
        auto& layers = layout.towers[name->row->tower].chunks[c][stage];
        layers = std::max(layers, name->layer + 1);
      }
  }
  return layout;
}

MmFolder::MmFolder(const fs::path& folder, const MmLayout& layout, const MmTable& table, std::optional<bool> tied)
    : folder_(megatron::megatron_iteration_folder(folder)), table_(table) {
  const auto found = layout_of_folder(folder_, table_);
  if (found != layout)
    refuse(text("was saved with another layout: ", told_layout(found, table_), "; the command says ",
                told_layout(layout, table_), "; give the layout of the folder"));
  open(layout);
  for (const auto& place : layout.places()) take(layout, place);
  refuse_missing(layout);
  settle_tie(layout, tied);
}

void MmFolder::refuse(const std::string& message) const { throw ConfigError(text(folder_.string(), ": ", message)); }

void MmFolder::open(const MmLayout& layout) {
  files_.resize(static_cast<std::size_t>(layout.tensor_parallel));
  for (std::size_t rank = 0; rank < files_.size(); ++rank)
    for (std::size_t stage = 0; stage < layout.stages(); ++stage) {
      const auto name = rank_folder(layout, static_cast<std::int64_t>(rank), static_cast<std::int64_t>(stage));
      files_[rank].push_back(std::make_unique<torch::TorchFile>(folder_ / name / weights_file_name));
    }
}

const torch::PickleNode* MmFolder::chunk(std::size_t rank, const MmPlace& place, std::size_t chunks) const {
  return chunk_in(file(rank, place.stage), place.chunk, chunks);
}

void MmFolder::take(const MmLayout& layout, const MmPlace& place) {
  const auto* first = chunk(0, place, layout.chunks());
  std::vector<std::string> unknown;
  for (std::size_t i = 0; i + 1 < first->items.size(); i += 2) {
    const auto& local = first->items[i]->text;
    if (!torch::TorchFile::is_tensor(*first->items[i + 1]) || table_.ignores(local)) continue;
    const auto name = table_.theirs(local);
    if (!name) {
      unknown.push_back(local);
      continue;
    }
    const auto& row = *name->row;
    const auto layer = name->layer < 0 ? -1 : name->layer + layout.layers_before(row.tower, place);
    if (layer < 0 && place_of(row, -1, layout) != place)
      refuse(text(file(0, place.stage).name(), " has ", local, ", which belongs to stage ",
                  place_of(row, -1, layout).stage, " of this layout"));
    Held held{place.stage, {}};
    for (std::size_t rank = 0; rank < files_.size(); ++rank) {
      const auto* other = chunk(rank, place, layout.chunks());
      held.nodes.push_back(other == nullptr ? nullptr : other->find(local));
      if (held.nodes.back() == nullptr) refuse(text(file(rank, place.stage).name(), " has no ", local));
    }
    add({&row, layer, DType::float32, {}}, std::move(held));
  }
  if (!unknown.empty())
    refuse(text(file(0, place.stage).name(), " has tensors that a Qwen2-VL of MindSpeed-MM has not; ",
                "another model, or another release:", some_of(unknown)));
}

void MmFolder::add(const MmTensor& first, Held held) {
  auto tensor = first;
  const auto name = tensor.name();
  const auto one = header(held, 0, name);
  for (std::size_t rank = 1; rank < held.nodes.size(); ++rank)
    if (const auto other = header(held, rank, name); other.shape() != one.shape() || other.dtype() != one.dtype())
      refuse(text(name, " is ", one.shape(), " on rank 0 and ", other.shape(), " on rank ", rank,
                  "; all ranks have equal parts"));
  tensor.type = one.dtype();
  tensor.shape = whole_shape(text(folder_.string(), ": ", name), tensor.row->cut, one.shape(),
                             static_cast<std::int64_t>(held.nodes.size()));
  held_.emplace(name, std::move(held));
  tensors_.emplace(name, std::move(tensor));
}

void MmFolder::refuse_missing(const MmLayout& layout) const {
  std::vector<std::string> missing;
  for (const auto& row : table_.rows()) {
    const auto layers = row.at == MmRow::At::layer ? layout.towers[row.tower].sum() : 1;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const auto name = numbered_name(row, layer);
      if (tensors_.count(name) == 0 && name != table_.tied().first) missing.push_back(name);
    }
  }
  if (!missing.empty()) refuse("lacks tensors of a Qwen2-VL:" + some_of(missing));
}

void MmFolder::settle_tie(const MmLayout& layout, std::optional<bool> tied) {
  const auto& [copy, of] = table_.tied();
  const bool has_copy = tensors_.count(copy) != 0;
  if (!tied) tied = !has_copy || (layout.stages() > 1 && has_equal_elements(copy, of));
  tied_ = *tied;
  if (!tied_ && !has_copy)
    refuse(text("has no ", copy, ", but the model has an output layer of its own (tie_word_embeddings is false)"));
  if (!tied_ || !has_copy) return;
  if (!has_equal_elements(copy, of))
    refuse(text(copy, " differs from ", of, ", but one serves for both in this model (tie_word_embeddings is true)"));
  tensors_.erase(copy);
}

bool MmFolder::has_equal_elements(const std::string& one, const std::string& other) const {
  const auto &a = held_.at(one), &b = held_.at(other);
  for (std::size_t rank = 0; rank < files_.size(); ++rank) {
    const auto x = header(a, rank, one), y = header(b, rank, other);
    if (x.dtype() != y.dtype() || x.shape() != y.shape() || part(a, rank, one) != part(b, rank, other)) return false;
  }
  return true;
}

Tensor MmFolder::header(const Held& held, std::size_t rank, const std::string& name) const {
  return file(rank, held.stage).header(*held.nodes[rank], name);
}

std::vector<std::byte> MmFolder::part(const Held& held, std::size_t rank, const std::string& name) const {
  std::vector<std::byte> elements(header(held, rank, name).bytes());
  file(rank, held.stage).read(*held.nodes[rank], name, elements);
  file(rank, held.stage).require_intact();
  return elements;
}

std::int64_t MmFolder::iteration() const {
  const auto* number = file(0, 0).root().find("iteration");
  return number != nullptr && number->kind == Kind::integer ? number->integer : 0;
}

std::uint64_t MmFolder::file_bytes() const {
  std::uint64_t all = 0;
  for (const auto& rank : files_)
    for (const auto& one : rank) all += one->bytes();
  return all;
}

void MmFolder::verify() const {
  for (const auto& rank : files_)
    for (const auto& one : rank) one->verify();
}

void MmFolder::read(const MmTensor& tensor, std::span<std::byte> into) const {
  const auto name = tensor.name();
  const auto& held = held_.at(name);
  const auto ranks = tensor.row->cut == MmCut::none ? std::size_t{1} : held.nodes.size();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto elements = part(held, rank, name);
    move_part(tensor.row->cut, into, elements, tensor.shape, static_cast<std::int64_t>(rank),
              static_cast<std::int64_t>(held.nodes.size()), true);
  }
}

}  // namespace tessera::mindspeed_mm
