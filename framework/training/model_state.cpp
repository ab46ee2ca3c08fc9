#include "framework/training/model_state.h"

#include <algorithm>

#include "framework/base/checked.h"
#include "framework/kernels/convert.h"

namespace tessera {
namespace {

constexpr std::size_t piece_elements =
    32768;  // 0.5 MB of weights, gradients and two slots: fits the second-level cache

std::vector<Parameter*> parameters_of(std::span<Model* const> chunks) {
  std::vector<Parameter*> all;
  for (auto* chunk : chunks) {
    const auto own = chunk->parameters();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::size_t size(std::int64_t elements) { return static_cast<std::size_t>(elements); }

std::span<float> part(std::span<float> all, std::size_t first, std::size_t count) {
  return all.empty() ? all : all.subspan(first, count);
}

}  // namespace

ModelState::Array::Array(const Communicator* group, std::size_t bytes) {
  if (group)
    shared_ = std::make_unique<GroupBuffer>(*group, bytes);
  else
    own_ = Storage(bytes);
}

std::span<std::byte> ModelState::Array::bytes() const { return shared_ ? shared_->bytes() : own_.bytes(); }
std::span<float> ModelState::Array::floats() const {
  const auto raw = bytes();
  return {reinterpret_cast<float*>(raw.data()), raw.size() / sizeof(float)};
}

ModelState::ModelState(Model& model, const Optimizer* optimizer)
    : ModelState(std::array<Model*, 1>{&model}, optimizer) {}

ModelState::ModelState(std::span<Model* const> chunks, const Optimizer* optimizer, const StateSharing& sharing)
    : optimizer_(optimizer), sharing_(sharing), layout_(parameters_of(chunks)) {
  if (optimizer) slots_ = optimizer->slots();
  must(slots_.size() <= most_slots, "an optimizer has no more slots than a block can name");
  buckets_ = make_buckets(layout_, sharing.bucket_elements);
  place_stretches();
  allocate();
  bind();
  count_ranges();
  if (optimizer) cut_into_pieces();
}

/// Where everything goes; slots and masters of what is updated here lie one after the other.
void ModelState::place_stretches() {
  std::size_t value = 0, master = 0, slot = 0;
  for (const auto& run : layout_.runs()) {
    value_first_.push_back(value);
    if (!shards() || run.parameter->type == DType::float32) value += size(run.padded());
  }
  const auto& data = sharing_.data;
  const auto stretches = shards() ? stretches_of(layout_, buckets_, data.rank(), data.size()) : all_stretches(layout_);
  for (const auto& stretch : stretches) {
    const auto& run = layout_.runs()[stretch.run];
    const bool in_masters = shards() && run.parameter->type != DType::float32;
    const auto in_values = value_first_[stretch.run] + size(stretch.elements.first - run.first);
    placed_.push_back({stretch, in_masters ? master : in_values, slot, in_masters});
    if (in_masters) master += size(stretch.elements.count);
    slot += size(stretch.elements.count);
  }
}

void ModelState::allocate() {
  const auto* group = sharing_.data.size() > 1 && optimizer_ ? &sharing_.data : nullptr;
  const auto* shared = shards() ? group : nullptr;
  std::size_t values = 0, masters = 0, updated = 0;
  for (std::size_t i = 0; i < layout_.runs().size(); ++i)
    if (!shards() || layout_.runs()[i].parameter->type == DType::float32) values += size(layout_.runs()[i].padded());
  for (const auto& placed : placed_) {
    updated += size(placed.stretch.elements.count);
    if (placed.in_masters) masters += size(placed.stretch.elements.count);
  }
  const auto all = size(layout_.elements());
  values_ = Array(values > 0 ? shared : nullptr, values * sizeof(float));
  if (optimizer_) gradients_ = Array(group, all * sizeof(float));
  if (layout_.has_16_bit()) rounded_ = Array(shared, 2 * all);
  masters_ = Storage(masters * sizeof(float));
  slots_memory_ = Storage(updated * slots_.size() * sizeof(float));
}

/// Let every parameter look at what the model reads.
void ModelState::bind() const {
  for (std::size_t i = 0; i < layout_.runs().size(); ++i) {
    const auto& run = layout_.runs()[i];
    auto& parameter = *run.parameter;
    const auto shape = parameter.shape();
    if (parameter.type == DType::float32)
      parameter.leaf.value = Tensor(values_.floats().subspan(value_first_[i], size(run.count)), shape);
    else
      parameter.leaf.value = Tensor(rounded_.bytes().subspan(2 * size(run.first)), parameter.type, shape);
    parameter.leaf.grad = gradients().empty() ? Tensor{} : FlatParameters::view(run, gradients());
  }
}

std::span<float> ModelState::weights() const {
  must(!shards(), "every process has all its weights in fp32");
  return values_.floats();
}

std::span<float> ModelState::master(const Placed& placed) const {
  const auto all = placed.in_masters ? masters_.floats() : values_.floats();
  return all.subspan(placed.master, size(placed.stretch.elements.count));
}

std::span<float> ModelState::slot(const Placed& placed, std::size_t k) const {
  const auto updated = slots_memory_.floats().size() / slots_.size();
  return slots_memory_.floats().subspan(k * updated + placed.slot, size(placed.stretch.elements.count));
}

/// Elements of the stretch, counted in its run, that this process speaks for.
std::vector<ElementRange> ModelState::spoken_for(const Placed& placed) const {
  if (!shards() && sharing_.data.rank() > 0) return {};
  const auto& run = layout_.runs()[placed.stretch.run];
  const auto first = placed.stretch.elements.first - run.first,
             last = std::min(first + placed.stretch.elements.count, run.count);
  std::vector<ElementRange> ranges;
  for (const auto& owned : run.parameter->owned()) {
    const auto begin = std::max(first, owned.first), end = std::min(last, owned.first + owned.count);
    if (begin < end) ranges.push_back({begin, end - begin});
  }
  return ranges;
}

void ModelState::count_ranges() {
  const auto join = [](std::vector<std::span<float>>& all, std::span<float> next) {
    if (next.empty()) return;
    if (!all.empty() && all.back().data() + all.back().size() == next.data())
      all.back() = {all.back().data(), all.back().size() + next.size()};
    else
      all.push_back(next);
  };
  for (const auto& placed : placed_) {
    const auto& run = layout_.runs()[placed.stretch.run];
    const auto in_run = placed.stretch.elements.first - run.first;
    for (auto range : spoken_for(placed)) {
      const bool to_the_end = range.first + range.count == run.count;
      if (to_the_end) {  // the padding behind it too, so that neighbours join
        padding_counted_ += in_run + placed.stretch.elements.count - run.count;
        range.count = in_run + placed.stretch.elements.count - range.first;
      }
      join(counted_gradients_, part(gradients(), size(run.first + range.first), size(range.count)));
      join(counted_weights_, part(master(placed), size(range.first - in_run), size(range.count)));
    }
  }
}

void ModelState::cut_into_pieces() {
  for (std::size_t i = 0; i < placed_.size(); ++i) {
    const auto& stretch = placed_[i].stretch;
    const auto& parameter = *layout_.runs()[stretch.run].parameter;
    const auto shape = parameter.shape();
    const bool decay = decays(parameter.name, shape.rank());
    const auto all = size(stretch.elements.count);
    if (shape.rank() == 2 && optimizer_->wants_whole(parameter.name, shape[0], shape[1])) {
      if (shards() || !parameter.cut.strips.empty())
        throw ConfigError(text("optimizer_config.optimizer_type works on whole matrices, but processes share ",
                               parameter.name, "; give tensor_model_parallel_size 1 and no distributed optimizer"));
      wholes_.push_back({i, 0, all, decay});
      continue;
    }
    for (std::size_t first = 0; first < all; first += piece_elements)
      pieces_.push_back({i, first, std::min(piece_elements, all - first), decay});
  }
}

Block ModelState::block(const Piece& piece) const {
  const auto& placed = placed_[piece.placed];
  Block block;
  block.master = master(placed).subspan(piece.first, piece.count);
  block.grad = gradients().subspan(size(placed.stretch.elements.first) + piece.first, piece.count);
  for (std::size_t k = 0; k < slots_.size(); ++k) block.slots[k] = slot(placed, k).subspan(piece.first, piece.count);
  block.decays = piece.decays;
  return block;
}

/// What the model reads of elements [first, first + count) of a stretch, when that is rounded to 16 bits.
void ModelState::round(const Placed& placed, std::size_t first, std::size_t count) const {
  const auto& run = layout_.runs()[placed.stretch.run];
  if (run.parameter->type == DType::float32) return;
  const auto in_run = size(placed.stretch.elements.first - run.first) + first;
  if (in_run >= size(run.count)) return;
  count = std::min(count, size(run.count) - in_run);  // padding is nobody's
  const auto raw = rounded_.bytes().subspan(2 * (size(run.first) + in_run));
  narrow_range(master(placed).subspan(first, count),
               Tensor(raw, run.parameter->type, {static_cast<std::int64_t>(count)}));
}

void ModelState::update(Threads& threads, std::span<StepScalars> groups, std::span<const std::size_t> group_of) const {
  must(optimizer_ != nullptr, "a state without optimizer is not updated");
  for (auto& group : groups) group = optimizer_->prepared(group);
  const auto scalars = [&](const Piece& piece) -> const StepScalars& {
    return groups[group_of.empty() ? 0 : group_of[placed_[piece.placed].stretch.run]];
  };
  threads.parallel_for(pieces_.size(), 1, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i) {
      optimizer_->update(scalars(pieces_[i]), block(pieces_[i]));
      round(placed_[pieces_[i].placed], pieces_[i].first, pieces_[i].count);
    }
  });
  for (const auto& piece : wholes_) {
    const auto shape = layout_.runs()[placed_[piece.placed].stretch.run].parameter->shape();
    optimizer_->update_whole(threads, scalars(piece), {block(piece), shape[0], shape[1]});
    round(placed_[piece.placed], piece.first, piece.count);
  }
  gather();
}

void ModelState::weights_changed() const {
  for (const auto& placed : placed_) round(placed, 0, size(placed.stretch.elements.count));
  gather();
  weights_needed();
}

/// Every process gets the weights that the others updated.
void ModelState::gather() const {
  if (!shards()) return;
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) {  // in the order of the forward pass
    const bool plain = bucket->type == DType::float32;
    const auto bytes = plain ? sizeof(float) : 2;
    const auto first = plain ? value_first_[bucket->first_run] : size(bucket->elements.first);
    (plain ? values_ : rounded_)
        .shared()
        .begin_gather({first * bytes, size(bucket->elements.count) * bytes}, bytes, "weights of the other replicas");
  }
  if (!sharing_.overlaps_gather) weights_needed();
}

