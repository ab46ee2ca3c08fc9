#include "framework/interop/megatron/megatron_rank.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/tables/our_names.h"
#include "framework/options/limits.h"

namespace tessera::megatron {
namespace {

namespace fs = std::filesystem;
using Kind = torch::PickleNode::Kind;

constexpr const char* shared_file = "distrib_optim.pt";
const std::string expert_mark = "{expert}", state_begin = "optimizer.";
const std::string table_name = "embedding.word_embeddings.weight", head_name = "output_layer.weight";

/// Whether a weight is in one of Megatron-LM's parameter groups with weight decay. That is a fact about the file, which
/// Megatron-LM decides by name and rank, not by roles, and which is needed before any model is constructed: it says
/// which group has the weight's optimizer state. Source: Megatron-LM core, optimizer/__init__.py, `no_wd`.
bool decays(const std::string& name, std::size_t rank) {
  return rank != 1 && (name.size() < 5 || name.compare(name.size() - 5, 5, ".bias") != 0);
}

bool name_ends(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

bool flag_of(const torch::PickleNode& group, const char* key) {
  const auto* value = group.find(key);
  return value != nullptr && value->kind == Kind::boolean && value->flag;
}

/// An optimizer with master weights has that of torch inside it.
const torch::PickleNode& inner_optimizer(const torch::PickleNode& optimizer) {
  for (const char* key : {"optimizer", "optimizer_state_dict"})  // the latter in old versions
    if (const auto* nested = optimizer.find(key)) return *nested;
  return optimizer;
}

/// In reverse order, without gaps; at the end it is padded for the ranks that share it. Source: Megatron-LM 23.06,
/// model/distributed.py.
std::vector<std::int64_t> packed_places(const std::vector<std::int64_t>& elements) {
  std::vector<std::int64_t> places(elements.size() + 1, 0);
  std::int64_t used = 0;
  for (auto i = elements.size(); i-- > 0; used += elements[i]) places[i] = used;
  places.back() = used;
  return places;
}

}  // namespace

/// linear_fc1 is [in, experts x out] there, linear_fc2 [experts x in, out]; as Megatron-LM views both, the experts lie
/// one behind the other. Source: Megatron-LM core, GroupedMLP.
bool MegatronRank::Weight::is_input_of_expert() const { return name.find(".linear_fc1.") != std::string::npos; }

Shape MegatronRank::Weight::kept() const {
  return is_input_of_expert() ? Shape{shape[0], shape[1] / experts} : Shape{shape[0] / experts, shape[1]};
}

std::string MegatronRank::Weight::name_of(std::int64_t e) const {
  auto own = name;
  return own.replace(own.find(expert_mark), expert_mark.size(), std::to_string(first_expert + e));
}

void MegatronRank::put(const Weight& weight, const std::string& beginning, const torch::TorchFile& file,
                       const torch::PickleNode& node, std::int64_t first) {
  if (weight.experts == 0) {
    pieces_[beginning + weight.name] = {&file, &node, first, weight.shape, false, weight.rows};
    return;
  }
  const auto kept = weight.kept();
  for (std::int64_t e = 0; e < weight.experts; ++e)
    pieces_[beginning + weight.name_of(e)] = {&file, &node, std::max<std::int64_t>(first, 0) + e * kept.elements(),
                                              kept, true};
}

MegatronRank::MegatronRank(const fs::path& folder, const options::Value& table) : folder_(folder) {
  file_ = std::make_unique<torch::TorchFile>(folder / weights_file);
  file_->check_sums();
  if (const auto* model = root().find("model"); model != nullptr) {
    take_chunk(*model, table);
  } else {
    while (const auto* chunk = root().find(text("model", chunks_.size()))) take_chunk(*chunk, table);
  }
  if (chunks_.empty()) refuse("its file holds no 'model'");
  if (fs::exists(folder / shared_file)) {
    shared_ = std::make_unique<torch::TorchFile>(folder / shared_file);
    shared_->check_sums();
  }
}

void MegatronRank::refuse(const std::string& message) const {
  throw ConfigError(text(folder_.string(), ": ", message));
}

void MegatronRank::take_chunk(const torch::PickleNode& model, const options::Value& table) {
  if (model.kind != Kind::dict) refuse("its file holds no 'model'");
  auto& weights = chunks_.emplace_back();
  const auto version = number(root().find("checkpoint_version")).value_or(0);
  for (const auto& [theirs, node] : tensors_by_name(model)) {
    const auto ours = our_name_of_megatron(core_name_of_legacy(theirs, table), table);
    if (ours.empty()) continue;
    if (!torch::TorchFile::is_tensor(*node)) refuse(text("'", theirs, "' is not a tensor"));
    if (checkpoint::layer_of(ours) > options::most_layers)
      refuse(text("'", theirs, "' is of a layer beyond ", options::most_layers, ", the most that a model may have"));
    weights.push_back(weight_of(ours, *node, table));
    weights.back().rows = fused_rows(theirs, version);
  }
}

MegatronRank::Weight MegatronRank::weight_of(const std::string& name, const torch::PickleNode& node,
                                             const options::Value& table) const {
  Weight weight{.name = name, .node = &node, .shape = file_->tensor(node, name).shape()};
  if (const auto* buffers = table.find("buffers"))
    weight.buffer = std::any_of(buffers->items.begin(), buffers->items.end(),
                                [&](const auto& end) { return name_ends(name, end.scalar); });
  if (name.find(expert_mark) == std::string::npos) return weight;
  weight.experts = experts_here();
  if (weight.experts < 1 || weight.shape.rank() != 2 ||
      weight.shape[weight.is_input_of_expert() ? 1 : 0] % weight.experts != 0)
    refuse(text("'", name, "' is ", weight.shape, ", which is not that of the num_experts ", weight.experts,
                " of a rank that its 'args' name"));
  return weight;
}

std::int64_t MegatronRank::experts_here() const {
  const auto all = number(argument("num_experts")).value_or(0);
  const auto ranks = number(argument("expert_model_parallel_size")).value_or(1);
  if (!(all >= 0 && all <= options::most_experts && ranks >= 1 && ranks <= options::most_experts)) return 0;
  return static_cast<std::int64_t>(all) / static_cast<std::int64_t>(ranks);
}

void MegatronRank::must_know_heads(const Weight& weight) const {
  if (weight.rows == FusedRows::by_head) return;
  const auto version = number(root().find("checkpoint_version")).value_or(0);
  if (saved().flag("group_query_attention"))
    refuse(text("is of checkpoint_version ", version,
                ", which knows no groups of queries, and its 'args' have group_query_attention"));
  if (place_.heads < 1)
    refuse(text("is of checkpoint_version ", version, ", whose rows of '", weight.name,
                "' are ordered by the number of heads, and it does not give one: it has no 'args'; give the recipe of "
                "its model (checkpoint convert --like RECIPE.yaml, or load_checkpoint in a run of it)"));
  if (weight.shape[0] % (3 * place_.heads) != 0)
    refuse(text("'", weight.name, "' is ", weight.shape, ", which is not that of queries, keys and values of ",
                place_.heads, " heads of a tensor-parallel rank"));
}

/// In the files of ranks that divide the experts, each rank counts its own from 0.
void MegatronRank::number_expert(Weight& weight, std::int64_t expert_rank) const {
  if (expert_rank == 0 || !megatron_is_of_expert(weight.name)) return;
  const auto here = experts_here();
  if (here < 1 || megatron_expert(weight.name) >= here)
    refuse(text("'", weight.name, "' is of another expert than the ", here, " of a rank that its 'args' name"));
  if (weight.experts > 0)
    weight.first_expert = expert_rank * here;
  else
    weight.name = megatron_shifted_expert(weight.name, expert_rank * here);
}

std::int64_t MegatronRank::layers(std::size_t chunk) const {
  std::int64_t count = 0;
  for (const auto& weight : chunks_[chunk]) count = std::max(count, checkpoint::layer_of(weight.name) + 1);
  return count;
}

std::int64_t MegatronRank::rows_of_vocabulary() const {
  for (const auto& weight : chunks_[0])
    if (weight.name == table_name) return weight.shape[0];
  return 0;
}

void MegatronRank::place(const MegatronPlace& place) {
  must(place.first_layers.size() == chunks_.size(), "every chunk of a rank is placed");
  place_ = place;
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const bool first_of_model = place_.stage == 0 && c == 0;
    for (auto& weight : chunks_[c]) {
      must_know_heads(weight);
      number_expert(weight, place.expert_rank);
      weight.name = megatron_shifted(weight.name, place.first_layers[c]);
      weight.copy = !first_of_model && (weight.name == table_name || (place.tied && weight.name == head_name));
      if (weight.copy) continue;
      if (has(weight.experts > 0 ? weight.name_of(0) : weight.name)) refuse(text("'", weight.name, "' is there twice"));
      put(weight, "", *file_, *weight.node);
    }
  }
  const auto all = optimizers();
  std::vector<const torch::PickleNode*> buffers;
  if (shared_) buffers = shared_->root().kind == Kind::list ? shared_->root().items : std::vector{&shared_->root()};
  if (shared_ && buffers.size() != std::max<std::size_t>(1, all.size()))
    refuse(text(shared_file, " has ", buffers.size(), " optimizers, and ", weights_file, " ", all.size()));
  if (shared_ && all.empty()) take_shared_optimizer(*buffers[0], Scope::all);
  std::set<Scope> seen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto scope = all.size() == 1 ? Scope::all : scope_of(*all[i]);
    if (!seen.insert(scope).second)
      refuse(
          "has several optimizers of the same weights (--overlap-param-gather-with-optimizer-step); one for experts "
          "and "
          "one for all other weights are read; save it without that flag");
    take_optimizer(*all[i], scope);
    if (shared_ && buffers[i]->kind == Kind::dict) take_shared_optimizer(*buffers[i], scope);
  }
  add_state_of_buffers();
}

