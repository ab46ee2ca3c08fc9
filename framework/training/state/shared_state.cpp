#include "framework/training/state/shared_state.h"

#include <algorithm>
#include <iterator>

#include "framework/kernels/type_conversion.h"

namespace tessera::training {
namespace {

std::size_t size(std::int64_t elements) { return static_cast<std::size_t>(elements); }

/// Whether every tensor-parallel rank has the whole parameter.
bool is_unsharded(const nn::Parameter& parameter) {
  return !is_of_expert(parameter.role) && parameter.shape() == parameter.global_shape;
}

/// Gives floats the values that a 16-bit type has for them.
void round_in_place(std::span<float> values, DType type) {
  constexpr std::size_t at_once = 4096;
  std::vector<std::byte> rounded(2 * at_once);
  while (!values.empty()) {
    const auto some = values.first(std::min(at_once, values.size()));
    const Tensor narrow(std::span<std::byte>(rounded), type, {static_cast<std::int64_t>(some.size())});
    kernels::narrow_range(some, narrow);
    kernels::widen_range(narrow, some);
    values = values.subspan(some.size());
  }
}

}  // namespace

SharedState::SharedState(StateLayout layout, StateMemory memory, const optim::Optimizer* optimizer,
                         bool overlaps_gather, std::unique_ptr<resilience::UndoLog> undo,
                         std::unique_ptr<resilience::StateSums> sums)
    : layout_(std::move(layout)),
      memory_(std::move(memory)),
      overlaps_gather_(overlaps_gather),
      undo_(std::move(undo)),
      sums_(std::move(sums)),
      reducer_(layout_, memory_),
      gather_(layout_, memory_) {
  connect(optimizer);
}

SharedState::SharedState(std::vector<nn::Parameter*> parameters, const optim::Optimizer* optimizer)
    : layout_(std::move(parameters), optimizer),
      memory_(layout_.segment()),
      reducer_(layout_, memory_),
      gather_(layout_, memory_) {
  connect(optimizer);
}

void SharedState::connect(const optim::Optimizer* optimizer) {
  bind();
  for (const auto& range : layout_.owned_gradients()) owned_gradients_.push_back(memory_.floats(range));
  for (const auto& range : layout_.owned_weights()) owned_weights_.push_back(memory_.floats(range));
  if (optimizer) update_.emplace(layout_, *optimizer, memory_, undo_.get(), sums_.get());
}

/// Lets every parameter look at what the model reads.
void SharedState::bind() {
  const auto& ranges = layout_.parameters().ranges();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    auto& parameter = *ranges[i].parameter;
    auto& leaf = parameter.leaf;
    leaf.stored.reset();
    if (layout_.keeps_rounded(i)) {
      const auto raw = memory_.bytes(StateArray::rounded_weights).subspan(2 * layout_.rounded_of(i));
      leaf.value = Tensor(raw, parameter.type, parameter.shape());
    } else {
      leaf.value =
          Tensor(memory_.floats({StateArray::weights, layout_.weight_of(i), size(ranges[i].count)}), parameter.shape());
      if (parameter.type != DType::float32) {
        leaf.stored = std::make_shared<const StoredMatrix>(dense_rows(leaf.value));
        leaf.value = Tensor::without_elements(parameter.type, parameter.shape());
      }
    }
    parameter.leaf.bind_grad(gradients().empty() ? Tensor{} : nn::FlatParameters::view(ranges[i], gradients()));
  }
}

void SharedState::clear_gradients() {
  const auto all = gradients();
  if (all.empty()) return;
  for (const auto& range : layout_.parameters().ranges()) {
    range.parameter->leaf.make_grad_stale();
    const auto padding = all.subspan(size(range.first + range.count), size(range.padded() - range.count));
    std::fill(padding.begin(), padding.end(), 0.0F);
  }
}

std::span<float> SharedState::weights() {
  must(!layout_.sharing().shards(), "a rank with shards does not have all fp32 weights");
  return memory_.floats(StateArray::weights);
}

void SharedState::initialise(kernels::Threads& threads, std::uint64_t seed) {
  std::vector<float> scratch;
  const auto& ranges = layout_.parameters().ranges();
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (!layout_.sharing().shards() || ranges[i].parameter->type == DType::float32)
      nn::FlatParameters::initialise(
          threads, seed, *ranges[i].parameter,
          memory_.floats({StateArray::weights, layout_.weight_of(i), size(ranges[i].count)}));
  // Every rank draws the whole parameter and keeps its shard, so that initial values do not depend on the layout.
  std::size_t drawn = ranges.size();  // the parameter whose initial values are in scratch
  for (const auto& shard : layout_.shards()) {
    if (shard.weights_in != StateArray::master_weights) continue;
    const auto& range = ranges[shard.parameter];
    if (drawn != shard.parameter) {
      scratch.assign(size(range.padded()), 0);
      nn::FlatParameters::initialise(threads, seed, *range.parameter, std::span(scratch).first(size(range.count)));
      drawn = shard.parameter;
    }
    const auto part = std::span(scratch).subspan(size(shard.elements.first - range.first), size(shard.elements.count));
    std::copy(part.begin(), part.end(),
              memory_.floats({shard.weights_in, shard.weight, size(shard.elements.count)}).begin());
  }
  weights_changed();
}

