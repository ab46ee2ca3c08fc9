#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "framework/base/files.h"
#include "framework/checkpoint/blobs.h"
#include "framework/interop/megatron/dcp_writer.h"
#include "framework/interop/megatron/megatron_arguments.h"
#include "framework/interop/megatron/megatron_dist_format.h"
#include "framework/interop/megatron/megatron_dist_names.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/megatron/megatron_folders.h"
#include "framework/interop/megatron/megatron_writer.h"
#include "framework/interop/megatron/state_piece.h"
#include "framework/interop/tables/our_names.h"
#include "framework/tensor/box.h"

namespace tessera::megatron {
namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<std::int64_t>;

const std::string state_mark = "optimizer.";

/// A box of a weight, and where the state has its elements.
struct Part {
  Box box;
  StatePiece piece;
};

/// The rows [first, first + count) of the box, and their elements.
Part rows_of(const Part& part, std::int64_t first, std::int64_t count) {
  auto out = part;
  out.box.begin[0] += first;
  out.box.extent[0] = count;
  out.piece.first += first * part.box.elements_of_row();
  out.piece.count = count * part.box.elements_of_row();
  return out;
}

/// The parts of `part` on both sides of every multiple of `rows`.
std::vector<Part> cut_at_rows(const Part& part, std::int64_t rows) {
  std::vector<Part> parts;
  const auto begin = part.box.begin[0], end = begin + part.box.extent[0];
  for (auto at = begin; at < end;) {
    const auto next = std::min(end, (at / rows + 1) * rows);
    parts.push_back(rows_of(part, at - begin, next - at));
    at = next;
  }
  return parts;
}

/// The equal blocks in which the ranks hold a weight.
struct Blocks {
  Numbers extent;

  /// Blocks of `held`, the part of one rank; gate and up are blocks of their own. The whole tensor, where the boxes are
  /// no such blocks.
  static Blocks of(const WeightPart& held, bool gated) {
    auto extent = held.boxes.at(0).extent;
    if (gated && held.boxes.size() == 1) extent[0] /= 2;
    const auto whole = held.global_shape.dims();
    for (const auto& box : held.boxes)
      for (std::size_t dim = 0; dim < extent.size(); ++dim)
        if (extent[dim] == 0 || whole[dim] % extent[dim] != 0 || box.begin[dim] % extent[dim] != 0 ||
            box.extent[dim] % extent[dim] != 0)
          return {{whole.begin(), whole.end()}};
    return {extent};
  }
  /// The block that has the first element of `box`.
  Box around(const Box& box) const {
    Box block{box.begin, extent};
    for (std::size_t dim = 0; dim < extent.size(); ++dim) block.begin[dim] -= box.begin[dim] % extent[dim];
    return block;
  }
};

void append(Numbers& to, const Numbers& numbers) { to.insert(to.end(), numbers.begin(), numbers.end()); }

Numbers joined_dims(const Numbers& axes, const Shape& shape) {
  auto out = axes;
  out.insert(out.end(), shape.dims().begin(), shape.dims().end());
  return out;
}

/// In which form a version of Megatron-LM reads the optimizer state.
struct Form {
  bool flattened = false;          ///< blocks of weights as rows of elements
  bool later = false;              ///< core_v0.15 and later: one optimizer, "param" for master weights
  bool masters = false;            ///< fp32 weights are stored beside the model's
  const char* sharding = nullptr;  ///< its name; null: not of the distributed optimizer
};

Form form_of(const checkpoint::ForeignSave& save) {
  Form form;
  const bool distributed = save.layout.distributed_optimizer;
  form.later = save.version >= first_version_with_reshardable_state;
  form.flattened = distributed && !form.later;
  form.masters = (distributed || save.type != DType::float32) && !save.without_optimizer;
  if (distributed) form.sharding = form.later ? "fully_reshardable" : "fully_sharded_model_space";
  return form;
}

/// What a rank owns, as items of a distributed checkpoint.
class OwnedItems {
 public:
  OwnedItems(const checkpoint::ForeignSave& save, const DistKeys& keys, const Form& form,
             const checkpoint::RankWeights& rank, const checkpoint::StateSnapshot& owned)
      : keys_(keys), form_(form), type_(save.type), chained_(save.layout.expert > 1 && !form.later), owned_(owned) {
    for (const auto& chunk : rank.chunks)
      for (const auto& part : chunk) held_.emplace(part.name, &part);
  }

  std::vector<DcpItem> all() {
    for (std::size_t i = 0; i < owned_.ranges().size(); ++i) add(i);
    // Objects first, as torch orders them.
    std::stable_partition(items_.begin(), items_.end(), [](const auto& item) { return item.is_object; });
    return std::move(items_);
  }