/// Where weights have optimizer state, buffers have zeros: here every parameter has some.
void MegatronRank::add_state_of_buffers() {
  std::set<std::string> slots;
  for (const auto& [name, piece] : pieces_)
    if (checkpoint::is_optimizer_state(name)) slots.insert(name.substr(0, name.find('.', state_begin.size()) + 1));
  for (const auto* weight : weights()) {
    if (!weight->buffer) continue;
    zeros_.resize(std::max(zeros_.size(), static_cast<std::size_t>(weight->shape.elements())));
    for (const auto& slot : slots) pieces_[slot + weight->name] = {nullptr, nullptr, -1, weight->shape};
  }
}

std::vector<std::string> MegatronRank::names(std::size_t chunk) const {
  std::vector<std::string> all;
  for (const auto& weight : chunks_[chunk]) {
    if (weight.copy) continue;
    if (weight.experts == 0) all.push_back(weight.name);
    for (std::int64_t e = 0; e < weight.experts; ++e) all.push_back(weight.name_of(e));
  }
  return all;
}

std::vector<const MegatronRank::Weight*> MegatronRank::weights() const {
  std::vector<const Weight*> all;
  for (const auto& chunk : chunks_)
    for (const auto& weight : chunk) all.push_back(&weight);
  return all;
}

