#include <algorithm>
#include <cctype>
#include <deque>
#include <map>
#include <set>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_arguments.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/megatron/megatron_folders.h"
#include "framework/interop/megatron/megatron_writer.h"

namespace tessera::megatron {
namespace {

namespace fs = std::filesystem;

const std::string optimizer_mark = "optimizer.";
const std::vector<std::string> adam_slots = {"exp_avg", "exp_avg_sq"};

bool begins(const std::string& name, const std::string& start) { return name.rfind(start, 0) == 0; }
bool ends(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

std::int64_t first_layer(const checkpoint::CheckpointLayout& layout, std::int64_t stage, std::size_t chunk) {
  std::int64_t first = 0;
  if (layout.layers.empty()) return first;
  for (std::size_t c = 0; c <= chunk; ++c)
    for (std::int64_t p = 0; p < (c == chunk ? stage : layout.stages()); ++p)
      first += layout.layers[static_cast<std::size_t>(p)].at(c);
  return first;
}

/// The first expert of a rank's layers, of which it has consecutive ones; 0: it has none.
std::int64_t lowest_expert(const checkpoint::RankWeights& rank) {
  std::int64_t lowest = -1;
  for (const auto& chunk : rank.chunks)
    for (const auto& part : chunk)
      if (const auto expert = megatron_expert(part.name); expert >= 0 && (lowest < 0 || expert < lowest))
        lowest = expert;
  return std::max<std::int64_t>(lowest, 0);
}

/// Puts together what a rank has of tensors that are given in boxes.
class RankContent {
 public:
  /// `copied`: the last of several stages has a copy of the embedding, for a tied output layer or for multi-token
  /// prediction.
  RankContent(const checkpoint::StateSnapshot& state, const options::Value& table,
              const checkpoint::CheckpointLayout& layout, bool copied)
      : state_(state), table_(table), layout_(layout), copied_(copied) {
    std::set<std::string> slots;
    for (std::size_t i = 0; i < state.ranges().size(); ++i) {
      const auto& range = state.ranges()[i];
      boxes_[range.name].push_back(i);
      if (checkpoint::is_optimizer_state(range.name))
        slots.insert(range.name.substr(optimizer_mark.size(),
                                       range.name.find('.', optimizer_mark.size()) - optimizer_mark.size()));
    }
    slots_.assign(slots.begin(), slots.end());
  }

  MegatronContent of(const checkpoint::RankWeights& rank) const {
    MegatronContent out;
    out.slots = slots_;
    out.shared = layout_.distributed_optimizer && slots_ == adam_slots;
    out.chains_optimizers = layout_.expert > 1;
    out.first_of_replicas = rank.rank < layout_.tensor;
    const auto first_expert = lowest_expert(rank);
    for (std::size_t c = 0; c < rank.chunks.size(); ++c) {
      auto& chunk = out.chunks.emplace_back();
      const auto first = first_layer(layout_, rank.stage, c);
      const bool predicts = std::any_of(rank.chunks[c].begin(), rank.chunks[c].end(),
                                        [](const auto& part) { return begins(part.name, "mtp."); });
      std::vector<std::string> names;
      for (const auto& part : rank.chunks[c]) {
        const bool table = part.role == ParameterRole::word_embedding, copy = table && (rank.stage > 0 || c > 0);
        const auto here = megatron_shifted_expert(megatron_shifted(part.name, -first), -first_expert);
        names.push_back(copy && !predicts ? "output_layer.weight" : here);
      }
      for (const auto index : megatron_order(names, table_)) {
        const auto& part = rank.chunks[c][index];
        chunk.push_back(weight(part, names[index], out));
        chunk.back().bucket_of_its_own = part.role == ParameterRole::word_embedding && copied_ && layout_.stages() > 1;
      }
    }
    return out;
  }

 private:
  MegatronWeight weight(const WeightPart& part, const std::string& theirs, MegatronContent& out) const {
    MegatronWeight weight;
    weight.name = theirs;
    weight.elements = joined(part.name, part, out);
    weight.decays = decays(part.role);
    weight.of_expert = is_of_expert(part.role);
    weight.buffer = part.role == ParameterRole::expert_bias;
    if (weight.buffer) return weight;
    for (const auto& slot : slots_) weight.slots.push_back(joined(optimizer_mark + slot + "." + part.name, part, out));
    return weight;
  }

  /// The elements of `part` of the tensor `name`, the weight or its optimizer state: ranges of the state that are its
  /// boxes, else assembled in memory.
  StatePieces joined(const std::string& name, const WeightPart& part, MegatronContent& out) const {
    const auto found = boxes_.find(name);
    must(found != boxes_.end(), "every weight of a rank is given with every slot of the optimizer");
    StatePieces elements{part.shape(), {}};
    for (const auto& box : part.boxes)
      for (const auto index : found->second)
        if (const auto& range = state_.ranges()[index]; Box::of(range.offsets, range.tensor.shape()) == box) {
          elements.pieces.push_back({&state_, index, 0, box.elements()});
          break;
        }
    return elements.pieces.size() == part.boxes.size() ? elements : assembled(name, part, found->second, out);
  }

  StatePieces assembled(const std::string& name, const WeightPart& part, const std::vector<std::size_t>& given,
                        MegatronContent& out) const {
    const auto type = state_.ranges()[given[0]].tensor.dtype();
    const auto shape = part.shape();
    auto& bytes = out.memory.emplace_back(static_cast<std::size_t>(shape.elements()) * size_of(type));
    const Tensor into{std::span(bytes), type, shape};
    std::int64_t row = 0, filled = 0;
    for (const auto& box : part.boxes) {
      const auto rows = part.boxes.size() == 1 ? into : into.slice(row, box.extent[0]);
      row += box.extent[0];
      for (const auto index : given) {
        const auto& range = state_.ranges()[index];
        const auto there = Box::of(range.offsets, range.tensor.shape());
        const auto common = intersection(box, there);
        if (!common) continue;
        checkpoint::copy_box(*common, range.tensor, there, rows, box);
        filled += common->elements();
      }
    }
    if (filled < shape.elements())
      throw BugError(text("saving for Megatron-LM: '", name, "' is given in boxes that lack ",
                          shape.elements() - filled, " elements of this rank"));
    out.assembled.emplace_back(std::vector{checkpoint::whole(name, into)});
    return {shape, {{&out.assembled.back(), 0, 0, shape.elements()}}};
  }

  const checkpoint::StateSnapshot& state_;
  const options::Value& table_;
  const checkpoint::CheckpointLayout& layout_;
  bool copied_;
  std::map<std::string, std::vector<std::size_t>> boxes_;  ///< indices of ranges, by name
  std::vector<std::string> slots_;
};

/// The name of a weight in a module of all experts, by the ends of names under `experts`.
std::string name_in_experts(const std::string& theirs, const options::Value& table) {
  const std::string mark = "{expert}";
  const auto* experts = table.find("experts");
  if (experts == nullptr) return theirs;
  auto digits = theirs.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(theirs[digits - 1])) != 0) --digits;
  const auto number = theirs.substr(digits);
  for (const auto& [end, ours] : experts->fields) {
    const bool one = ends(end, mark);  // of the expert whose number is the end of the name
    const auto before = one ? theirs.substr(0, digits) : theirs;
    const auto pattern = one ? end.substr(0, end.size() - mark.size()) : end;
    if ((one && number.empty()) || !ends(before, pattern)) continue;
    auto name = before.substr(0, before.size() - pattern.size()) + ours.scalar;
    if (one) name.replace(name.find(mark), mark.size(), number);
    return name;
  }
  return theirs;
}

/// Whether tensor_rank and expert_rank name the files of the ranks: no two of them have the same pair, and the ranks of
/// the stage that follow repeat the pairs with the same weights.
bool pairs_name_ranks(const checkpoint::CheckpointLayout& layout) {
  const auto sharers = layout.sharers_of_expert();
  return sharers <= layout.tensor && sharers * layout.expert % layout.tensor == 0;
}

std::string why_not_named(const checkpoint::CheckpointLayout& layout) {
  return text(
      "Megatron-LM's checkpoints (ckpt_format torch) have one folder for each pair of tensor-parallel and "
      "expert-parallel rank, which do not name the ranks of expert_tensor_parallel_size ",
      layout.sharers_of_expert(), " x expert_model_parallel_size ", layout.expert, " with tensor_model_parallel_size ",
      layout.tensor);
}

constexpr const char* how_named =
    "give expert_tensor_parallel_size at most tensor_model_parallel_size, and their product with "
    "expert_model_parallel_size a multiple of it";

}  // namespace

