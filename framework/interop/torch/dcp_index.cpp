#include "framework/interop/torch/dcp_index.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "framework/base/error.h"
#include "framework/interop/torch/packed_pickle.h"
#include "framework/interop/torch/pickle.h"
#include "framework/tensor/box.h"

namespace tessera::torch {
namespace {

using Value = PackedValue;
using ValueKind = PackedValue::Kind;

/// What a .metadata may name. Naming is all that happens: nothing here is looked up, imported or called.
bool is_of_index(const std::string& global) {
  static constexpr std::array<std::string_view, 23> known = {
      "torch.distributed.checkpoint.metadata Metadata",
      "torch.distributed.checkpoint.metadata TensorStorageMetadata",
      "torch.distributed.checkpoint.metadata TensorProperties",
      "torch.distributed.checkpoint.metadata ChunkStorageMetadata",
      "torch.distributed.checkpoint.metadata BytesStorageMetadata",
      "torch.distributed.checkpoint.metadata MetadataIndex",
      "torch.distributed.checkpoint.metadata StorageMeta",
      "torch.distributed.checkpoint.metadata _MEM_FORMAT_ENCODING",
      "torch.distributed._shard.sharded_tensor.metadata TensorProperties",
      "torch.distributed._shard.sharded_tensor.metadata MEM_FORMAT_ENCODING",
      "torch.distributed.checkpoint.filesystem _StorageInfo",
      "torch.distributed.checkpoint.planner WriteItem",
      "torch.distributed.checkpoint.planner WriteItemType",
      "torch.distributed.checkpoint.planner TensorWriteData",
      "torch.distributed.checkpoint.planner BytesIOWriteData",
      "torch.distributed.checkpoint.planner SavePlan",
      "megatron.core.dist_checkpointing.strategies.torch MCoreSavePlan",
      "megatron.core.dist_checkpointing.strategies.torch MCoreMetadata",
      "torch Size",
      "torch.serialization _get_layout",
      "pathlib PosixPath",
      "pathlib PurePosixPath",
      "collections OrderedDict"};
  return is_element_type(global) || std::find(known.begin(), known.end(), global) != known.end();
}

struct NamedType {
  std::string_view name;
  DType type;
};
constexpr NamedType types_of_index[] = {{"torch float32", DType::float32}, {"torch float64", DType::float64},
                                        {"torch float16", DType::float16}, {"torch bfloat16", DType::bfloat16},
                                        {"torch int64", DType::int64},     {"torch int32", DType::int32},
                                        {"torch uint8", DType::uint8},     {"torch bool", DType::uint8}};

bool ends_with(std::string_view words, std::string_view end) {
  return words.size() >= end.size() && words.substr(words.size() - end.size()) == end;
}

/// "[3, 0]", also of numbers that are no shape.
std::string in_brackets(std::span<const std::int64_t> numbers) {
  std::vector<std::string> words;
  for (const auto number : numbers) words.push_back(std::to_string(number));
  return text("[", joined(words), "]");
}

/// An entry of 'storage_data': of a chunk, or of an object.
struct Stored {
  std::span<const Value> offsets;
  DcpPlace place;
};

class IndexReader {
 public:
  IndexReader(std::span<const std::byte> bytes, const std::string& speaker)
      : pickle_(bytes, speaker, is_of_index, "all_local_plans"), root_(pickle_.state(pickle_.root())) {}

  DcpIndex read() {
    if (!ends_with(pickle_.name(pickle_.root()), "Metadata"))
      pickle_.refuse("is not the index of a distributed checkpoint: a Metadata was expected");
    const auto tensors = pickle_.items(must_find(root_, "state_dict_metadata"));
    for (std::size_t i = 0; i + 1 < tensors.size(); i += 2) add_entry(text_of(tensors[i]), tensors[i + 1]);
    take_storage();
    for (std::size_t i = 0; i < out_.tensors.size(); ++i) place_chunks(i);
    take_flattened();
    take_paths();
    return std::move(out_);
  }

