#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/checkpoint/convert.h"
#include "framework/interop/megatron/megatron.h"
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
  const auto layer = megatron_layer_of(name);
  std::size_t part = order.size(), inside = order.size();
  for (std::size_t i = order.size(); i-- > 0;) {
    if (begins(name, order[i].scalar)) part = i;
    if (layer >= 0 && order[i].scalar.front() == '.' && name.find(order[i].scalar) != std::string::npos) inside = i;
  }
  return {part, layer, inside, ends(name, ".bias")};
}

/// What Megatron-LM looks at when it loads, beside what the table says.
void add_fixed_arguments(Json& args, const Json& progress, std::int64_t rows, DType type,
                         const MegatronLayout& layout) {
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
           {"consumed_train_samples", progress.value("consumed_samples", std::int64_t{0})},
           {"skipped_train_samples", progress.value("skipped_samples", std::int64_t{0})},
           {"consumed_valid_samples", progress.value("consumed_valid_samples", std::int64_t{0})},
           {"padded_vocab_size", rows},
           {"bf16", type == DType::bfloat16},
           {"fp16", type == DType::float16}})
    args[name] = value;
}

std::int64_t first_layer(const MegatronLayout& layout, std::int64_t stage, std::size_t chunk) {
  std::int64_t first = 0;
  for (std::size_t c = 0; c <= std::min(chunk, layout.layers[0].size() - 1); ++c)
    for (std::int64_t p = 0; p < (c == chunk ? stage : layout.stages()); ++p)
      first += layout.layers[static_cast<std::size_t>(p)][c];
  return first;
}

/// Whether a chunk has that weight; copies are another matter.
bool holds(const MegatronLayout& layout, std::int64_t stage, std::size_t chunk, const std::string& weight) {
  const auto layer = megatron_layer_of(weight);
  if (layer >= 0) {
    const auto first = first_layer(layout, stage, chunk);
    return layer >= first && layer < first + layout.layers[static_cast<std::size_t>(stage)][chunk];
  }
  if (begins(weight, "embedding.")) return stage == 0 && chunk == 0;
  return stage + 1 == layout.stages() && chunk + 1 == layout.layers[0].size();
}

/// Puts together what each rank has of tensors that are given in boxes.
class Parts {
 public:
  Parts(std::span<const TensorRange> tensors, const Value& table, const MegatronLayout& layout, bool gated, bool tied)
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

  const MegatronLayout& layout() const { return layout_; }

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
    for (const auto& name : weights_) count = std::max(count, megatron_layer_of(name) + 1);
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
  MegatronLayout layout_;
  MegatronCut cut_;
  bool tied_;
  std::map<std::string, std::vector<const TensorRange*>> boxes_;
  std::set<std::string> weights_;
  std::vector<std::string> slots_;
};

/// A checkpoint while it is written.
class Saving {
 public:
  Saving(std::span<const TensorRange> tensors, const std::string& progress, const Value& recipe,
         const Mappings& mappings, const MegatronLayout& layout, DType type)
      : table_(mappings.table("weights/megatron.yaml")),
        progress_(parse_json(progress.empty() ? "{}" : progress)),
        args_(Json::parse(
            write_by_table(recipe, mappings.table("arguments/megatron.yaml"), "checkpoint of Megatron-LM"))),
        type_(type),
        parts_(tensors, table_, layout, args_.value("swiglu", false),
               !args_.value("untie_embeddings_and_output_weights", false)) {
    std::int64_t rows = layout.vocabulary > 0 ? layout.vocabulary : recipe_rows(recipe);
    for (const auto& range : tensors)
      if (has_vocabulary_rows(range.name)) rows = range.global_shape[0];
    add_fixed_arguments(args_, progress_, rows, type, parts_.layout());
  }

  const MegatronLayout& layout() const { return parts_.layout(); }