 private:
  void add(std::size_t index) {
    const auto& range = owned_.ranges()[index];
    if (range.tensor.elements() == 0) return;
    const auto weight = checkpoint::weight_of(range.name);
    const auto& held = *held_.at(weight);
    const bool buffer = held.role == ParameterRole::expert_bias, gated = keys_.is_gated(weight);
    const Part whole{Box::of(range.offsets, range.tensor.shape()), {&owned_, index, 0, range.tensor.elements()}};
    const auto half = gated ? range.global_shape[0] / 2 : range.global_shape[0];
    const auto parts = cut_at_rows(whole, half);
    if (checkpoint::is_optimizer_state(range.name)) {
      const auto slot = range.name.substr(state_mark.size(), range.name.size() - weight.size() - state_mark.size() - 1);
      return add_state(slot, held, parts);
    }
    for (const auto& part : parts) chunk("", held, part, buffer ? DType::float32 : type_);
    if (form_.masters && !buffer)
      add_state(form_.later && form_.sharding != nullptr ? "param" : "fp32_param", held, parts);
    const auto object = keys_.extra_state(weight);
    const auto& offsets = range.offsets;
    if (!object.empty() && std::all_of(offsets.begin(), offsets.end(), [](auto at) { return at == 0; }))
      items_.push_back({.key = object, .is_object = true});
  }

  void add_state(const std::string& slot, const WeightPart& held, const std::vector<Part>& parts) {
    const auto optimizer = chained_ ? text("chained_", is_of_expert(held.role) ? 1 : 0, ".optimizer") : "optimizer";
    const auto prefix = text(optimizer, ".state.", slot, ".");
    const auto blocks = Blocks::of(held, keys_.is_gated(held.name));
    for (const auto& part : parts)
      if (form_.flattened)
        flattened(prefix, held, part, blocks);
      else
        chunk(prefix, held, part, DType::float32);
  }

  void chunk(const std::string& prefix, const WeightPart& held, const Part& part, DType type) {
    const auto key = keys_.of(held.name);
    auto offsets = key.index;
    append(offsets, part.box.begin);
    items_.push_back({.key = prefix + key.key,
                      .type = type,
                      .size = Shape(joined_dims(key.axes, held.global_shape)),
                      .offsets = std::move(offsets),
                      .extents = Shape(joined_dims(Numbers(key.axes.size(), 1), Shape(part.box.extent))),
                      .elements = part.piece.as(type)});
  }

  /// The elements of a block, in their order, are the last axis.
  void flattened(const std::string& prefix, const WeightPart& held, const Part& part, const Blocks& blocks) {
    const auto block = blocks.around(part.box);
    if (intersection(block, part.box) != part.box || !is_contiguous(part.box, block)) {
      must(part.box.extent[0] > 1, "the rows of what a rank owns lie in one block each");
      for (std::int64_t row = 0; row < part.box.extent[0]; ++row)
        flattened(prefix, held, rows_of(part, row, 1), blocks);
      return;
    }
    const auto key = keys_.of(held.name);
    auto size = key.axes, offsets = key.index;
    for (std::size_t dim = 0; dim < blocks.extent.size(); ++dim) {
      size.push_back(held.global_shape[dim] / blocks.extent[dim]);
      offsets.push_back(block.begin[dim] / blocks.extent[dim]);
    }
    Numbers extents(size.size(), 1);
    size.push_back(block.elements());
    offsets.push_back(position_in(block, part.box.begin));
    extents.push_back(part.piece.count);
    items_.push_back({.key = prefix + key.key,
                      .type = DType::float32,
                      .size = Shape(size),
                      .offsets = std::move(offsets),
                      .extents = Shape(extents),
                      .flattened_from = joined_dims(key.axes, held.global_shape),
                      .elements = part.piece.as(DType::float32)});
  }