void SharedState::weights_changed() {
  for (const auto& shard : layout_.shards()) round_weights(layout_, memory_, shard, 0, size(shard.elements.count));
  gather_.begin();
  gather_.finish();
}

void SharedState::round_main_weights() {
  for (const auto& shard : layout_.shards()) {
    const auto& range = layout_.parameters().ranges()[shard.parameter];
    if (range.parameter->type == DType::float32) continue;
    const auto first = shard.elements.first - range.first;
    const auto count = std::min(shard.elements.count, range.count - first);
    if (count <= 0) continue;
    const auto main = memory_.floats({shard.weights_in, shard.weight, size(count)});
    if (!layout_.keeps_rounded(shard.parameter)) {
      round_in_place(main, range.parameter->type);
      continue;
    }
    const auto raw =
        memory_.bytes(StateArray::rounded_weights).subspan(2 * (layout_.rounded_of(shard.parameter) + size(first)));
    kernels::widen_range(Tensor(raw, range.parameter->type, {count}), main);
  }
}

void SharedState::weights_needed() { gather_.finish(); }

void SharedState::update(kernels::Threads& threads, std::span<optim::StepScalars> groups,
                         std::span<const std::size_t> group_of) {
  updates().step(threads, groups, group_of);
  gather_.begin();
  if (!overlaps_gather_) gather_.finish();
}

ShardedUpdate& SharedState::updates() {
  must(update_.has_value(), "a state without optimizer is not updated");
  return *update_;
}

void SharedState::complete_update(kernels::Threads& threads, std::span<optim::StepScalars> groups,
                                  std::span<const std::size_t> group_of) {
  must(update_ && undo_, "an update with an undo log can be completed");
  update_->step(threads, groups, group_of);
}

std::vector<std::span<const std::byte>> SharedState::model_weights() const {
  return {memory_.bytes(StateArray::weights), memory_.bytes(StateArray::rounded_weights)};
}

std::vector<std::span<const std::byte>> SharedState::unsharded_elements() const {
  std::vector<std::span<const std::byte>> all;
  const auto& ranges = layout_.parameters().ranges();
  for (const auto& range : ranges)
    if (is_unsharded(*range.parameter) && !range.parameter->leaf.stored)
      all.push_back(range.parameter->leaf.value.raw());
  if (layout_.sharing().shards()) return all;
  for (const auto& shard : layout_.shards()) {
    if (!is_unsharded(*ranges[shard.parameter].parameter)) continue;
    all.push_back(std::as_bytes(memory_.floats({shard.weights_in, shard.weight, size(shard.elements.count)})));
    for (std::size_t k = 0; k < layout_.state_tensors().size(); ++k)
      all.push_back(std::as_bytes(memory_.floats(layout_.state_of(shard, k))));
  }
  return all;
}

std::vector<std::span<float>> SharedState::shard_elements() {
  std::vector<std::span<float>> all;
  for (const auto& shard : layout_.shards()) {
    all.push_back(memory_.floats({shard.weights_in, shard.weight, size(shard.elements.count)}));
    for (std::size_t k = 0; k < layout_.state_tensors().size(); ++k)
      all.push_back(memory_.floats(layout_.state_of(shard, k)));
  }
  return all;
}

std::vector<std::span<float>> SharedState::shard_gradients() {
  std::vector<std::span<float>> all;
  for (const auto& shard : layout_.shards())
    all.push_back(memory_.floats({StateArray::gradients, size(shard.elements.first), size(shard.elements.count)}));
  return all;
}

std::vector<checkpoint::TensorRange> SharedState::ranges(const std::vector<StateBox>& boxes,
                                                         const std::string& prefix) {
  std::vector<checkpoint::TensorRange> out;
  for (const auto& box : boxes) {
    const auto& parameter = *layout_.parameters().ranges()[box.parameter].parameter;
    out.push_back({.name = prefix + parameter.name,
                   .global_shape = parameter.global_shape,
                   .offsets = box.box.begin,
                   .tensor = Tensor(memory_.floats(box.elements), Shape(box.box.extent)),
                   .role = parameter.role});
  }
  return out;
}

std::vector<checkpoint::TensorRange> SharedState::weight_ranges(StateScope scope) {
  return ranges(layout_.weight_boxes(scope), "");
}

std::vector<checkpoint::TensorRange> SharedState::optimizer_ranges(StateScope scope) {
  std::vector<checkpoint::TensorRange> all;
  for (std::size_t k = 0; k < layout_.state_tensors().size(); ++k) {
    auto own = ranges(layout_.state_boxes(scope, k), "optimizer." + layout_.state_tensors()[k] + ".");
    std::move(own.begin(), own.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace tessera::training
