#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/megatron/megatron_writer.h"
#include "framework/interop/tables/config_table.h"
#include "framework/interop/tables/our_names.h"
#include "framework/options/option_type.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string optimizer_mark = "optimizer.";

bool begins(const std::string& name, const std::string& start) { return name.rfind(start, 0) == 0; }
bool ends(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

/// Where a weight stands among Megatron's: place of its part of the model, layer, place in the layer, bias after
/// weight.
std::tuple<std::size_t, std::int64_t, std::size_t, bool> place_of(const std::string& name, const Value& table) {
  const auto& order = table.find("order")->items;
  const auto layer = layer_of(name);
  std::size_t part = order.size(), inside = order.size();
  for (std::size_t i = order.size(); i-- > 0;) {
    if (begins(name, order[i].scalar)) part = i;
    if (layer >= 0 && order[i].scalar.front() == '.' && name.find(order[i].scalar) != std::string::npos) inside = i;
  }
  return {part, layer, inside, ends(name, ".bias")};
}

/// What Megatron-LM looks at when it loads, beside what the table says.
void add_fixed_arguments(Json& args, const Progress& progress, std::int64_t rows, DType type,
                         const CheckpointLayout& layout) {
  const auto stages = layout.stages();
  const auto chunks = layout.layers.empty() ? std::size_t{1} : layout.layers[0].size();
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"tensor_model_parallel_size", layout.tensor},
           {"pipeline_model_parallel_size", stages},
           {"transformer_pipeline_model_parallel_size", stages},
           {"virtual_pipeline_model_parallel_size", chunks > 1 ? Json(chunks) : Json(nullptr)},
           {"context_parallel_size", 1},
           {"expert_model_parallel_size", 1},
           {"data_parallel_size", layout.data},
           {"world_size", layout.tensor * stages * layout.data},
           {"data_parallel_random_init", false},
           {"use_distributed_optimizer", layout.distributed_optimizer},
           {"overlap_grad_reduce", false},
           {"ddp_bucket_size", nullptr},
           {"ddp_num_buckets", nullptr},
           {"ckpt_format", "torch"},
           {"use_dist_ckpt", false},
           {"add_position_embedding", true},
           {"consumed_train_samples", progress.consumed_samples},
           {"skipped_train_samples", progress.skipped_samples},
           {"consumed_valid_samples", std::max<std::int64_t>(progress.consumed_valid_samples, 0)},
           {"padded_vocab_size", rows},
           {"bf16", type == DType::bfloat16},
           {"fp16", type == DType::float16}})
    args[name] = value;
}

std::int64_t first_layer(const CheckpointLayout& layout, std::int64_t stage, std::size_t chunk) {
  std::int64_t first = 0;
  for (std::size_t c = 0; c <= std::min(chunk, layout.layers[0].size() - 1); ++c)
    for (std::int64_t p = 0; p < (c == chunk ? stage : layout.stages()); ++p)
      first += layout.layers[static_cast<std::size_t>(p)][c];
  return first;
}

/// Whether a chunk has that weight; copies are another matter.
bool holds(const CheckpointLayout& layout, std::int64_t stage, std::size_t chunk, const std::string& weight) {
  const auto layer = layer_of(weight);
  if (layer >= 0) {
    const auto first = first_layer(layout, stage, chunk);
    return layer >= first && layer < first + layout.layers[static_cast<std::size_t>(stage)][chunk];
  }
  if (begins(weight, "embedding.")) return stage == 0 && chunk == 0;
  return stage + 1 == layout.stages() && chunk + 1 == layout.layers[0].size();
}

/// Puts together what each rank has of tensors that are given in boxes.
class RankParts {
 public:
  RankParts(std::span<const TensorRange> tensors, const Value& table, const CheckpointLayout& layout, bool gated,
            bool tied)
      : table_(table), layout_(layout), cut_(table, gated), tied_(tied) {
    std::set<std::string> slots;
    for (const auto& range : tensors) {
      boxes_[range.name].push_back(&range);
      if (!begins(range.name, optimizer_mark))
        weights_.insert(range.name);
      else
        slots.insert(range.name.substr(optimizer_mark.size(),
                                       range.name.find('.', optimizer_mark.size()) - optimizer_mark.size()));
    }
    slots_.assign(slots.begin(), slots.end());
    tied_ = tied_ && weights_.count("output_layer.weight") == 0;
    if (layout_.layers.empty()) layout_.layers = {{layers()}};
    if (const auto planned = first_layer(layout_, 0, layout_.layers[0].size()); layers() > planned)
      throw ConfigError(text("saving for Megatron-LM: the layout has ", planned, " layers, the model ", layers()));
  }