  const DistKeys& keys_;
  const Form& form_;
  DType type_;
  bool chained_;
  const checkpoint::StateSnapshot& owned_;
  std::map<std::string, const WeightPart*> held_;
  std::vector<DcpItem> items_;
};

/// The groups that an optimizer may have, in the order in which Megatron-LM comes upon them: a model begins with its
/// embedding.
constexpr std::array<MegatronGroup, 3> possible_groups = {{{true, true}, {true, false}, {false, false}}};
/// How many weights an optimizer has in each, first of the dense weights, then of experts.
using GroupCounts = std::array<std::array<std::int64_t, possible_groups.size()>, 2>;

std::size_t group_of(const WeightPart& part, bool decoupled) {
  const MegatronGroup own{decays(part.role), decoupled && tables::has_vocabulary_rows(part.name)};
  return static_cast<std::size_t>(std::find(possible_groups.begin(), possible_groups.end(), own) -
                                  possible_groups.begin());
}

/// What common.pt says of the optimizers that a rank has: the weights of each by groups. `decoupled`: embedding and
/// output layer have a learning rate of their own.
Json note_of(const checkpoint::ForeignSave& save, const checkpoint::RankWeights& rank,
             const checkpoint::StateSnapshot& owned, bool decoupled) {
  std::set<std::string> slots;
  for (const auto& range : owned.ranges())
    if (checkpoint::is_optimizer_state(range.name))
      slots.insert(range.name.substr(state_mark.size(), range.name.find('.', state_mark.size()) - state_mark.size()));
  GroupCounts counts{};
  for (const auto& chunk : rank.chunks)
    for (const auto& part : chunk)
      if (part.role != ParameterRole::expert_bias)
        ++counts[save.layout.expert > 1 && is_of_expert(part.role) ? 1 : 0].at(group_of(part, decoupled));
  return {{"slots", std::vector<std::string>(slots.begin(), slots.end())}, {"weights", Json(counts)}};
}

MegatronCommon common_of(const std::vector<Json>& notes, const Form& form) {
  MegatronCommon common;
  std::set<std::string> slots;
  GroupCounts most{};
  for (const auto& note : notes) {
    for (const auto& slot : note["slots"]) slots.insert(slot.string());
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t k = 0; k < most[i].size(); ++k)
        most[i][k] = std::max(most[i][k], note["weights"][i][k].get<std::int64_t>());
  }
  common.slots.assign(slots.begin(), slots.end());
  for (std::size_t i = 0; i < 2; ++i) {
    MegatronCommon::Optimizer optimizer{.groups = {}, .of_experts = i == 1, .weights = 0};
    for (std::size_t k = 0; k < most[i].size(); ++k) {
      optimizer.weights += most[i][k];
      if (most[i][k] > 0) optimizer.groups.push_back(possible_groups[k]);
    }
    if (!optimizer.groups.empty()) common.optimizers.push_back(std::move(optimizer));
  }
  if (form.sharding != nullptr) common.sharding = form.sharding;
  common.describes_itself = form.later;
  return common;
}

Json arguments_for(const checkpoint::ForeignSave& save, bool has_state) {
  auto args = megatron_arguments(save);
  args["ckpt_format"] = "torch_dist";
  args["use_dist_ckpt"] = true;
  args["ckpt_fully_parallel_save"] = true;
  args["encoder_tensor_model_parallel_size"] = 0;
  args["encoder_pipeline_model_parallel_size"] = 0;
  args["no_save_rng"] = true;  // our generators are not Megatron-LM's; so it asks for none
  args["no_save_optim"] = has_state ? Json(nullptr) : Json(true);
  return args;
}

}  // namespace

std::vector<options::Finding> MegatronDistFormat::refusals(const checkpoint::SavedRun& run) const {
  if (!run.has_noop_layers) return {};
  return {{.option = "parallel_config.noop_layers",
           .message = "Megatron-LM's checkpoint format (ckpt_format torch_dist) has no no-op layers",
           .advice = "leave noop_layers or ckpt_format out",
           .rule = "noop layers"}};
}

void MegatronDistFormat::begin(const checkpoint::ForeignSave& save) const { begin_folder(save); }

void MegatronDistFormat::write_owned(const checkpoint::ForeignSave& save, const checkpoint::RankWeights& rank,
                                     std::int64_t writer, const checkpoint::StateSnapshot& owned) const {
  const auto table = save.mappings.table("weights/megatron.yaml");
  const auto arguments = megatron_arguments(save);
  const DistKeys keys(arguments, table);
  const auto form = form_of(save);
  write_dcp_items(unfinished_folder(save), writer, OwnedItems(save, keys, form, rank, owned).all(),
                  note_of(save, rank, owned, has_decoupled_rate(arguments)));
}

/// metadata.json is what makes the folder a checkpoint for Megatron-LM: it comes when all else is on the disk.
fs::path MegatronDistFormat::finish(const checkpoint::ForeignSave& save) const {
  const auto tmp = unfinished_folder(save);
  const DcpParts parts(tmp);
  const auto common = common_of(parts.notes(), form_of(save));
  write_megatron_common(tmp / "common.pt", save.iteration, common, save.progress,
                        arguments_for(save, !common.slots.empty()), save.type);
  parts.write_metadata();
  checkpoint::write_blobs_beside(tmp, save.iteration, save.files);
  const Json about{{"sharded_backend", "torch_dist"},
                   {"sharded_backend_version", 1},
                   {"common_backend", "torch"},
                   {"common_backend_version", 1}};
  write_file_atomic(tmp / "metadata.json", about.dump());
  return publish(save);
}

void MegatronDistFormat::abandon(const checkpoint::ForeignSave& save) const noexcept { abandon_folder(save); }

}  // namespace tessera::megatron