std::string our_name_of_megatron(const std::string& theirs, const options::Value& table) {
  if (const auto* ignored = table.find("ignored"))
    for (const auto& end : ignored->items)
      if (ends(theirs, end.scalar)) return "";
  const auto layer = megatron_layer(theirs);
  const std::string mark = "{layer}";
  const auto of_layer = [&](std::string pattern) {
    if (const auto at = pattern.find(mark); at != std::string::npos)
      pattern.replace(at, mark.size(), std::to_string(layer));
    return pattern;
  };
  if (const auto* renamed = table.find("renamed"))
    for (const auto& [pattern, ours] : renamed->fields)
      if (theirs == of_layer(pattern)) return of_layer(ours.scalar);
  return name_in_experts(theirs, table);
}

std::vector<options::Finding> MegatronFormat::refusals(const checkpoint::SavedRun& run) const {
  std::vector<options::Finding> all;
  if (run.has_experts && !pairs_name_ranks(run.layout))
    all.push_back({.option = "parallel_config.expert_tensor_parallel_size",
                   .message = why_not_named(run.layout),
                   .advice = text(how_named, "; or leave ckpt_format out"),
                   .rule = "not built"});
  if (run.has_noop_layers)
    all.push_back({.option = "parallel_config.noop_layers",
                   .message = "Megatron-LM's checkpoint format (ckpt_format torch) has no no-op layers",
                   .advice = "leave noop_layers or ckpt_format out",
                   .rule = "noop layers"});
  return all;
}

