#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "framework/kernels/threads.h"
#include "framework/tensor/arena.h"

namespace tessera {

class Tape;

/// What an operation needs of a parameter: its value and where its gradient goes. Parameter gradients are added
/// straight into `grad`, which lies in the flat main gradient.
struct Leaf {
  Tensor value;
  Tensor grad;                ///< fp32, same shape; empty: not trained
  std::uint64_t seen_by = 0;  ///< run of the tape that used it last
  int number = -1;            ///< position among the model's parameters, for the grad-ready hook

  bool trained() const { return !grad.empty(); }
};

/// One use of a leaf in a recorded operation. The first use in a forward pass is the last in the backward pass: when
/// its operation is through, the gradient is complete.
struct LeafUse {
  Leaf* leaf = nullptr;
  bool first = false;
  explicit operator bool() const { return leaf != nullptr; }
};

/// A value computed on a tape. A handle: copies share the value, whose memory returns to the arena when the last handle
/// is gone and no recorded operation needs it.
class Var {
 public:
  Var() = default;
  Var(const Var& other);
  Var(Var&& other) noexcept : tape_(std::exchange(other.tape_, nullptr)), slot_(other.slot_) {}
  Var& operator=(Var other) noexcept;
  ~Var();

  bool empty() const { return tape_ == nullptr; }
  const Tensor& value() const;
  const Shape& shape() const { return value().shape(); }
  std::span<float> floats() const { return value().floats(); }
  Tape& tape() const { return *tape_; }
  bool wants_grad() const;

 private:
  friend class Tape;
  friend struct Place;
  Var(Tape* tape, std::uint32_t slot) : tape_(tape), slot_(slot) {}
  Tape* tape_ = nullptr;
  std::uint32_t slot_ = 0;
};

/// Where a value stands on its tape, without holding its memory: enough to take or give its gradient.
struct Place {
  std::uint32_t slot = 0;
  Place() = default;
  Place(const Var& of);  // NOLINT(google-explicit-constructor): every Var is also a place
};

/// A gradient on its way from one operation to the next: a tensor and the share in its memory.
struct Gradient {
  Tensor tensor;
  Memory memory;
  bool empty() const { return tensor.empty(); }
};

/// The elements of a tensor as floats, for the time of an operation: themselves where they are stored so, else a copy.
/// What was written to a copy goes back, rounded to the tensor's type, when this leaves.
class Floats {
 public:
  enum class Use { read, write, update };
  explicit Floats(Tape& tape) : tape_(tape) {}  ///< none: an operand that is left out
  /// What is read is rounded to `finest`.
  Floats(Tape& tape, const Tensor& tensor, Use use, DType finest = DType::float32);
  ~Floats();
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  std::span<float> span() const { return floats_; }
  operator std::span<float>() const { return floats_; }        // NOLINT(google-explicit-constructor): that is its use
  operator std::span<const float>() const { return floats_; }  // NOLINT(google-explicit-constructor)
  bool copied() const { return !memory_.empty(); }             ///< what is written here the tensor does not see yet

 private:
  Tape& tape_;
  Tensor tensor_;
  Use use_ = Use::read;
  Memory memory_;
  std::span<float> floats_;
};

/// A recorded operation. Keeps as Var what its backward pass reads and as Place what it only passes gradients
/// to or from; is destroyed as soon as that is done.
class Node {
 public:
  virtual ~Node() = default;
  /// Take the gradients of the outputs, give those of the inputs.
  virtual void backward(Tape& tape) = 0;
};

/// The record of one forward pass of one micro batch through one chunk of a model. A value: several may be alive at
/// once on one arena. Cleared and used again it takes nothing from the heap.
class Tape {
 public:
  /// `records` false: nothing is kept for a backward pass (evaluation, generation). Neither is owned; both outlive the
  /// tape.
  Tape(Arena& arena, Threads& threads, bool records);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Threads& threads() const { return threads_; }
  bool records() const { return records_; }
  /// Operations compute in fp32 and round what they give to this type; so are the gradients of such values.
  void computes_in(DType type) { type_ = type; }
  DType type() const { return type_; }

