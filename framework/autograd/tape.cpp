#include "framework/autograd/tape.h"

#include <typeinfo>

#include "framework/base/trace.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/type_conversion.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {

std::span<float> Leaf::grad_to_add_to(kernels::Threads& threads) {
  if (std::exchange(stale_, false)) kernels::fill(threads, 0, grad_.floats());
  return grad_.floats();
}

// A Var is one handle of its slot. The memory is released with the last handle, the slot only by clear().
Var::Var(const Var& other) : tape_(other.tape_), slot_(other.slot_) {
  if (tape_) ++tape_->slots_[slot_].handles;
}

Var& Var::operator=(const Var& other) { return *this = Var(other); }

Var& Var::operator=(Var&& other) noexcept {
  Var from(std::move(other));
  std::swap(tape_, from.tape_);
  std::swap(slot_, from.slot_);
  return *this;
}

Var::~Var() {
  if (tape_) tape_->drop(slot_);
}

const Tensor& Var::value() const {
  const auto& slot = tape_->slots_[slot_];
  if (slot.discarded) {
    const TraceSpan span(TraceKind::operation, "recomputation");
    tape_->slots_[slot.source].by->restore(*tape_);
  }
  return slot.value;
}
const Shape& Var::shape() const { return tape_->slots_[slot_].value.shape(); }
bool Var::wants_grad() const { return tape_ && tape_->slots_[slot_].wants_grad; }

// An fp32 tensor is used in place unless its values must be rounded first; then a rounded copy is made.
Floats::Floats(Tape& tape, const Tensor& tensor, Use use, DType finest) : tape_(tape), tensor_(tensor), use_(use) {
  if (tensor.dtype() == DType::float32 && finest == DType::float32) {
    floats_ = tensor.floats();
    return;
  }
  make_room();
  if (use != Use::write) kernels::widen(tape.threads(), tensor, floats_);
  round_to(finest);
}

Floats::Floats(Tape& tape, const Leaf& leaf, DType finest) : tape_(tape), tensor_(leaf.value) {
  const bool plain = tensor_.dtype() == DType::float32 && finest == DType::float32;
  if (!leaf.stored && plain) {
    floats_ = tensor_.floats();
    return;
  }
  make_room();
  if (leaf.stored)
    kernels::read_box(*leaf.stored, {0, leaf.stored->rows(), 0, leaf.stored->width}, tensor_.dtype(), floats_);
  else
    kernels::widen(tape.threads(), tensor_, floats_);
  round_to(finest);
}

void Floats::make_room() {
  const auto count = static_cast<std::size_t>(tensor_.elements());
  memory_ = tape_.scratch(count);
  floats_ = Tape::floats(memory_).first(count);
}

void Floats::round_to(DType finest) {
  if (tensor_.dtype() == DType::float32) kernels::round_to(tape_.threads(), finest, floats_);
}

Floats::~Floats() {
  if (copied() && use_ != Use::read) kernels::narrow(tape_.threads(), floats_, tensor_);
}

RoundedWeight::RoundedWeight(Tape& tape, const Leaf& weight, DType type) : weight_(weight.weight()) {
  if (type == DType::float32 || weight_.type() != DType::float32) return;
  if (weight.stored) {
    weight_.elements.type = type;
    return;
  }
  if (const auto& shape = weight.value.shape();
      shape.rank() == 2 && shape[1] >= 2 && kernels::multiplies_floats(type)) {
    view_ = dense_rows(weight.value);
    weight_ = kernels::Weight(view_, type);
    return;
  }
  const auto count = weight_.size();
  memory_ = tape.scratch(type, count);
  const kernels::MutableElements rounded(memory_.bytes().data(), count, type);
  kernels::narrow(tape.threads(), weight.value.floats(), rounded);
  weight_ = kernels::Elements(rounded);
}

Tape::Tape(Arena& arena, kernels::Threads& threads, bool records)
    : arena_(arena), threads_(threads), records_(records), run_(arena.ticket()) {
  chunks_.push_back(std::make_unique<std::byte[]>(chunk_bytes));
}

Var Tape::add_slot(Tensor value, Memory memory, bool wants_grad) {
  const auto slot = static_cast<std::uint32_t>(slots_.size());
  saw_wanted_ = saw_wanted_ || wants_grad;
  slots_.push_back({.value = value,
                    .memory = std::move(memory),
                    .grad = {},
                    .source = slot,
                    .handles = 1,
                    .wants_grad = wants_grad && records_});
  return {this, slot};
}

Var Tape::make(DType type, const Shape& shape, bool wants_grad) {
  auto memory = arena_.allocate(static_cast<std::size_t>(shape.elements()) * size_of(type));
  const Tensor value(memory.bytes(), type, shape);
  return add_slot(value, std::move(memory), wants_grad);
}

Var Tape::input(const Tensor& tensor, bool wants_grad) { return add_slot(tensor, {}, wants_grad); }

// Overwriting is safe only if `old` is the only handle, the memory is the arena's, and no other value or gradient
// shares it.
Var Tape::reuse(Var old, bool wants_grad) {
  const auto& slot = slots_[old.slot_];
  if (slot.handles > 1 || slot.memory.empty() || slot.memory.shared())
    return make(slot.value.dtype(), slot.value.shape(), wants_grad);
  const auto value = slot.value;
  auto memory = slot.memory;
  return add_slot(value, std::move(memory), wants_grad);  // the old handle lets go of its share when it leaves
}

