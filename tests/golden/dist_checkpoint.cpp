#include "tests/golden/dist_checkpoint.h"

#include <algorithm>
#include <set>

#include "framework/base/files.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/options/mappings.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;
using Kind = torch::PickleNode::Kind;

const std::string layers_begin = "decoder.layers.";

const torch::PickleNode& must_find(const torch::PickleNode* dict, const char* key) {
  const auto* found = dict == nullptr ? nullptr : dict->find(key);
  if (found == nullptr) throw ConfigError(text(".metadata: '", key, "' was expected"));
  return *found;
}

/// The attributes of an object; null when it has none.
const torch::PickleNode* state_of(const torch::PickleNode& object) {
  return object.kind == Kind::call && object.items.size() > 2 ? object.items[2] : nullptr;
}

/// torch.Size([640, 32])
std::vector<std::int64_t> size_of(const torch::PickleNode& node) {
  std::vector<std::int64_t> dims;
  if (node.kind == Kind::call && node.items.size() > 1 && !node.items[1]->items.empty())
    for (const auto* dim : node.items[1]->items[0]->items) dims.push_back(dim->integer);
  return dims;
}

/// One dim less, that of the layers.
template <class List>
List without_first(const List& list) {
  return List(list.begin() + 1, list.end());
}

/// A box of a saved tensor, and where it lies.
struct Stored {
  std::string name;
  std::vector<std::int64_t> offsets;
  std::string file;
  std::int64_t begin = 0, bytes = 0;
};

class DistReader {
 public:
  DistReader(const fs::path& folder, const fs::path& scratch)
      : folder_(folder),
        piece_(scratch / "piece.pt"),
        metadata_(folder / ".metadata"),
        pickle_(metadata_.bytes(), (folder / ".metadata").string(),
                {"torch.distributed.checkpoint.", "torch.serialization "}),
        table_(options::Mappings().table("weights/megatron.yaml")) {}

  RecordedTensors read() {
    const auto* root = state_of(pickle_.root());
    const auto& tensors = must_find(root, "state_dict_metadata");
    const auto& stored = must_find(root, "storage_data");
    for (std::size_t i = 0; i + 1 < stored.items.size(); i += 2) {
      const auto piece = stored_at(*stored.items[i], *stored.items[i + 1]);
      const auto* about = tensors.find(piece.name);
      if (about == nullptr || state_of(*about) == nullptr || state_of(*about)->find("size") == nullptr) continue;
      take(piece, size_of(must_find(state_of(*about), "size")));
    }
    return std::move(out_);
  }

 private:
  static Stored stored_at(const torch::PickleNode& index, const torch::PickleNode& info) {
    Stored piece;
    const auto* key = state_of(index);
    piece.name = must_find(key, "fqn").text;
    if (const auto* offsets = key->find("offset")) piece.offsets = size_of(*offsets);
    piece.file = must_find(state_of(info), "relative_path").text;
    piece.begin = must_find(state_of(info), "offset").integer;
    piece.bytes = must_find(state_of(info), "length").integer;
    return piece;
  }

  /// "optimizer.state.exp_avg." -> "optimizer.exp_avg."; a master stands for its weight.
  static std::string take_prefix(std::string& name) {
    const std::string state = "optimizer.state.";
    if (name.rfind(state, 0) != 0) return "";
    const auto dot = name.find('.', state.size());
    if (dot == std::string::npos) return "";
    const auto slot = name.substr(state.size(), dot - state.size());
    name.erase(0, dot + 1);
    return slot == "fp32_param" || slot == "param" ? "master" : "optimizer." + slot + ".";
  }