  void write(const fs::path& folder, std::int64_t iteration, std::int64_t tensor_rank, std::int64_t stage) const {
    const auto own = folder / megatron_rank_folder(tensor_rank, stage, layout().stages());
    make_folder(own);
    write_megatron_rank(own, iteration, parts_.of(tensor_rank, stage), progress_, args_, type_);
    sync_folder(own);
  }

 private:
  static std::int64_t recipe_rows(const Value& recipe) {
    const auto* rows = recipe.at("model_config.vocab_size");
    std::int64_t count = 0;
    return rows != nullptr && OptionType<std::int64_t>::read(*rows, count) ? count : 0;
  }

  const Value table_;
  const Json progress_;
  Json args_;
  DType type_;
  Parts parts_;
};

}  // namespace

std::string our_name_of_megatron(const std::string& theirs, const Value& table) {
  if (const auto* ignored = table.find("ignored"))
    for (const auto& end : ignored->items)
      if (ends(theirs, end.scalar)) return "";
  const auto layer = megatron_layer_of(theirs);
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

fs::path save_megatron(const fs::path& root, std::int64_t iteration, std::span<const TensorRange> tensors,
                       const std::string& progress, const Value& recipe, DType type, const Mappings& mappings,
                       const MegatronLayout& layout) {
  const Saving saving(tensors, progress, recipe, mappings, layout, type);
  for (std::int64_t stage = 0; stage < saving.layout().stages(); ++stage)
    for (std::int64_t tensor = 0; tensor < layout.tensor; ++tensor)
      saving.write(root / checkpoint_name("", iteration), iteration, tensor, stage);
  return finish_megatron(root, iteration);
}

void save_megatron_rank(const fs::path& root, std::int64_t iteration, std::span<const TensorRange> tensors,
                        const std::string& progress, const Value& recipe, DType type, const Mappings& mappings,
                        const MegatronLayout& layout, std::int64_t tensor_rank, std::int64_t stage) {
  Saving(tensors, progress, recipe, mappings, layout, type)
      .write(root / checkpoint_name("", iteration), iteration, tensor_rank, stage);
}

void save_megatron_rank(const fs::path& root, const Checkpoint& from, const std::string& progress, const Value& recipe,
                        DType type, const Mappings& mappings, const MegatronLayout& layout, std::int64_t tensor_rank,
                        std::int64_t stage) {
  const auto args =
      Json::parse(write_by_table(recipe, mappings.table("arguments/megatron.yaml"), "checkpoint of Megatron-LM"));
  const MegatronCut cut(mappings.table("weights/megatron.yaml"), args.value("swiglu", false));
  auto full = layout;
  std::deque<std::vector<std::byte>> memory;
  std::vector<TensorRange> ranges;
  for (const auto& name : from.names()) {
    if (has_vocabulary_rows(name)) full.vocabulary = from.shape(name)[0];
    const auto weight = begins(name, optimizer_mark) ? name.substr(name.find('.', optimizer_mark.size()) + 1) : name;
    bool wanted = weight == "embedding.word_embeddings.weight" && stage + 1 == layout.stages();
    for (std::size_t c = 0; c < layout.layers[0].size(); ++c) wanted = wanted || holds(layout, stage, c, weight);
    if (!wanted) continue;
    for (const auto& box : cut.boxes(name, from.shape(name), layout.tensor, tensor_rank)) {
      const Shape extent(box.extent);
      auto& bytes = memory.emplace_back(static_cast<std::size_t>(extent.elements()) * sizeof(float));
      ranges.push_back({name, from.shape(name), box.begin, Tensor{std::span(bytes), DType::float32, extent}});
      from.read(ranges.back(), {false, true});
    }
  }
  save_megatron_rank(root, from.iteration(), ranges, progress, recipe, type, mappings, full, tensor_rank, stage);
}

fs::path finish_megatron(const fs::path& root, std::int64_t iteration) {
  write_file_atomic(root / tracker_name(""), std::to_string(iteration));
  return root / checkpoint_name("", iteration);
}

}  // namespace tessera
