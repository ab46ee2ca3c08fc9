#include "framework/training/model_state.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::size_t piece_elements =
    32768;  // 0.5 MB of weights, gradients and two slots: fits the second-level cache

std::size_t flat_bytes(const FlatParameters& layout) {
  return static_cast<std::size_t>(layout.elements()) * sizeof(float);
}

}  // namespace

ModelState::ModelState(Model& model, const Optimizer* optimizer) : optimizer_(optimizer), layout_(model.parameters()) {
  if (optimizer) slots_ = optimizer->slots();
  weights_and_slots_ = Storage(flat_bytes(layout_) * (1 + slots_.size()));
  if (optimizer) {
    gradients_ = Storage(flat_bytes(layout_));
    block_ = lay_out(*optimizer, weights_and_slots_.floats(), gradients_.floats());
  } else {
    block_.master = weights_and_slots_.floats();
  }
  layout_.bind(block_.master, gradients());
  cut_into_pieces();
}

void ModelState::cut_into_pieces() {
  for (const auto& run : layout_.runs()) {
    const bool decay = decays(run.parameter->name, run.parameter->global_shape.rank());
    const auto end = static_cast<std::size_t>(run.first + run.padded());
    for (auto first = static_cast<std::size_t>(run.first); first < end; first += piece_elements)
      pieces_.push_back({first, std::min(piece_elements, end - first), decay});
  }
}

void ModelState::update(Threads& threads, const StepScalars& scalars) const {
  must(optimizer_ != nullptr, "a state without optimizer is not updated");
  const auto prepared = optimizer_->prepared(scalars);
  threads.parallel_for(pieces_.size(), 1, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i) {
      auto part = block_.part(pieces_[i].first, pieces_[i].count);
      part.decays = pieces_[i].decays;
      optimizer_->update(prepared, part);
    }
  });
}

std::vector<TensorRange> ModelState::weight_ranges() const {
  std::vector<TensorRange> ranges;
  for (const auto& run : layout_.runs())
    ranges.push_back(whole(run.parameter->name, FlatParameters::view(run, block_.master)));
  return ranges;
}

std::vector<TensorRange> ModelState::optimizer_ranges() const {
  std::vector<TensorRange> ranges;
  for (std::size_t k = 0; k < slots_.size(); ++k)
    for (const auto& run : layout_.runs())
      ranges.push_back(
          whole(text("optimizer.", slots_[k], ".", run.parameter->name), FlatParameters::view(run, block_.slots[k])));
  return ranges;
}

std::int64_t ModelState::bytes_for(Model& model, const Optimizer& optimizer) {
  const FlatParameters layout(model.parameters());
  return static_cast<std::int64_t>(flat_bytes(layout) * (2 + optimizer.slots().size()));
}

}  // namespace tessera