  const CheckpointLayout& layout() const { return layout_; }

  MegatronContent of(std::int64_t tensor_rank, std::int64_t stage) const {
    MegatronContent out;
    out.slots = slots_;
    const std::vector<std::string> adam = {"exp_avg", "exp_avg_sq"};
    out.shared = layout_.distributed_optimizer && slots_ == adam;
    const auto chunks = layout_.layers[0].size();
    for (std::size_t c = 0; c < chunks; ++c) {
      auto& chunk = out.chunks.emplace_back();
      const auto first = first_layer(layout_, stage, c);
      const bool begins_model = stage == 0 && c == 0, ends_model = stage + 1 == layout_.stages() && c + 1 == chunks;
      for (const auto& name : in_order()) {
        if (!holds(layout_, stage, c, name)) continue;
        chunk.push_back(weight(name, megatron_shifted(name, -first), tensor_rank, out));
        chunk.back().bucket_of_its_own = tied_ && layout_.stages() > 1 && has_vocabulary_rows(name);
      }
      if (!ends_model || begins_model || !tied_) continue;
      chunk.push_back(weight("embedding.word_embeddings.weight", "output_layer.weight", tensor_rank, out));
      chunk.back().bucket_of_its_own = true;
    }
    return out;
  }

 private:
  std::int64_t layers() const {
    std::int64_t count = 0;
    for (const auto& name : weights_) count = std::max(count, layer_of(name) + 1);
    return count;
  }

  /// Names of weights as Megatron's modules own them.
  std::vector<std::string> in_order() const {
    std::vector<std::string> names(weights_.begin(), weights_.end());
    std::stable_sort(names.begin(), names.end(),
                     [&](const auto& a, const auto& b) { return place_of(a, table_) < place_of(b, table_); });
    return names;
  }

  MegatronWeight weight(const std::string& ours, const std::string& theirs, std::int64_t tensor_rank,
                        MegatronContent& out) const {
    MegatronWeight weight;
    weight.name = theirs;
    weight.tensor = part(ours, tensor_rank, out);
    weight.decays = weight.tensor.shape().rank() != 1 && !ends(theirs, ".bias");
    for (const auto& slot : slots_) weight.slots.push_back(part(optimizer_mark + slot + "." + ours, tensor_rank, out));
    return weight;
  }

  /// What that rank has of a tensor: a piece of memory that is there, or one put together.
  Tensor part(const std::string& name, std::int64_t tensor_rank, MegatronContent& out) const {
    const auto found = boxes_.find(name);
    must(found != boxes_.end(), "every weight of a rank is given with every slot of the optimizer");
    const auto& given = found->second;
    const auto& all = given[0]->global_shape;
    const auto wanted = cut_.boxes(name, all, layout_.tensor, tensor_rank);
    for (const auto* range : given)
      if (wanted.size() == 1 && Box::of(range->offsets, range->tensor.shape()) == wanted[0]) return range->tensor;
    const auto type = given[0]->tensor.dtype();
    const auto shape = cut_.part(name, all, layout_.tensor);
    auto& bytes = out.memory.emplace_back(static_cast<std::size_t>(shape.elements()) * size_of(type));
    const Tensor into{std::span(bytes), type, shape};
    std::int64_t row = 0, filled = 0;
    for (const auto& box : wanted) {
      const auto rows = wanted.size() == 1 ? into : into.slice(row, box.extent[0]);
      row += box.extent[0];
      for (const auto* range : given) {
        const auto there = Box::of(range->offsets, range->tensor.shape());
        const auto common = intersection(box, there);
        if (!common) continue;
        copy_box(*common, range->tensor, there, rows, box);
        filled += common->elements();
      }
    }
    if (filled < shape.elements())
      throw BugError(text("saving for Megatron-LM: '", name, "' is given in boxes that lack ",
                          shape.elements() - filled, " elements of tensor parallel rank ", tensor_rank));
    return into;
  }

