#include "framework/training/state/model_state.h"

#include <algorithm>
#include <iterator>

#include "framework/kernels/vector.h"
#include "framework/training/state/trained_names.h"

namespace tessera::training {
namespace {

template <class T>
void append(std::vector<T>& all, std::vector<T> more) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
}

std::vector<std::unique_ptr<SharedState>> one_part(std::unique_ptr<SharedState> part) {
  std::vector<std::unique_ptr<SharedState>> parts;
  parts.push_back(std::move(part));
  return parts;
}

/// The frozen ones of `parameters`; `saves(parameter)`: whether this rank saves what it owns of it.
template <class Saves>
std::vector<FrozenWeights::Entry> entries_of(std::span<nn::Parameter* const> parameters, const Saves& saves) {
  std::vector<FrozenWeights::Entry> all;
  for (auto* parameter : select(parameters, false)) all.push_back({parameter, saves(*parameter)});
  return all;
}

}  // namespace

ModelState::ModelState(std::vector<std::unique_ptr<SharedState>> parts, FrozenWeights frozen)
    : parts_(std::move(parts)), frozen_(std::move(frozen)) {
  must(!parts_.empty(), "a state has parts");
  std::int32_t number = 0;
  for (const auto& part : parts_) {
    for (const auto& range : part->layout().parameters().ranges()) range.parameter->leaf.number = number++;
    std::ranges::copy(part->owned_gradients(), std::back_inserter(owned_gradients_));
    std::ranges::copy(part->owned_weights(), std::back_inserter(owned_weights_));
  }
}

ModelState::ModelState(StateLayout layout, StateMemory memory, const optim::Optimizer* optimizer, bool overlaps_gather)
    : ModelState(
          one_part(std::make_unique<SharedState>(std::move(layout), std::move(memory), optimizer, overlaps_gather))) {}

ModelState::ModelState(model::Model& model, const optim::Optimizer* optimizer)
    : ModelState(one_part(std::make_unique<SharedState>(select(model.parameters(), true), optimizer)),
                 FrozenWeights(entries_of(model.parameters(), [](const auto&) { return true; }))) {}

SharedState& ModelState::only() const {
  must(parts_.size() == 1, "a state of one part");
  return *parts_.front();
}

std::vector<const nn::Parameter*> ModelState::parameters() const {
  std::vector<const nn::Parameter*> all;
  for (const auto& part : parts_)
    for (const auto& range : part->layout().parameters().ranges()) all.push_back(range.parameter);
  return all;
}

void ModelState::draw(kernels::Threads& threads, std::uint64_t seed,
                      const std::function<bool(const std::string&)>& is_given) {
  for (const auto& part : parts_) part->draw(threads, seed, is_given);
}

void ModelState::initialise(kernels::Threads& threads, std::uint64_t seed) {
  draw(threads, seed);
  weights_changed();
  frozen_.initialise(threads, seed);
  derive_initial(threads, nullptr);
}

void ModelState::derive_initial(kernels::Threads& threads, const parallel::ProcessGroups* groups,
                                const std::function<bool(const std::string&)>& is_given) {
  auto all = frozen_.parameters();
  for (const auto& part : parts_)
    for (const auto& range : part->layout().parameters().ranges()) all.push_back(range.parameter);
  bool any = false;
  for (auto* parameter : all) {
    if (!parameter->derive) continue;
    any = true;  // on all ranks that share them, whatever of them is given: weights_changed() is collective
    if (!is_given || !is_given(parameter->name)) parameter->derive(threads, groups, parameter->leaf.value.floats());
  }
  if (any) weights_changed();
}

void ModelState::weights_changed() {
  for (const auto& part : parts_) part->weights_changed();
}

void ModelState::weights_needed() {
  for (const auto& part : parts_) part->weights_needed();
  frozen_.require_intact();
}

void ModelState::update_parts(Update function, kernels::Threads& threads, std::span<optim::StepScalars> groups,
                              std::span<const std::size_t> group_of) {
  for (const auto& part : parts_) {
    scalars_.assign(groups.begin(), groups.end());  // an optimizer prepares them in place
    const auto count = group_of.empty() ? 0 : part->layout().parameters().ranges().size();
    ((*part).*function)(threads, scalars_, group_of.first(count));
    group_of = group_of.subspan(count);
  }
}