Var Tape::alias(const Var& other, const Shape& shape, bool wants_grad) {
  const auto value = slots_[other.slot_].value.reshaped(shape);
  auto memory = slots_[other.slot_].memory;
  auto alias = add_slot(value, std::move(memory), wants_grad);
  slots_.back().source = slots_[other.slot_].source;
  return alias;
}

Var Tape::adopt(const Var& other, bool wants_grad) {
  const auto& slot = other.tape_->slots_[other.slot_];
  must(!slot.memory.empty() && &other.tape_->arena_ == &arena_, "an adopted value has memory of the same arena");
  return add_slot(slot.value, slot.memory, wants_grad);
}

void Tape::discard(VarId of) {
  if (!slots_[of.slot].by) return;
  for (auto slot = slots_.begin() + of.slot; slot != slots_.end(); ++slot) {
    if (slot->source != of.slot || slot->handles == 0) continue;
    slot->memory = {};
    slot->discarded = true;
  }
}

void Tape::refill(std::uint32_t source, const Tensor& value, const Memory& memory) {
  for (auto slot = slots_.begin() + source; slot != slots_.end(); ++slot) {
    if (slot->source != source || !slot->discarded || slot->handles == 0) continue;
    slot->value = value.reshaped(slot->value.shape());
    slot->memory = memory;
    slot->discarded = false;
  }
}

Tensor Tape::renewed(VarId of) {
  const auto& before = slots_[of.slot].value;
  const auto memory = arena_.allocate(before.bytes());
  const Tensor value(memory.bytes(), before.dtype(), before.shape());
  refill(of.slot, value, memory);
  return value;
}

void Tape::restore(VarId of, const Var& from) {
  const auto& before = slots_[of.slot].value;
  const auto& other = from.tape_->slots_[from.slot_];
  must(&from.tape_->arena_ == &arena_ && other.value.shape() == before.shape() && other.value.dtype() == before.dtype(),
       "a value is restored with what it was");
  refill(of.slot, other.value, other.memory);
}

Tape& Tape::inside(bool records) {
  auto& tape = records ? recording_ : looking_;
  if (!tape) tape = std::make_unique<Tape>(arena_, threads_, records);
  tape->outside_ = this;
  tape->type_ = type_;
  return *tape;
}

void Tape::drop(std::uint32_t slot) {
  auto& gone = slots_[slot];
  if (--gone.handles == 0) gone.memory = {};
}

LeafUse Tape::use(Leaf* leaf) {
  if (!leaf) return {};
  const bool first = leaf->seen_by != run_;
  leaf->seen_by = run_;
  return {leaf, first};
}

// A bump allocator: nodes are created in order and destroyed in reverse, so no free list is needed.
void* Tape::room(std::size_t bytes, std::size_t alignment) {
  used_ = (used_ + alignment - 1) / alignment * alignment;
  if (used_ + bytes > chunk_bytes) {
    if (++chunk_ == chunks_.size()) chunks_.push_back(std::make_unique<std::byte[]>(chunk_bytes));
    used_ = 0;
  }
  must(bytes <= chunk_bytes, "an operation keeps handles, not data");
  void* at = chunks_[chunk_].get() + used_;
  used_ += bytes;
  return at;
}

void Tape::seed(const Var& at, const Tensor& gradient) {
  if (gradient.shape() != at.shape())
    throw ShapeError(text("tape: the gradient is ", gradient.shape(), ", but its value is ", at.shape()));
  add_grad(at, gradient);
}

void Tape::backward() {
  while (!nodes_.empty()) {
    auto* node = nodes_.back();
    {
      const TraceSpan span(TraceKind::operation, typeid(*node).name());
      node->backward(*this);
    }
    trace_counter(TraceKind::operation_counter, "activations", arena_.in_use());
    nodes_.pop_back();
    node->~Node();
  }
}

void Tape::forget_nodes() {
  for (; !nodes_.empty(); nodes_.pop_back()) nodes_.back()->~Node();
}

Tape::~Tape() { forget_nodes(); }

void Tape::clear() {
  forget_nodes();
  for (const auto& slot : slots_) must(slot.handles == 0, "no value of a tape outlives it");
  slots_.clear();
  kept_.clear();
  saw_wanted_ = false;
  chunk_ = used_ = 0;
  run_ = arena_.ticket();
}

// The first contribution is taken over without a copy. Its memory may be shared with another value's gradient;
// grad_target copies it before anything is added.
void Tape::give_grad(VarId to, Gradient gradient) {
  auto& slot = slots_[to.slot];
  if (slot.wants_grad && slot.grad.empty() && gradient.tensor.dtype() == slot.value.dtype())
    slot.grad = std::move(gradient);
  else
    add_grad(to, gradient.tensor);
}

void Tape::add_grad(VarId to, const Tensor& gradient) {
  const auto target = grad_target(to);
  if (target.tensor.empty()) return;
  const auto from = read(gradient), into = write(target);
  if (target.add)
    kernels::add(threads_, from, into);
  else
    kernels::copy(threads_, from, into);
}

Tape::Target Tape::grad_target(VarId to) {
  auto& slot = slots_[to.slot];
  if (!slot.wants_grad) return {};
  if (!slot.grad.empty() && !slot.grad.memory.shared()) return {slot.grad.tensor, true};
  auto memory = arena_.allocate(slot.value.bytes());
  const Tensor tensor(memory.bytes(), slot.value.dtype(), slot.value.shape());
  // Copy on write.
  const bool had_one = !slot.grad.empty();
  if (had_one)  // another reader still uses the old memory
    kernels::copy_bytes(threads_, slot.grad.tensor.raw(), tensor.raw());
  slot.grad = {tensor, std::move(memory)};
  return {tensor, had_one};
}

}  // namespace tessera::autograd