  const Value& table_;
  CheckpointLayout layout_;
  CheckpointCut cut_;
  bool tied_;
  std::map<std::string, std::vector<const TensorRange*>> boxes_;
  std::set<std::string> weights_;
  std::vector<std::string> slots_;
};

Json arguments_of(const Value& recipe, const Mappings& mappings) {
  return Json::parse(write_by_table(recipe, mappings.table("arguments/megatron.yaml"), "checkpoint of Megatron-LM"));
}

/// Rows of the vocabulary.
std::int64_t rows_of(const ForeignSave& save, std::span<const TensorRange> tensors) {
  for (const auto& range : tensors)
    if (has_vocabulary_rows(range.name)) return range.global_shape[0];
  if (save.layout.vocabulary > 0) return save.layout.vocabulary;
  const auto* rows = save.recipe.at("model_config.vocab_size");
  std::int64_t count = 0;
  return rows != nullptr && OptionType<std::int64_t>::read(*rows, count) ? count : 0;
}

}  // namespace

std::string our_name_of_megatron(const std::string& theirs, const Value& table) {
  if (const auto* ignored = table.find("ignored"))
    for (const auto& end : ignored->items)
      if (ends(theirs, end.scalar)) return "";
  const auto layer = layer_of(theirs);
  const std::string mark = "{layer}";
  const auto of_layer = [&](std::string pattern) {
    if (const auto at = pattern.find(mark); at != std::string::npos)
      pattern.replace(at, mark.size(), std::to_string(layer));
    return pattern;
  };
  if (const auto* renamed = table.find("renamed"))
    for (const auto& [pattern, ours] : renamed->fields)
      if (theirs == of_layer(pattern)) return of_layer(ours.scalar);
  return theirs;
}

std::vector<TensorBox> MegatronFormat::needed_by(const ForeignSave& save, SavingRank rank,
                                                 const std::map<std::string, Shape>& shapes) const {
  const CheckpointCut cut(save.mappings.table("weights/megatron.yaml"),
                          arguments_of(save.recipe, save.mappings).value("swiglu", false));
  const auto& layout = save.layout;
  const auto chunks = layout.layers.empty() ? std::size_t{0} : layout.layers[0].size();
  std::vector<TensorBox> needed;
  for (const auto& [name, shape] : shapes) {
    const auto weight = begins(name, optimizer_mark) ? name.substr(name.find('.', optimizer_mark.size()) + 1) : name;
    bool wanted =
        layout.layers.empty() || (weight == "embedding.word_embeddings.weight" && rank.stage + 1 == layout.stages());
    for (std::size_t c = 0; c < chunks; ++c) wanted = wanted || holds(layout, rank.stage, c, weight);
    if (!wanted) continue;
    for (auto& box : cut.boxes(name, shape, layout.tensor, rank.tensor))
      needed.push_back({.name = name, .global_shape = shape, .box = std::move(box)});
  }
  return needed;
}

void MegatronFormat::write_rank(const ForeignSave& save, SavingRank rank, std::span<const TensorRange> tensors) const {
  const auto table = save.mappings.table("weights/megatron.yaml");
  auto args = arguments_of(save.recipe, save.mappings);
  const RankParts parts(tensors, table, save.layout, args.value("swiglu", false),
                        !args.value("untie_embeddings_and_output_weights", false));
  add_fixed_arguments(args, save.progress, rows_of(save, tensors), save.type, parts.layout());
  const auto folder = save.root / checkpoint_name("", save.iteration) /
                      megatron_rank_folder(rank.tensor, rank.stage, parts.layout().stages());
  make_folder(folder);
  write_megatron_rank(folder, save.iteration, parts.of(rank.tensor, rank.stage), save.progress, args, save.type);
  sync_folder(folder);
}

fs::path MegatronFormat::finish(const ForeignSave& save) const {
  const auto folder = save.root / checkpoint_name("", save.iteration);
  write_blobs_beside(folder, save.iteration, save.files);
  write_file_atomic(save.root / tracker_name(""), std::to_string(save.iteration));
  return folder;
}

}  // namespace tessera