 private:
  const Value& must_find(const Value& dict, const char* key) const {
    const auto* found = pickle_.find(dict, key);
    if (found == nullptr || found->kind == ValueKind::hollow) pickle_.refuse(text("'", key, "' was expected"));
    return *found;
  }
  std::string text_of(const Value& value) const {
    if (value.kind != ValueKind::words) pickle_.refuse("a text was expected as key");
    return std::string(PackedPickle::words(value));
  }
  std::int64_t number_of(const Value& value, const std::string& what) const {
    if (value.kind != ValueKind::integer || value.integer < 0)
      pickle_.refuse(text(what, " is ",
                          value.kind == ValueKind::integer ? std::to_string(value.integer) : std::string("no integer"),
                          "; a number of at least 0 was expected"));
    return value.integer;
  }
  std::span<const Value> size_of_value(const Value& value, const std::string& key) const {
    if (value.kind != ValueKind::tuple) pickle_.refuse(text("'", key, "': a torch.Size was expected"));
    return pickle_.items(value);
  }
  Shape shape_of(const Value& value, const std::string& key) const {
    std::vector<std::int64_t> dims;
    const auto items = size_of_value(value, key);
    for (const auto& item : items) dims.push_back(number_of(item, text("a size of '", key, "'")));
    try {
      return Shape(dims);
    } catch (const ShapeError& error) {
      pickle_.refuse(text("'", key, "': ", error.what()));
    }
  }
  DType type_of(const Value& properties, const std::string& key) const {
    const auto& state = pickle_.state(properties);
    const auto items = pickle_.items(state);  // a tuple; in older files a dict
    const auto* given = state.kind == ValueKind::dict ? pickle_.find(state, "dtype")
                        : items.empty()               ? nullptr
                                                      : &items[0];
    const auto name = given == nullptr ? std::string_view() : pickle_.name(*given);
    for (const auto& known : types_of_index)
      if (known.name == name) return known.type;
    pickle_.refuse(
        text("'", key, "' has elements of '", name, "', which are not read; save it in float32 or bfloat16"));
  }

  void add_entry(std::string key, const Value& about) {
    const auto name = pickle_.name(about);
    if (ends_with(name, " BytesStorageMetadata")) {
      places_of_.emplace(key, objects);
      out_.objects.emplace(std::move(key), DcpPlace());
      return;
    }
    if (!ends_with(name, " TensorStorageMetadata"))
      pickle_.refuse(text("'", key, "' is a '", name, "'; a tensor or an object was expected"));
    const auto& state = pickle_.state(about);
    DcpTensor tensor{key, type_of(must_find(state, "properties"), key), shape_of(must_find(state, "size"), key)};
    if (!places_of_.emplace(std::move(key), out_.tensors.size()).second)
      pickle_.refuse(text("'", tensor.key, "' is there twice"));
    stored_chunks_.push_back(pickle_.items(must_find(state, "chunks")));
    out_.tensors.push_back(std::move(tensor));
  }

  std::uint32_t file_of(const Value& name, const std::string& key) {
    const auto words = text_of(name);
    const auto [found, is_new] = files_.emplace(words, static_cast<std::uint32_t>(out_.files.size()));
    if (!is_new) return found->second;
    if (words.empty() || words.find('/') != std::string::npos || words.find('\0') != std::string::npos ||
        words == ".." || words == ".")
      pickle_.refuse(text("'", key, "' is in the file '", words, "'; the name of a file in this folder was expected"));
    out_.files.push_back(words);
    return found->second;
  }

  DcpPlace place_of(const Value& info, const std::string& key) {
    const auto& state = pickle_.state(info);
    const auto* transforms = pickle_.find(state, "transform_descriptors");
    if (transforms != nullptr && transforms->kind != ValueKind::none && !pickle_.items(*transforms).empty())
      pickle_.refuse(text("'", key, "' has been transformed by '",
                          PackedPickle::words(pickle_.items(*transforms).front()),
                          "', which is not read; save it without transforms"));
    DcpPlace place;
    place.file = file_of(must_find(state, "relative_path"), key);
    place.begin = static_cast<std::uint64_t>(number_of(must_find(state, "offset"), text("the offset of '", key, "'")));
    place.bytes = static_cast<std::uint64_t>(number_of(must_find(state, "length"), text("the length of '", key, "'")));
    return place;
  }