void ModelState::weights_needed() const {
  if (!shards()) return;
  if (layout_.has_16_bit()) rounded_.shared().finish();
  if (!values_.bytes().empty()) values_.shared().finish();
}

void ModelState::begin_sum(std::size_t bucket) const {
  const auto& elements = buckets_[bucket].elements;
  gradients_.shared().begin_sum({size(elements.first) * sizeof(float), size(elements.count) * sizeof(float)}, !shards(),
                                "gradients");
}
void ModelState::progress() const { gradients_.shared().progress(); }
void ModelState::finish_sums() const { gradients_.shared().finish(); }

void ModelState::initialise(Threads& threads, std::uint64_t seed) const {
  std::vector<float> scratch;
  std::size_t at = 0;
  for (std::size_t i = 0; i < layout_.runs().size(); ++i) {
    const auto& run = layout_.runs()[i];
    const bool direct = !shards() || run.parameter->type == DType::float32;
    if (!direct) scratch.resize(size(run.padded()));
    const auto own =
        direct ? values_.floats().subspan(value_first_[i], size(run.count)) : std::span(scratch).first(size(run.count));
    FlatParameters::initialise(threads, seed, *run.parameter, own);
    for (; at < placed_.size() && placed_[at].stretch.run == i; ++at) {
      if (direct) continue;
      const auto first = size(placed_[at].stretch.elements.first - run.first);
      const auto to = master(placed_[at]);
      for (std::size_t k = 0; k < to.size(); ++k) to[k] = first + k < own.size() ? own[first + k] : 0;
    }
  }
  weights_changed();
}

