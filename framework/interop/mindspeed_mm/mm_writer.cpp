#include "framework/interop/mindspeed_mm/mm_writer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/torch/torch_file.h"

namespace tessera::mindspeed_mm {
namespace {

namespace fs = std::filesystem;

constexpr const char* release_folder = "release";
constexpr const char* tracker_file = "latest_checkpointed_iteration.txt";
constexpr double checkpoint_version = 3.0;

/// A tensor of a rank: its local name, and the tensor of the source that has its elements.
struct Item {
  std::string name;
  const MmTensor* of;
};

class MmWriter {
 public:
  MmWriter(const MmSource& source, const MmLayout& layout, const MmTable& table, bool without_text)
      : source_(source), layout_(layout) {
    items_.assign(layout.chunks(), std::vector<std::vector<Item>>(layout.stages()));
    for (const auto& [name, tensor] : source.tensors())
      if (!without_text || tensor.row->tower == 0) add(*tensor.row, tensor.layer, tensor);
    if (source.is_tied() && layout.stages() > 1 && !without_text)
      add(*table.theirs(table.tied().first)->row, -1, source.tensors().at(table.tied().second));
  }

  void write(const fs::path& out) {
    for (std::int64_t rank = 0; rank < layout_.tensor_parallel; ++rank)
      for (std::size_t stage = 0; stage < layout_.stages(); ++stage) write_rank(out, rank, stage);
    write_file_atomic(out / tracker_file, release_folder);
  }

 private:
  void add(const MmRow& row, std::int64_t layer, const MmTensor& of) {
    const auto place = place_of(row, layer, layout_);
    const auto local = layer < 0 ? layer : layer - layout_.layers_before(row.tower, place);
    items_[place.chunk][place.stage].push_back({numbered_name(row, local), &of});
  }

  void write_rank(const fs::path& out, std::int64_t rank, std::size_t stage) {
    const auto folder = out / release_folder / rank_folder(layout_, rank, static_cast<std::int64_t>(stage));
    make_folder(folder);
    torch::TorchFileWriter file;
    auto& p = file.pickle;
    p.empty_dict();
    p.mark();
    for (std::size_t chunk = 0; chunk < layout_.chunks(); ++chunk) {
      p.text(chunk_key(chunk, layout_.chunks()));
      p.empty_dict();
      p.mark();
      for (const auto& item : items_[chunk][stage]) {
        p.text(item.name);
        const auto shape = part_shape(item.of->name(), item.of->row->cut, item.of->shape, layout_.tensor_parallel);
        file.tensor(item.of->type, shape, [this, of = item.of, rank, shape] { return part(*of, rank, shape); });
      }
      p.set_items();
    }
    p.text("checkpoint_version");
    p.real(checkpoint_version);
    p.set_items();
    file.write(folder / weights_file_name);
  }

  std::span<const std::byte> part(const MmTensor& tensor, std::int64_t rank, const Shape& shape) {
    whole_.resize(tensor.bytes());
    source_.read(tensor, whole_);
    if (shape == tensor.shape) return whole_;
    part_.resize(static_cast<std::size_t>(shape.elements()) * size_of(tensor.type));
    move_part(tensor.row->cut, whole_, part_, tensor.shape, rank, layout_.tensor_parallel, false);
    return part_;
  }

  const MmSource& source_;
  const MmLayout& layout_;
  std::vector<std::vector<std::vector<Item>>> items_;  ///< [chunk][stage]
  std::vector<std::byte> whole_, part_;
};

}  // namespace

std::string rank_folder(const MmLayout& layout, std::int64_t rank, std::int64_t stage) {
  checkpoint::CheckpointLayout sizes;
  sizes.tensor = layout.tensor_parallel;
  sizes.layers.resize(layout.stages());
  return megatron::megatron_rank_folder(sizes, rank, stage);
}

std::string chunk_key(std::size_t chunk, std::size_t chunks) {
  return chunks == 1 ? std::string("model") : text("model", chunk);
}

MmPlace place_of(const MmRow& row, std::int64_t layer, const MmLayout& layout) {
  if (row.at == MmRow::At::first) return layout.first(row.tower);
  if (row.at == MmRow::At::last) return layout.last(row.tower);
  for (const auto& place : layout.places()) {
    const auto before = layout.layers_before(row.tower, place);
    if (layer >= before && layer < before + layout.layers(row.tower, place)) return place;
  }
  throw BugError(text("internal error: no stage has layer ", layer));
}

std::vector<std::string> indivisible(const MmSource& source, const MmLayout& layout) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : source.tensors()) {
    if (tensor.layer > 0) continue;  // every layer has the same shapes
    try {
      (void)part_shape(name, tensor.row->cut, tensor.shape, layout.tensor_parallel);
    } catch (const ShapeError& error) {
      all.emplace_back(error.what());
    }
  }
  return all;
}

void write_mm_folder(const fs::path& out, const MmSource& source, const MmLayout& layout, const MmTable& table,
                     bool without_text) {
  MmWriter(source, layout, table, without_text).write(out);
}

}  // namespace tessera::mindspeed_mm