  void take_storage() {
    stored_.resize(out_.tensors.size());
    const auto all = pickle_.items(must_find(root_, "storage_data"));
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
      const auto& index = pickle_.state(all[i]);
      const auto key = text_of(must_find(index, "fqn"));
      const auto found = places_of_.find(key);
      if (found == places_of_.end())
        pickle_.refuse(text("'", key, "' is stored, but 'state_dict_metadata' has it not"));
      const auto place = place_of(all[i + 1], key);
      if (found->second == objects) {
        out_.objects[key] = place;
        continue;
      }
      const auto* offset = pickle_.find(index, "offset");
      if (offset == nullptr || offset->kind != ValueKind::tuple)
        pickle_.refuse(text("a chunk of '", key, "' is stored without its offset"));
      stored_[found->second].push_back({pickle_.items(*offset), place});
    }
    for (const auto& [key, place] : out_.objects)
      if (place.bytes == 0) pickle_.refuse(text("the object '", key, "' is stored nowhere"));
  }

  static bool before(std::span<const Value> a, std::span<const Value> b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [](const auto& x, const auto& y) { return x.integer < y.integer; });
  }

  /// Adds the numbers of a size of the tensor's rank.
  void add_numbers(const Value& size, const DcpTensor& tensor) {
    const auto items = size_of_value(size, tensor.key);
    if (items.size() != tensor.size.rank())
      pickle_.refuse(text("a chunk of '", tensor.key, "' has ", items.size(), " dims, the tensor ", tensor.size));
    for (const auto& item : items) out_.numbers.push_back(number_of(item, text("a chunk of '", tensor.key, "'")));
  }

  void place_chunks(std::size_t at) {
    auto& tensor = out_.tensors[at];
    auto& stored = stored_[at];
    std::sort(stored.begin(), stored.end(), [](const auto& a, const auto& b) { return before(a.offsets, b.offsets); });
    const auto twice = std::adjacent_find(stored.begin(), stored.end(),
                                          [](const auto& a, const auto& b) { return !before(a.offsets, b.offsets); });
    if (twice != stored.end()) pickle_.refuse(text("a chunk of '", tensor.key, "' is stored twice"));
    tensor.first_chunk = out_.chunks.size();
    for (const auto& chunk : stored_chunks_[at]) {
      const auto& state = pickle_.state(chunk);
      const auto& offsets = must_find(state, "offsets");
      const auto numbers = out_.numbers.size();
      add_numbers(offsets, tensor);
      add_numbers(must_find(state, "sizes"), tensor);
      const auto own = pickle_.items(offsets);
      const auto found = std::lower_bound(stored.begin(), stored.end(), own,
                                          [](const auto& a, const auto& b) { return before(a.offsets, b); });
      const auto what = [&] {
        return text("the chunk of '", tensor.key, "' at ",
                    in_brackets(std::span(out_.numbers).subspan(numbers, tensor.size.rank())));
      };
      if (is_empty(numbers + tensor.size.rank(), tensor.size.rank())) {
        out_.numbers.resize(numbers);  // of a rank that has no part of the tensor
        continue;
      }
      if (found == stored.end() || before(own, found->offsets)) pickle_.refuse(text(what(), " is stored nowhere"));
      out_.chunks.push_back({found->place, numbers});
    }
    tensor.chunks = out_.chunks.size() - tensor.first_chunk;
    check_coverage(tensor);
    stored = {};
  }
  bool is_empty(std::size_t first, std::size_t count) const {
    const auto sizes = std::span(out_.numbers).subspan(first, count);
    return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  }

  Box box_of(const DcpTensor& tensor, const DcpChunk& chunk) const {
    const auto offsets = out_.offsets(tensor, chunk), extents = out_.extents(tensor, chunk);
    return {{offsets.begin(), offsets.end()}, {extents.begin(), extents.end()}};
  }

  /// The chunks are inside, disjoint, and have as many elements as the tensor. Two boxes can only meet if their ranges
  /// of every dimension do; sorted by the first that is divided, few pairs remain.
  void check_coverage(const DcpTensor& tensor) {
    const auto chunks = out_.chunks_of(tensor);
    std::int64_t elements = 0;
    for (const auto& chunk : chunks) {
      const auto offsets = out_.offsets(tensor, chunk), extents = out_.extents(tensor, chunk);
      std::int64_t own = 1;
      for (std::size_t dim = 0; dim < offsets.size(); ++dim) {
        if (offsets[dim] > tensor.size[dim] || extents[dim] > tensor.size[dim] - offsets[dim])
          pickle_.refuse(text("the chunk of '", tensor.key, "' at ", in_brackets(offsets), " of extents ",
                              in_brackets(extents), " is outside of the tensor ", tensor.size));
        own *= extents[dim];
      }
      elements += own;
      if (elements > tensor.size.elements()) break;
    }
    if (elements != tensor.size.elements())
      pickle_.refuse(text("the chunks of '", tensor.key, "' have ",
                          elements > tensor.size.elements() ? "at least " : "", elements, " elements, the tensor ",
                          tensor.size, " ", tensor.size.elements(), ": chunks are missing or there twice"));
    check_disjoint(tensor, chunks);
  }