std::vector<TensorRange> ModelState::ranges(Ranges which, const std::string& prefix, std::size_t slot_index) const {
  std::vector<TensorRange> out;
  for (const auto& placed : placed_) {
    const auto& run = layout_.runs()[placed.stretch.run];
    const auto in_run = placed.stretch.elements.first - run.first;
    std::vector<ElementRange> wanted = {{in_run, std::min(placed.stretch.elements.count, run.count - in_run)}};
    if (which == Ranges::saved) wanted = spoken_for(placed);
    const auto memory = prefix.empty() ? master(placed) : slot(placed, slot_index);
    for (const auto& range : wanted) {
      if (range.count <= 0) continue;
      for (const auto& box : boxes_of(*run.parameter, range)) {
        const auto elements = memory.subspan(size(box.first - in_run), size(box.shape.elements()));
        out.push_back(
            {prefix + run.parameter->name, run.parameter->global_shape, box.offsets, Tensor(elements, box.shape)});
      }
    }
  }
  return out;
}

std::vector<TensorRange> ModelState::weight_ranges(Ranges which) const { return ranges(which, "", 0); }

std::vector<TensorRange> ModelState::optimizer_ranges(Ranges which) const {
  std::vector<TensorRange> all;
  for (std::size_t k = 0; k < slots_.size(); ++k) {
    auto own = ranges(which, "optimizer." + slots_[k] + ".", k);
    std::move(own.begin(), own.end(), std::back_inserter(all));
  }
  return all;
}