  void take(const Stored& piece, std::vector<std::int64_t> size) {
    auto name = piece.name;
    const auto prefix = take_prefix(name);
    auto offsets = piece.offsets;
    const bool stacked = name.rfind(layers_begin, 0) == 0 && name.size() > layers_begin.size() &&
                         std::isdigit(static_cast<unsigned char>(name[layers_begin.size()])) == 0;
    if (stacked && (offsets.size() < 2 || offsets.size() != size.size())) return;
    const auto first = stacked ? offsets[0] : 0;
    if (stacked) offsets = without_first(offsets), size = without_first(size);
    const auto bytes = MappedFile(folder_ / piece.file);
    if (piece.begin < 0 || piece.bytes < 0 ||
        static_cast<std::size_t>(piece.begin + piece.bytes) > bytes.bytes().size())
      throw ConfigError(text(piece.file, ": ends before ", piece.name));
    const auto content =
        bytes.bytes().subspan(static_cast<std::size_t>(piece.begin), static_cast<std::size_t>(piece.bytes));
    write_file_atomic(piece_, std::string_view(reinterpret_cast<const char*>(content.data()), content.size()));
    const torch::TorchFile file(piece_);
    const auto tensor = file.tensor(file.root(), piece.name);
    const auto layers = stacked ? tensor.shape()[0] : 1;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const auto whole =
          stacked ? layers_begin + std::to_string(first + layer) + name.substr(layers_begin.size() - 1) : name;
      place(prefix, whole, Shape(size), offsets, stacked ? tensor.slice(layer, 1) : tensor, stacked);
    }
  }

  void place(const std::string& prefix, const std::string& theirs, const Shape& size,
             const std::vector<std::int64_t>& offsets, const Tensor& part, bool stacked) {
    auto name = megatron::our_name_of_megatron(theirs, table_);
    if (name.empty()) return;
    const std::string experts = ".experts.experts.";  // with an axis of experts in front
    const auto own = part.shape().dims();
    const std::size_t before = stacked ? 1 : 0;
    if (const auto mark = theirs.find(experts); mark != std::string::npos && own.size() > before) {
      if (size.rank() == 0 || offsets.size() != size.rank() || own.size() - before != size.rank()) return;  // kept flat
      const auto dims = size.dims();
      const Shape rest(std::vector<std::int64_t>(dims.begin() + 1, dims.end()));
      const Shape one(std::vector<std::int64_t>(own.begin() + static_cast<std::ptrdiff_t>(before) + 1, own.end()));
      const auto all =
          part.reshaped(Shape(std::vector<std::int64_t>(own.begin() + static_cast<std::ptrdiff_t>(before), own.end())));
      for (std::int64_t e = 0; e < all.shape()[0]; ++e)
        place(prefix,
              text(theirs.substr(0, mark), ".experts.local_experts.", offsets[0] + e, ".",
                   theirs.substr(mark + experts.size())),
              rest, without_first(offsets), all.slice(e, 1).reshaped(one), false);
      return;
    }
    const Shape extents(std::vector<std::int64_t>(own.begin() + (stacked ? 1 : 0), own.end()));
    if (extents.rank() != size.rank() || offsets.size() != size.rank()) return;  // kept flat
    if (prefix == "master") {
      if (masters_.insert(name).second) out_.erase(name);
    } else if (prefix.empty() && masters_.count(name) != 0) {
      return;
    } else {
      name = prefix + name;
    }
    auto& whole = out_[name];
    whole.shape = size;
    whole.elements.resize(static_cast<std::size_t>(size.elements()));
    const auto box = Box::of(offsets, extents);
    checkpoint::copy_box(box, part, box, Tensor(std::span(whole.elements), size),
                         Box::of(std::vector<std::int64_t>(size.rank(), 0), size));
  }

  fs::path folder_, piece_;
  MappedFile metadata_;
  torch::Pickle pickle_;
  options::Value table_;
  RecordedTensors out_;
  std::set<std::string> masters_;
};

}  // namespace

bool is_dist_checkpoint(const fs::path& folder) {
  return fs::exists(folder / ".metadata") && fs::exists(folder / "metadata.json");
}

RecordedTensors read_dist_checkpoint(const fs::path& folder, const fs::path& scratch) {
  return DistReader(folder, scratch).read();
}

}  // namespace tessera::golden