std::vector<const MegatronRank::Weight*> MegatronRank::trained(std::size_t chunk, Scope scope) const {
  std::vector<const Weight*> all;
  for (const auto& weight : chunks_[chunk])
    if (!weight.buffer && is_within(scope, weight)) all.push_back(&weight);
  return all;
}

bool MegatronRank::is_within(Scope scope, const Weight& weight) {
  return scope == Scope::all || (scope == Scope::experts) == megatron_is_of_expert(weight.name);
}

std::vector<const torch::PickleNode*> MegatronRank::optimizers() const {
  const auto* optimizer = root().find("optimizer");
  if (optimizer == nullptr || optimizer->kind == Kind::none) return {};
  std::vector<const torch::PickleNode*> all = {optimizer};
  if (optimizer->kind == Kind::list) all = optimizer->items;
  for (const auto* one : all)
    if (one->kind != Kind::dict) refuse("its 'optimizer' is neither a dict nor a list of dicts");
  return all;
}

/// The groups of an optimizer among several say whether it is that of the experts.
MegatronRank::Scope MegatronRank::scope_of(const torch::PickleNode& optimizer) const {
  const auto* groups = inner_optimizer(optimizer).find("param_groups");
  if (groups == nullptr || groups->kind != Kind::list || groups->items.empty())
    refuse("one of its several optimizers has no groups, so its weights are not known");
  const bool experts = flag_of(*groups->items[0], "is_expert_parallel");
  for (const auto* group : groups->items)
    if (flag_of(*group, "is_expert_parallel") != experts)
      refuse("one of its several optimizers has groups with and without is_expert_parallel");
  return experts ? Scope::experts : Scope::dense;
}

void MegatronRank::take_optimizer(const torch::PickleNode& optimizer, Scope scope) {
  const auto& inner = inner_optimizer(optimizer);
  const auto *groups = inner.find("param_groups"), *state = inner.find("state");
  const auto* masters = optimizer.find("fp32_from_fp16_params");
  if (masters == nullptr) masters = optimizer.find("fp32_from_fp16");  // its name in old versions
  if (groups == nullptr || groups->kind != Kind::list) return;
  for (const auto* group : groups->items)
    if (const auto step = number(group->find("step"))) updates_ = *step;
  if (state != nullptr && !shared_) take_groups(*groups, *state, masters, scope);
}