std::int64_t ModelState::bytes() const {
  return static_cast<std::int64_t>(values_.bytes().size() + gradients_.bytes().size() + rounded_.bytes().size() +
                                   masters_.bytes().size() + slots_memory_.bytes().size());
}

ModelState::Bytes ModelState::bytes_for(Model& model, const Optimizer& optimizer, int ranks) {
  return bytes_for(model.parameters(), optimizer, ranks);
}

ModelState::Bytes ModelState::bytes_for(const std::vector<Parameter*>& parameters, const Optimizer& optimizer,
                                        int ranks) {
  const FlatParameters layout(parameters);
  const auto all = layout.elements();
  std::int64_t plain = 0, updated = all, masters = 0;
  for (const auto& run : layout.runs())
    if (run.parameter->type == DType::float32) plain += run.padded();
  if (ranks > 1) {
    updated = 0;
    for (const auto& stretch : stretches_of(layout, make_buckets(layout, 0), 0, ranks)) {
      updated += stretch.elements.count;
      if (layout.runs()[stretch.run].parameter->type != DType::float32) masters += stretch.elements.count;
    }
  }
  const auto values = ranks > 1 ? plain + masters : all;
  const auto slots = static_cast<std::int64_t>(optimizer.slots().size());
  const auto in_floats = [](const char* name, std::int64_t count) {
    return checked_product({{name, count}, {"bytes of each", sizeof(float)}});
  };
  return {in_floats("weights", values) + (layout.has_16_bit() ? 2 * all : 0), in_floats("gradients", all),
          in_floats("elements of optimizer state", slots * updated)};
}

}  // namespace tessera