  /// A value of fp32 with memory of its own and arbitrary content.
  Var make(const Shape& shape, bool wants_grad) { return make(DType::float32, shape, wants_grad); }
  Var make(DType type, const Shape& shape, bool wants_grad);
  /// The same in the type that this tape computes in.
  Var result(const Shape& shape, bool wants_grad) { return make(type_, shape, wants_grad); }
  /// A value in somebody else's memory: a boundary tensor. With `wants_grad` its gradient is found by take_grad after
  /// backward.
  Var input(const Tensor& tensor, bool wants_grad);
  /// A new value in the memory of `old`, whose content may be overwritten, if nobody else looks at it; else in memory
  /// of its own.
  Var reuse(Var old, bool wants_grad);
  /// The same value at a place of its own, whose gradient is not yet that of `other`.
  Var alias(const Var& other, bool wants_grad);
  /// A value of another tape on the same arena: its memory is shared.
  Var adopt(const Var& other, bool wants_grad);
  /// A tape for what goes on inside one operation, kept for the next one; who uses it clears it. Its grad-ready hook is
  /// this tape's, so a leaf that is used inside is used nowhere else.
  Tape& inside(bool records);
  /// Memory for the time of one operation.
  Memory scratch(std::size_t floats) { return arena_.allocate(floats * sizeof(float)); }
  /// Memory that lives as long as the pass: what recorded operations look at besides values.
  std::span<std::byte> keep(std::size_t bytes) { return kept_.emplace_back(arena_.allocate(bytes)).bytes(); }
  Floats read(const Var& of) { return {*this, of.value(), Floats::Use::read}; }
  Floats read(const Tensor& of) { return {*this, of, Floats::Use::read}; }
  /// A factor of a product whose results are of `type`: no finer than they.
  Floats read(const Leaf& of, DType type) { return {*this, of.value, Floats::Use::read, type}; }
  Floats write(const Var& into) { return {*this, into.value(), Floats::Use::write}; }
  static std::span<float> floats(const Memory& memory) {
    const auto bytes = memory.bytes();
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
  }

  /// Note that the operation being recorded uses `leaf`; empty for nullptr.
  LeafUse use(Leaf* leaf);
  template <class Op, class... Args>
  void record(Args&&... args) {
    nodes_.push_back(new (room(sizeof(Op), alignof(Op))) Op(std::forward<Args>(args)...));
  }

  /// Set the gradient of `at` from outside: what a later pipeline stage sent back.
  void seed(const Var& at, const Tensor& gradient);
  /// Run all recorded operations backwards, each destroyed when done.
  void backward();
  /// Called with each leaf whose gradient of this pass is complete.
  void on_grad_ready(std::function<void(Leaf&)> hook) { hook_ = std::move(hook); }
  /// Forget everything, memory kept for the next pass. No Var of this tape may be used afterwards.
  void clear();

  // For operations, while backward runs.
  /// The gradient of `of`, handed over; empty when none arrived.
  Gradient take_grad(Place of) { return std::exchange(slots_[of.slot].grad, {}); }
  /// `gradient` is the whole or a part of the gradient of `to`; dropped when `to` wants none.
  void give_grad(Place to, Gradient gradient);
  /// The same, copied or added at once.
  void add_grad(Place to, const Tensor& gradient);
  /// Where to write a gradient of `to`: `add` says that there is one already, to be added to. Empty tensor: none is
  /// wanted.
  struct Target {
    Tensor tensor;
    bool add;
  };
  Target grad_target(Place to);
  /// The floats to write or add to.
  Floats write(const Target& target) {
    return {*this, target.tensor, target.add ? Floats::Use::update : Floats::Use::write};
  }
  /// The operation is through with `use`: fires the hook when that was the last of the pass.
  void done(const LeafUse& use) const {
    const auto* tape = this;
    while (tape->outside_) tape = tape->outside_;
    if (use.first && tape->hook_) tape->hook_(*use.leaf);
  }

 private:
  friend class Var;
  struct Slot {
    Tensor value;
    Memory memory;
    Gradient grad;
    std::uint32_t handles = 0;
    bool wants_grad = false;
  };
  static constexpr std::size_t chunk_bytes = 1 << 16;

  Var add_slot(Tensor value, Memory memory, bool wants_grad);
  void drop(std::uint32_t slot);
  void* room(std::size_t bytes, std::size_t alignment);
  void forget_nodes();

  Arena& arena_;
  Threads& threads_;
  const bool records_;
  DType type_ = DType::float32;
  std::uint64_t run_;
  std::vector<Slot> slots_;
  std::vector<Memory> kept_;
  std::vector<Node*> nodes_;  ///< lie in chunks_
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::size_t chunk_ = 0, used_ = 0;
  std::function<void(Leaf&)> hook_;
  const Tape* outside_ = nullptr;              ///< whose operation this tape is inside of
  std::unique_ptr<Tape> recording_, looking_;  ///< tapes inside of operations of this one
};

inline Place::Place(const Var& of) : slot(of.slot_) {}

}  // namespace tessera