  void check_disjoint(const DcpTensor& tensor, std::span<const DcpChunk> chunks) {
    std::vector<Box> boxes;
    for (const auto& chunk : chunks) boxes.push_back(box_of(tensor, chunk));
    std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.begin < b.begin; });
    disjoint(tensor, boxes, 0);
  }
  /// The boxes, sorted by where they begin, have no elements in common, as far as dimensions before `dim` do not
  /// already part them.
  void disjoint(const DcpTensor& tensor, std::span<const Box> boxes, std::size_t dim) {
    if (boxes.size() < 2) return;
    if (dim == tensor.size.rank())
      pickle_.refuse(text("two chunks of '", tensor.key, "' have the elements at ", in_brackets(boxes[0].begin)));
    for (std::size_t first = 0; first < boxes.size();) {
      auto end = boxes[first].begin[dim] + boxes[first].extent[dim];
      auto last = first + 1;
      bool alike = true;
      for (; last < boxes.size() && boxes[last].begin[dim] < end; ++last) {
        alike = alike && boxes[last].begin[dim] == boxes[first].begin[dim];
        end = std::max(end, boxes[last].begin[dim] + boxes[last].extent[dim]);
      }
      const auto own = boxes.subspan(first, last - first);
      alike ? disjoint(tensor, own, dim + 1) : pairwise_disjoint(tensor, own);
      first = last;
    }
  }
  void pairwise_disjoint(const DcpTensor& tensor, std::span<const Box> boxes) {
    for (std::size_t i = 0; i < boxes.size(); ++i)
      for (std::size_t k = i + 1; k < boxes.size(); ++k)
        if (intersection(boxes[i], boxes[k]))
          pickle_.refuse(text("two chunks of '", tensor.key, "' have the same elements: those at ",
                              in_brackets(boxes[i].begin), " and at ", in_brackets(boxes[k].begin)));
  }

  void take_flattened() {
    const auto* all = pickle_.find(root_, "mcore_data");
    if (all == nullptr || all->kind != ValueKind::dict) return;
    const auto items = pickle_.items(*all);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const auto* shape = pickle_.find(items[i + 1], "nd_reformulated_orig_global_shape");
      const auto found = places_of_.find(text_of(items[i]));
      if (shape == nullptr || shape->kind == ValueKind::none || found == places_of_.end() || found->second == objects)
        continue;
      out_.tensors[found->second].flattened_from = shape_of(*shape, found->first);
    }
  }

  void take_paths() {
    const auto* all = pickle_.find(root_, "planner_data");
    if (all == nullptr || all->kind != ValueKind::dict) return;
    const auto items = pickle_.items(*all);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      auto& path = out_.paths[text_of(items[i])];
      for (const auto& part : pickle_.items(items[i + 1]))
        path.push_back(part.kind == ValueKind::integer ? std::to_string(part.integer) : text_of(part));
    }
  }

  static constexpr std::size_t objects = std::numeric_limits<std::size_t>::max();
  PackedPickle pickle_;
  const Value& root_;
  std::unordered_map<std::string, std::size_t> places_of_;  ///< by key: in DcpIndex::tensors, or `objects`
  std::unordered_map<std::string, std::uint32_t> files_;
  std::vector<std::span<const Value>> stored_chunks_;  ///< by tensor: its list 'chunks'
  std::vector<std::vector<Stored>> stored_;            ///< by tensor
  DcpIndex out_;
};

}  // namespace

DcpIndex read_dcp_index(std::span<const std::byte> bytes, const std::string& speaker) {
  return IndexReader(bytes, speaker).read();
}

}  // namespace tessera::torch