void ModelState::update(kernels::Threads& threads, std::span<optim::StepScalars> groups,
                        std::span<const std::size_t> group_of) {
  update_parts(&SharedState::update, threads, groups, group_of);
}

void ModelState::watch(const std::shared_ptr<checkpoint::OpenedState>& snapshot) {
  for (const auto& part : parts_) part->updates().watch(snapshot);
}

std::shared_ptr<checkpoint::CopyMemory> ModelState::copy_memory() {
  if (!copy_memory_) copy_memory_ = std::make_shared<checkpoint::CopyMemory>();
  return copy_memory_;
}

void ModelState::complete_update(kernels::Threads& threads, std::span<optim::StepScalars> groups,
                                 std::span<const std::size_t> group_of) {
  update_parts(&SharedState::complete_update, threads, groups, group_of);
}

void ModelState::clear_gradients() {
  for (const auto& part : parts_) part->clear_gradients();
}

StateBytes ModelState::bytes() const {
  const auto mapped = frozen_.mapped();
  StateBytes all{.weights = frozen_.bytes() - mapped.reserved, .mapped = mapped.reserved, .in_files = mapped.in_files};
  for (const auto& part : parts_) all += part->layout().bytes();
  return all;
}

float* ModelState::first_gradient(bool reduced) {
  for (const auto& part : parts_) {
    if (reduced && !part->owned_gradients().empty())
      return &part->gradients()[part->layout().owned_gradients()[0].first];
    if (reduced) continue;
    for (const auto& range : part->layout().parameters().ranges())
      if (const auto owned = range.parameter->owned(); !owned.empty())
        return &part->gradients()[static_cast<std::size_t>(range.first + owned.front().first)];
  }
  return nullptr;
}

std::int64_t ModelState::owned_padding() const {
  std::int64_t all = 0;
  for (const auto& part : parts_) all += part->layout().owned_padding();
  return all;
}

std::vector<checkpoint::TensorRange> ModelState::trained_ranges(StateScope scope) {
  std::vector<checkpoint::TensorRange> all;
  for (const auto& part : parts_) append(all, part->weight_ranges(scope));
  return all;
}

std::vector<checkpoint::TensorRange> ModelState::weight_ranges(StateScope scope) {
  auto all = trained_ranges(scope);
  append(all, frozen_.ranges(scope));
  return all;
}

std::vector<checkpoint::TensorRange> ModelState::optimizer_ranges(StateScope scope) {
  std::vector<checkpoint::TensorRange> all;
  for (const auto& part : parts_) append(all, part->optimizer_ranges(scope));
  return all;
}

std::vector<SharedParameters> groups_of_parameters(std::vector<nn::Parameter*> parameters,
                                                   const parallel::MeshSizes& sizes) {
  std::erase_if(parameters, [](const auto* parameter) { return !parameter->trained; });
  if (sizes.experts_like_dense()) return {{std::move(parameters), false}};
  std::vector<SharedParameters> all(2);
  all[1].experts = true;
  for (auto* parameter : parameters) all[is_of_expert(parameter->role) ? 1 : 0].parameters.push_back(parameter);
  if (all[1].parameters.empty()) all.pop_back();
  return all;
}

FrozenWeights frozen_weights(std::span<nn::Parameter* const> parameters, const parallel::ProcessGroups& processes) {
  const bool alike = processes.mesh.sizes().experts_like_dense();
  return FrozenWeights(entries_of(parameters, [&](const nn::Parameter& parameter) {
    const bool expert = !alike && is_of_expert(parameter.role);
    return (expert ? processes.expert_data : processes.data).rank() == 0;
  }));
}

std::vector<nn::Parameter*> parameters_of(std::span<model::Model* const> chunks) {
  std::vector<nn::Parameter*> all;
  for (auto* chunk : chunks) {
    const auto own = chunk->parameters();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

StateBytes bytes_of_state(std::vector<nn::Parameter*> parameters, const optim::Optimizer& optimizer, int ranks) {
  StateBytes all{.weights = FrozenWeights::bytes_of(parameters)};
  all +=
      StateLayout(select(parameters, true), &optimizer, {.ranks = ranks, .distributed_optimizer = ranks > 1}).bytes();
  return all;
}

}  // namespace tessera::training