/// Of each group whether its weights decay, 1 or 0. In old versions that is only to be seen from the weight decay
/// itself; the first group is the one that decays.
std::vector<std::optional<double>> MegatronRank::decay_of_groups(const torch::PickleNode& groups) const {
  std::vector<std::optional<double>> all;
  for (const auto* group : groups.items) {
    all.push_back(number(group->find("wd_mult")));
    if (all.back()) continue;
    const bool set_apart = groups.items.size() > 1 && all.size() > 1;
    if (group->find("weight_decay") != nullptr)
      all.back() = number(group->find("weight_decay")) > 0 || !set_apart ? 1 : 0;
  }
  return all;
}

/// Weights in the order of the model go to the group that says the same of them, each to the next place in it.
void MegatronRank::take_groups(const torch::PickleNode& groups, const torch::PickleNode& state,
                               const torch::PickleNode* masters, Scope scope) {
  std::map<std::int64_t, const torch::PickleNode*> state_of;
  for (std::size_t i = 0; i + 1 < state.items.size(); i += 2) state_of[state.items[i]->integer] = state.items[i + 1];
  const bool decoupled = std::any_of(groups.items.begin(), groups.items.end(),
                                     [](const auto* group) { return flag_of(*group, "is_decoupled_lr"); });
  const auto decay = decay_of_groups(groups);
  std::vector<std::size_t> used(groups.items.size(), 0);
  for (const auto* weight : weights()) {
    if (weight->buffer || !is_within(scope, *weight)) continue;
    const auto& name = weight->name;
    const double wd = decays(name, weight->shape.rank()) ? 1 : 0;
    std::size_t at = 0;
    const auto fits = [&](std::size_t group) {
      return decay[group] == wd &&
             flag_of(*groups.items[group], "is_decoupled_lr") == (decoupled && tables::has_vocabulary_rows(name));
    };
    while (at < groups.items.size() && !fits(at)) ++at;
    const auto* ids = at < groups.items.size() ? groups.items[at]->find("params") : nullptr;
    if (ids == nullptr || used[at] >= ids->items.size())
      refuse(text("its optimizer has no parameter group for '", name, "' (wd_mult ", wd, ")"));
    const auto place = used[at]++;
    if (weight->copy) continue;
    if (masters != nullptr && masters->kind == Kind::list && at < masters->items.size() &&
        place < masters->items[at]->items.size())
      put(*weight, "", *file_, *masters->items[at]->items[place]);
    const auto found = state_of.find(ids->items[place]->integer);
    if (found != state_of.end() && found->second->kind == Kind::dict) take_state(*found->second, *weight);
  }
}

void MegatronRank::take_state(const torch::PickleNode& state, const Weight& weight) {
  const auto& slots = state.items;
  for (std::size_t i = 0; i + 1 < slots.size(); i += 2) {
    if (slots[i]->text == "step") updates_ = number(slots[i + 1]).value_or(updates_);
    if (slots[i]->text == "step" || !torch::TorchFile::is_tensor(*slots[i + 1])) continue;
    const auto kept = file_->tensor(*slots[i + 1], weight.name).shape();
    if (kept != weight.shape) refuse(text("its optimizer keeps ", kept, " for '", weight.name, "' of ", weight.shape));
    put(weight, text(state_begin, slots[i]->text, "."), *file_, *slots[i + 1]);
  }
}

/// There is a buffer for each chunk of the model that has weights of this optimizer.
void MegatronRank::take_shared_optimizer(const torch::PickleNode& buffers, Scope scope) {
  std::vector<const torch::PickleNode*> given;
  bool packed = false;
  for (std::size_t i = 0; i + 1 < buffers.items.size(); i += 2) {
    if (buffers.items[i]->kind != Kind::integer) continue;  // buckets_coalesced
    const auto& types = *buffers.items[i + 1];
    if (types.kind != Kind::dict || types.items.size() != 2)
      refuse(text(shared_file, " has other buffers than one for each chunk of the model"));
    if (number(types.items[1]->find("numel_unpadded")) == 0) continue;  // of a chunk without weights
    given.push_back(types.items[1]);
    packed = types.items[0]->kind == Kind::global;  // the one type of gradients, not a pair
  }
  std::vector<std::size_t> chunks;
  for (std::size_t c = 0; c < chunks_.size(); ++c)
    if (!trained(c, scope).empty()) chunks.push_back(c);
  if (given.size() != chunks.size())
    refuse(text(shared_file, " has ", given.size(), " buffers for ", chunks.size(), " chunks of the model"));
  for (std::size_t i = 0; i < chunks.size(); ++i) take_buffer(*given[i], chunks[i], scope, packed);
}