void MegatronFormat::write_rank(const checkpoint::ForeignSave& save, const checkpoint::RankWeights& rank,
                                const checkpoint::StateSnapshot& state) const {
  const auto& layout = save.layout;
  const auto table = save.mappings.table("weights/megatron.yaml");
  const auto args = megatron_arguments(save);
  const auto* predictions = args.find("mtp_num_layers");
  const bool copied = !args.value("untie_embeddings_and_output_weights", false) ||
                      (predictions != nullptr && predictions->is_number() && predictions->get<double>() > 0);
  const auto folder = unfinished_folder(save) / megatron_rank_folder(layout, rank.rank, rank.stage);
  make_folder(folder);
  write_megatron_rank(folder, save.iteration, RankContent(state, table, layout, copied).of(rank), save.progress, args,
                      save.type);
  sync_folder(folder);
}

void MegatronFormat::begin(const checkpoint::ForeignSave& save) const {
  if (!pairs_name_ranks(save.layout))
    throw ConfigError(text("checkpoint of Megatron-LM: ", why_not_named(save.layout), "; ", how_named));
  begin_folder(save);
}

fs::path MegatronFormat::finish(const checkpoint::ForeignSave& save) const {
  checkpoint::write_blobs_beside(unfinished_folder(save), save.iteration, save.files);
  return publish(save);
}

void MegatronFormat::abandon(const checkpoint::ForeignSave& save) const noexcept { abandon_folder(save); }

}  // namespace tessera::megatron
