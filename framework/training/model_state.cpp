#include "framework/training/model_state.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::size_t piece_elements =
    32768;  // 0.5 MB of weights, gradients and two slots: fits the second-level cache

std::size_t flat_bytes(const FlatParameters& layout) {
  return static_cast<std::size_t>(layout.elements()) * sizeof(float);
}

std::size_t rounded_bytes(const FlatParameters& layout) {
  return layout.has_16_bit() ? 2 * static_cast<std::size_t>(layout.elements()) : 0;
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
  if (layout_.has_16_bit()) rounded_ = Storage(rounded_bytes(layout_));
  layout_.bind(block_.master, gradients(), rounded_.bytes());
  cut_into_pieces();
}

void ModelState::cut_into_pieces() {
  const auto& runs = layout_.runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& parameter = *runs[i].parameter;
    const auto& shape = parameter.global_shape;
    const bool decay = decays(parameter.name, shape.rank());
    const auto begin = static_cast<std::size_t>(runs[i].first),
               end = begin + static_cast<std::size_t>(runs[i].padded());
    if (optimizer_ && shape.rank() == 2 && optimizer_->wants_whole(parameter.name, shape[0], shape[1])) {
      wholes_.push_back({begin, end - begin, i, decay});
      continue;
    }
    for (auto first = begin; first < end; first += piece_elements)
      pieces_.push_back({first, std::min(piece_elements, end - first), i, decay});
  }
}

void ModelState::update(Threads& threads, std::span<StepScalars> groups, std::span<const std::size_t> group_of) const {
  must(optimizer_ != nullptr, "a state without optimizer is not updated");
  for (auto& group : groups) group = optimizer_->prepared(group);
  const auto scalars = [&](const Piece& piece) -> const StepScalars& {
    return groups[group_of.empty() ? 0 : group_of[piece.run]];
  };
  const auto block = [&](const Piece& piece) {
    auto part = block_.part(piece.first, piece.count);
    part.decays = piece.decays;
    return part;
  };
  const auto follow = [&](const Piece& piece) {
    layout_.round(layout_.runs()[piece.run], block_.master, static_cast<std::int64_t>(piece.first),
                  static_cast<std::int64_t>(piece.count));
  };
  threads.parallel_for(pieces_.size(), 1, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i) {
      optimizer_->update(scalars(pieces_[i]), block(pieces_[i]));
      follow(pieces_[i]);
    }
  });
  for (const auto& piece : wholes_) {
    const auto& shape = layout_.runs()[piece.run].parameter->global_shape;
    optimizer_->update_whole(threads, scalars(piece), {block(piece), shape[0], shape[1]});
    follow(piece);
  }
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
  return static_cast<std::int64_t>(flat_bytes(layout) * (2 + optimizer.slots().size()) + rounded_bytes(layout));
}

}  // namespace tessera
