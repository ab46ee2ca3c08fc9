#include "framework/interop/megatron/megatron_dist_buffers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/checkpoint/layout.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/megatron/megatron_parts.h"
#include "framework/interop/tables/our_names.h"
#include "framework/parallel/layer_shares.h"

namespace tessera::megatron {
namespace {

using torch::DcpFolder;
using torch::PickleNode;

const std::string tied_head = "output_layer.weight", word_table = "embedding.word_embeddings.weight";

/// Key of a buffer: which optimizer of a chain has it, and which group of data-parallel ranks.
struct BufferKey {
  std::int64_t optimizer = -1;  ///< -1: there is one
  std::int64_t group = 0;
  std::int64_t buffer = 0, bucket = 0;  ///< of tensors
  std::string slot = {};                ///< of tensors
};

/// Takes `word` from the beginning of `rest`; false if it begins otherwise.
bool took(std::string_view& rest, std::string_view word) {
  if (!rest.starts_with(word)) return false;
  rest.remove_prefix(word.size());
  return true;
}

/// Takes a number of at most nine digits; false if there is none.
bool took(std::string_view& rest, std::int64_t& number) {
  const auto digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits == 0 || digits > 9) return false;
  number = std::stoll(std::string(rest.substr(0, digits)));
  rest.remove_prefix(digits);
  return true;
}

/// [chained_I.]optimizer.distributed.dp_group_idx_I.param_state/shard_0_1, or
/// [chained_I.]optimizer.distributed.dp_group_idx_I.gbuf_idx_I.dtype_(...).bucket_idx_I.SLOT
std::optional<BufferKey> buffer_key(const std::string& key) {
  BufferKey of;
  std::string_view rest = key;
  if (took(rest, "chained_") && !(took(rest, of.optimizer) && took(rest, "."))) return std::nullopt;
  if (!took(rest, "optimizer.distributed.dp_group_idx_") || !took(rest, of.group) || !took(rest, "."))
    return std::nullopt;
  if (rest == "param_state/shard_0_1") return of;
  if (!took(rest, "gbuf_idx_") || !took(rest, of.buffer) || !took(rest, ".dtype_(")) return std::nullopt;
  constexpr std::string_view behind_type = ").bucket_idx_";
  const auto type = rest.rfind(behind_type);
  if (type == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(type + behind_type.size());
  if (!took(rest, of.bucket) || !took(rest, ".")) return std::nullopt;
  const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  if (rest.empty() || !std::all_of(rest.begin(), rest.end(), letter)) return std::nullopt;
  of.slot = rest;
  return of;
}

/// A weight in a buffer.
struct Placed {
  const WeightPart* part;
  std::int64_t begin;  ///< first element in the buffer
};

/// The weights that a rank has in one buffer.
struct Buffer {
  std::vector<Placed> weights;
  std::vector<std::int64_t> buckets;  ///< where each begins
  std::int64_t elements = 0;
};

class BufferReader {
 public:
  BufferReader(DistWeights& weights, const DcpFolder& folder, const MegatronSaved& saved, const options::Value& recipe,
               const options::Value& table, std::string speaker)
      : weights_(weights), folder_(folder), saved_(saved), table_(table), speaker_(std::move(speaker)) {
    read_layout();
    parts_ = rank_parts(recipe, layout_);
  }

  std::vector<std::unique_ptr<torch::TorchFile>> read() {
    for (const auto& [key, place] : folder_.index().objects)
      if (const auto of = buffer_key(key)) take_object(key, *of);
    for (const auto& tensor : folder_.index().tensors)
      if (const auto of = buffer_key(tensor.key)) take_tensor(tensor, *of);
    return std::move(objects_);
  }

 private:
  /// Which elements of a buffer belong to which weight follows from the layout that saved it.
  [[noreturn]] void refuse(const std::string& message) const {
    throw ConfigError(text(speaker_, ": ", message, "; let Megatron-LM save the checkpoint in a form that does not ",
                           "depend on its ranks: with --dist-ckpt-optim-fully-reshardable from core_v0.15 on, before ",
                           "that without --no-ckpt-fully-parallel-save, or with --ckpt-format torch"));
  }

  void read_layout() {
    layout_.tensor = saved_.count("tensor_model_parallel_size", 1);
    layout_.expert = saved_.count("expert_model_parallel_size", 1);
    layout_.vocabulary = saved_.count("padded_vocab_size", 0);
    if (saved_.count("num_experts", 0) > 0) layout_.expert_tensor = saved_.count("expert_tensor_parallel_size", 0);
    parallel::ParallelOptions cut;
    cut.pipeline_model_parallel_size = saved_.count("pipeline_model_parallel_size", 1);
    const auto optional = [&](const char* name) -> std::optional<std::int64_t> {
      const auto value = saved_.count(name, -1);
      return value >= 0 ? std::optional(value) : std::nullopt;
    };
    const auto layers = saved_.count("num_layers", 0);
    cut.virtual_pipeline_model_parallel_size = optional("virtual_pipeline_model_parallel_size");
    if (!cut.virtual_pipeline_model_parallel_size)
      cut.num_layers_per_virtual_pipeline_stage = optional("num_layers_per_virtual_pipeline_stage");
    cut.decoder_first_pipeline_num_layers = optional("decoder_first_pipeline_num_layers");
    cut.decoder_last_pipeline_num_layers = optional("decoder_last_pipeline_num_layers");
    cut.account_for_embedding_in_pipeline_split = saved_.flag("account_for_embedding_in_pipeline_split");
    cut.account_for_loss_in_pipeline_split = saved_.flag("account_for_loss_in_pipeline_split");
    cut.pipeline_model_parallel_layout = saved_.words("pipeline_model_parallel_layout");
    for (const auto& [value, most] : {std::pair{layout_.tensor, 4096L},
                                      {layout_.expert, 65536L},
                                      {cut.pipeline_model_parallel_size, 4096L},
                                      {cut.virtual_pipeline_model_parallel_size.value_or(1), 4096L},
                                      {cut.num_layers_per_virtual_pipeline_stage.value_or(1), 4096L},
                                      {layers, 1L << 20}})
      if (value < 1 || value > most) refuse(text("its arguments name ", value, " ranks, chunks or layers of a kind"));
    std::vector<options::Finding> mistakes;
    layout_.layers = parallel::layer_shares(cut, layers, mistakes);
    if (!mistakes.empty())
      refuse(text("has optimizer state in buffers of pipeline stages; its arguments do not say which layers each had: ",
                  mistakes[0].message));
  }

  /// Number of the first layer of a chunk: layers are numbered through chunk 0 of all stages, then chunk 1, ...
  std::int64_t first_layer(std::size_t stage, std::size_t chunk) const {
    std::int64_t first = 0;
    for (std::size_t c = 0; c <= chunk; ++c)
      for (std::size_t s = 0; s < layout_.layers.size() && (c < chunk || s < stage); ++s) first += layout_.layers[s][c];
    return first;
  }

  bool is_in_chunk(const std::string& name, std::size_t stage, std::size_t chunk) const {
    const bool begins = stage == 0 && chunk == 0;
    const bool ends = stage + 1 == layout_.layers.size() && chunk + 1 == layout_.layers[0].size();
    if (const auto layer = checkpoint::layer_of(name); layer >= 0) {
      const auto first = first_layer(stage, chunk);
      return layer >= first && layer < first + layout_.layers[stage][chunk];
    }
    return name.rfind("embedding.", 0) == 0 ? begins || (ends && name == word_table && has_copies()) : ends;
  }
  /// Whether the last stage has a copy of the embedding.
  bool has_copies() const {
    return layout_.stages() > 1 && (saved_.is_tied() || saved_.count("mtp_num_layers", 0) > 0);
  }
  bool is_trained(const std::string& name) const {
    const auto* buffers = table_.find("buffers");
    return buffers == nullptr || std::none_of(buffers->items.begin(), buffers->items.end(), [&](const auto& end) {
             return name.size() >= end.scalar.size() && name.substr(name.size() - end.scalar.size()) == end.scalar;
           });
  }

  /// The rank that a group of data-parallel ranks is, among those that hold a stage, and its stage.
  std::pair<std::int64_t, std::size_t> place_of(const BufferKey& of, bool experts) const {
    const auto ranks = experts ? layout_.sharers_of_expert() * layout_.expert : layout_.tensor;
    const auto stage = of.group / ranks;
    if (stage >= layout_.stages())
      refuse(text("has optimizer state of group ", of.group, "; its arguments name ", ranks * layout_.stages()));
    return {of.group % ranks, static_cast<std::size_t>(stage)};
  }

  const Buffer& buffer(const BufferKey& of) {
    const auto key = std::array{of.optimizer, of.group, of.buffer};
    if (const auto found = buffers_.find(key); found != buffers_.end()) return found->second;
    const bool chained = layout_.expert > 1, experts = of.optimizer == 1;
    if (of.optimizer > 1 || (of.optimizer == 1 && !chained))
      refuse(text("has optimizer state of optimizer ", of.optimizer, "; one for experts and one for all other weights ",
                  "are read"));
    const auto [rank, stage] = place_of(of, experts);
    if (of.buffer >= static_cast<std::int64_t>(layout_.layers[stage].size()))
      refuse(text("has optimizer state of buffer ", of.buffer, "; its arguments name ", layout_.layers[stage].size(),
                  " chunks of the model"));
    return buffers_[key] = laid_out(rank, stage, static_cast<std::size_t>(of.buffer), [&](const std::string& name) {
             return is_trained(name) && (!chained || megatron_is_of_expert(name) == experts);
           });
  }

  /// Whether a rank before this one has the same elements: those of a norm are in the buffer of every rank.
  bool is_held_before(const WeightPart& part, std::int64_t rank) const {
    return std::any_of(parts_.begin(), parts_.begin() + rank, [&](const auto& own) {
      const auto found = own.find(part.name);
      return found != own.end() && found->second.boxes == part.boxes;
    });
  }

  template <class Has>
  Buffer laid_out(std::int64_t rank, std::size_t stage, std::size_t chunk, const Has& has) const {
    std::vector<std::string> names;
    std::vector<const WeightPart*> parts;
    std::int64_t of_rank = 0;
    for (const auto& [name, part] : parts_[static_cast<std::size_t>(rank)]) {
      bool on_rank = false;
      for (std::size_t c = 0; c < layout_.layers[stage].size(); ++c) on_rank = on_rank || is_in_chunk(name, stage, c);
      if (on_rank && is_trained(name)) of_rank += part.shape().elements();
      if (!is_in_chunk(name, stage, chunk) || !has(name)) continue;
      const bool copy = name == word_table && !(stage == 0 && chunk == 0);
      names.push_back(copy && saved_.is_tied() ? tied_head : name);
      parts.push_back(&part);
    }
    std::vector<MegatronFlat> flats;
    std::vector<const WeightPart*> ordered;
    for (const auto index : megatron_order(names, table_)) {
      const bool shared =
          has_copies() && (saved_.is_tied() ? tables::has_vocabulary_rows(names[index]) : names[index] == word_table);
      flats.push_back({parts[index]->shape().elements(), shared});
      ordered.push_back(parts[index]);
    }
    Buffer out;
    const auto places =
        megatron_flat_places(flats, saved_.bucket_size(stage == 0 && chunk == 0, of_rank), &out.buckets);
    out.elements = places.back();
    for (std::size_t i = 0; i < ordered.size(); ++i)
      if ((ordered[i]->name != word_table || (stage == 0 && chunk == 0)) && !is_held_before(*ordered[i], rank))
        out.weights.push_back({ordered[i], places[i]});
    return out;
  }

  static std::string name_of_state(const std::string& slot, const std::string& weight) {
    return slot == "param" ? weight : text("optimizer.", slot, ".", weight);
  }

  /// The elements [begin, end) of a buffer are those from `first` of the item on.
  void take_range(const Buffer& buffer, const std::string& slot, const DistItem& item, std::int64_t begin,
                  std::int64_t end, std::int64_t first) {
    for (const auto& weight : buffer.weights) {
      auto at = weight.begin;
      for (const auto& box : weight.part->boxes) {
        const auto from = std::max(begin, at), to = std::min(end, at + box.elements());
        each_box_of_range(box, from - at, to - at, [&](const Box& part, std::int64_t in_range) {
          weights_.add(name_of_state(slot, weight.part->name), weight.part->global_shape, item,
                       first + from - begin + in_range, part);
        });
        at += box.elements();
      }
    }
  }

  void take_object(const std::string& key, const BufferKey& of) {
    objects_.push_back(folder_.object(key));
    const auto& file = *objects_.back();
    const auto& items = DcpFolder::content(file).items;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (items[i]->kind != PickleNode::Kind::integer) continue;  // buckets_coalesced
      const auto& types = *items[i + 1];
      if (types.kind != PickleNode::Kind::dict || types.items.size() != 2)
        refuse(text("'", key, "' has other buffers than one for each chunk of the model"));
      auto one = of;
      one.buffer = items[i]->integer;
      take_buffer(key, file, *types.items[1], buffer(one));
    }
  }
  void take_buffer(const std::string& key, const torch::TorchFile& file, const PickleNode& slots,
                   const Buffer& layout) {
    for (std::size_t i = 0; i + 1 < slots.items.size(); i += 2) {
      if (!torch::TorchFile::is_tensor(*slots.items[i + 1])) continue;
      const auto& slot = slots.items[i]->text;
      const auto there = file.tensor(*slots.items[i + 1], slot).elements();
      if (there != layout.elements)
        refuse(text("'", key, "' has ", there, " elements of '", slot, "'; the model's layout makes ", layout.elements,
                    " of them"));
      take_range(layout, slot, {.object = &file, .node = slots.items[i + 1]}, 0, there, 0);
    }
  }

  void take_tensor(const torch::DcpTensor& tensor, const BufferKey& of) {
    const auto& layout = buffer(of);
    if (of.bucket >= static_cast<std::int64_t>(layout.buckets.size()))
      refuse(text("'", tensor.key, "' is of another bucket than the ", layout.buckets.size(),
                  " that the model's layout makes"));
    const auto bucket = static_cast<std::size_t>(of.bucket);
    const auto begin = layout.buckets[bucket];
    const auto end = bucket + 1 < layout.buckets.size() ? layout.buckets[bucket + 1] : layout.elements;
    if (tensor.size.elements() < end - begin)
      refuse(text("'", tensor.key, "' has ", tensor.size.elements(), " elements; the model's layout makes ",
                  end - begin, " of them"));
    for (const auto& chunk : folder_.index().chunks_of(tensor)) {
      const auto offsets = folder_.index().offsets(tensor, chunk), extents = folder_.index().extents(tensor, chunk);
      if (offsets.empty()) refuse(text("'", tensor.key, "' is a scalar; a buffer was expected"));
      // In its older form the bucket is flattened: an axis of equal blocks, then that of their elements.
      const auto width = tensor.size.width();
      std::int64_t block = 0;
      for (std::size_t dim = 0; dim + 1 < offsets.size(); ++dim) block = block * tensor.size[dim] + offsets[dim];
      const auto at = begin + block * width + offsets.back();
      take_range(layout, of.slot, {&tensor, &chunk}, at, std::min(at + Shape(extents).elements(), end), 0);
    }
  }

  DistWeights& weights_;
  const DcpFolder& folder_;
  const MegatronSaved& saved_;
  const options::Value& table_;
  std::string speaker_;
  checkpoint::CheckpointLayout layout_;
  RankParts parts_;
  std::map<std::array<std::int64_t, 3>, Buffer> buffers_;
  std::vector<std::unique_ptr<torch::TorchFile>> objects_;
};

}  // namespace

bool has_buffers(const torch::DcpIndex& index) {
  const auto is_buffer = [](const std::string& key) { return buffer_key(key).has_value(); };
  return std::any_of(index.objects.begin(), index.objects.end(),
                     [&](const auto& one) { return is_buffer(one.first); }) ||
         std::any_of(index.tensors.begin(), index.tensors.end(), [&](const auto& one) { return is_buffer(one.key); });
}

std::vector<std::unique_ptr<torch::TorchFile>> add_buffers(DistWeights& weights, const DcpFolder& folder,
                                                           const MegatronSaved& saved, const options::Value& recipe,
                                                           const options::Value& table, const std::string& speaker) {
  return BufferReader(weights, folder, saved, recipe, table, speaker).read();
}

}  // namespace tessera::megatron