std::int64_t MegatronRank::bucket_size(std::size_t chunk) const {
  std::int64_t all = 0;
  for (const auto* weight : weights()) all += weight->buffer ? 0 : weight->shape.elements();
  return saved().bucket_size(place_.stage == 0 && chunk == 0, all);
}

std::vector<std::int64_t> MegatronRank::places_in_buffer(const std::vector<const Weight*>& own,
                                                         std::size_t chunk) const {
  const bool predicts = saved().count("mtp_num_layers", 0) > 0;
  const auto shared = [&](const Weight& weight) {
    return weight.copy || (place_.tied && tables::has_vocabulary_rows(weight.name)) ||
           (predicts && weight.name == table_name);
  };
  std::vector<MegatronFlat> flats;
  for (const auto* weight : own) flats.push_back({weight->shape.elements(), place_.stages > 1 && shared(*weight)});
  return megatron_flat_places(flats, bucket_size(chunk));
}

void MegatronRank::take_buffer(const torch::PickleNode& buffer, std::size_t chunk, Scope scope, bool packed) {
  const auto own = trained(chunk, scope);
  std::vector<std::int64_t> elements;
  for (const auto* weight : own) elements.push_back(weight->shape.elements());
  const auto places = packed ? packed_places(elements) : places_in_buffer(own, chunk);
  for (std::size_t i = 0; i + 1 < buffer.items.size(); i += 2) {
    const auto& slot = buffer.items[i]->text;
    if (!torch::TorchFile::is_tensor(*buffer.items[i + 1])) continue;
    const auto there = shared_->tensor(*buffer.items[i + 1], slot).elements();
    if (there != places.back() && !(packed && there > places.back()))
      refuse(text(shared_file, " has ", there, " elements of '", slot, "'; the model's layout makes ", places.back(),
                  " of them"));
    for (std::size_t w = 0; w < own.size(); ++w)
      if (!own[w]->copy)
        put(*own[w], slot == "param" ? "" : text(state_begin, slot, "."), *shared_, *buffer.items[i + 1], places[w]);
  }
}

void MegatronRank::verify() const {
  file_->verify();
  if (shared_) shared_->verify();
}

void MegatronRank::require_intact() const {
  file_->require_intact();
  if (shared_) shared_->require_intact();
}

std::vector<std::string> MegatronRank::all_names() const {
  std::vector<std::string> all;
  for (const auto& piece : pieces_) all.push_back(piece.first);
  return all;
}

const MegatronRank::Piece& MegatronRank::piece(const std::string& name) const {
  const auto found = pieces_.find(name);
  if (found == pieces_.end()) refuse(text("has no tensor '", name, "'"));
  return found->second;
}

bool MegatronRank::has_rows_of_ours(const std::string& name) const {
  const auto& own = piece(name);
  return !own.turned && own.rows == FusedRows::by_head;
}

Shape MegatronRank::shape(const std::string& name) const {
  const auto& own = piece(name);
  if (own.turned) return Shape{own.shape[1], own.shape[0]};
  return own.first < 0 && own.file != nullptr ? own.file->tensor(*own.node, name).shape() : own.shape;
}

DType MegatronRank::dtype(const std::string& name) const {
  const auto& own = piece(name);
  return own.file == nullptr ? DType::float32 : own.file->tensor(*own.node, name).dtype();
}

Tensor MegatronRank::tensor(const std::string& name) const {
  const auto& own = piece(name);
  if (own.file == nullptr) return {std::span(zeros_), own.shape};
  const auto all = own.file->tensor(*own.node, text("tensor '", name, "'"));
  const auto kept =
      own.first < 0 ? all
                    : all.reshaped(Shape{all.elements()}).slice(own.first, own.shape.elements()).reshaped(own.shape);
  if (own.rows != FusedRows::by_head) return by_head(kept, own.rows);
  return own.turned ? turned(kept) : kept;
}

Tensor MegatronRank::by_head(const Tensor& kept, FusedRows rows) const {
  turned_.resize(kept.bytes());
  copy_by_head(kept, rows, place_.heads, turned_);
  return {std::span(turned_), kept.dtype(), kept.shape()};
}

Tensor MegatronRank::turned(const Tensor& kept) const {
  const auto rows = kept.shape()[0], width = kept.shape()[1];
  const auto size = static_cast<std::int64_t>(size_of(kept.dtype()));
  turned_.resize(kept.bytes());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < width; ++c)
      std::memcpy(turned_.data() + (c * rows + r) * size, kept.raw().data() + (r * width + c) * size,
                  static_cast<std::size_t>(size));
  return {std::span(turned_), kept.dtype(), Shape{width, rows}};
}

}  // namespace tessera::megatron
