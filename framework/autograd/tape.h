#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"
#include "framework/kernels/weight.h"
#include "framework/tensor/arena.h"

namespace tessera::autograd {

// Reverse-mode automatic differentiation. The forward pass records one Node per operation on a Tape; Tape::backward
// runs the nodes in reverse order and destroys each when it is done. Gradients of parameters are accumulated directly
// in the main gradient; gradients of activations live only from the operation that produces them to the one that
// consumes them.
class Tape;

/// A parameter as operations see it: its value, and its gradient, a view of the flat main gradient. Owned by its
/// Parameter (nn/parameter.h).
class Leaf {
 public:
  /// If the elements are `stored` in a file, or as floats that operations round: only type and shape; operations read
  /// weight() or Tape::read.
  Tensor value;
  std::shared_ptr<const StoredMatrix> stored;
  std::uint64_t seen_by = 0;  ///< Tape::run_ of the last pass that used it
  int number = -1;            ///< index among the trained parameters, for the grad-ready hook
  /// The parameter is frozen, but other ranks train parameters of the same operation, whose backward pass exchanges
  /// values between all of these ranks: some of the experts of a layer.
  bool trained_elsewhere = false;

  /// The value as a factor of products, as rows of a table.
  kernels::Weight weight() const { return stored ? kernels::Weight(*stored, value.dtype()) : kernels::Weight(value); }
  /// Gives the memory of the gradient: fp32, shape of `value`; an empty tensor: the parameter is frozen.
  void bind_grad(Tensor grad) { grad_ = std::move(grad); }
  /// Whether a gradient of the parameter is needed.
  bool trained() const { return !grad_.empty(); }
  /// From here on the gradient stands for zeros, whatever its memory holds, until someone writes it.
  void make_grad_stale() { stale_ = true; }
  bool grad_is_stale() const { return stale_; }
  /// The gradient, to be read. Throws BugError if it is stale.
  Tensor grad() const {
    must(!stale_, "a gradient is read after it was computed");
    return grad_;
  }
  /// The gradient, for an operation that adds to some of it: filled with zeros if it was stale.
  std::span<float> grad_to_add_to(kernels::Threads& threads);
  /// The gradient, for an operation that computes all of it: `add` to it, or overwrite it. It is not stale afterwards.
  struct GradTarget {
    std::span<float> floats;
    bool add;
  };
  GradTarget grad_target() { return {grad_.floats(), !std::exchange(stale_, false)}; }

 private:
  Tensor grad_;
  bool stale_ = false;
};

/// One use of a leaf by a recorded operation. The first use in the forward pass is the last in the backward pass: after
/// that operation the gradient is complete and may be all-reduced.
struct LeafUse {
  Leaf* leaf = nullptr;
  bool first = false;
  explicit operator bool() const { return leaf != nullptr; }
};

/// A value computed on a tape. It is a reference-counted handle: copies refer to the same value, whose memory returns
/// to the arena when no handle is left (recorded operations hold handles to what their backward pass reads). Must not
/// outlive its tape.
class Var {
 public:
  Var() = default;
  Var(const Var& other);
  Var(Var&& other) noexcept : tape_(std::exchange(other.tape_, nullptr)), slot_(other.slot_) {}
  // Two assignments, none by value: see Memory (tensor/arena.h).
  Var& operator=(const Var& other);
  Var& operator=(Var&& other) noexcept;
  ~Var();

  /// Default-constructed: no value.
  bool empty() const { return tape_ == nullptr; }
  /// The memory is the arena's or, for Tape::input, the caller's. A discarded value (Tape::discard) is computed again.
  const Tensor& value() const;
  const Shape& shape() const;
  /// The elements of an fp32 value; throws ShapeError for another type.
  std::span<float> floats() const { return value().floats(); }
  Tape& tape() const { return *tape_; }
  /// Whether backward computes a gradient of this value.
  bool wants_grad() const;

 private:
  friend class Tape;
  friend struct VarId;
  Var(Tape* tape, std::uint32_t slot) : tape_(tape), slot_(slot) {}
  Tape* tape_ = nullptr;
  std::uint32_t slot_ = 0;
};

/// Identifies a value on its tape without keeping its memory alive: enough to take or give its gradient.
struct VarId {
  std::uint32_t slot = 0;
  VarId() = default;
  VarId(const Var& of);  // NOLINT(google-explicit-constructor): every Var can be used as a VarId
};

/// A gradient that one operation passes to the next: the tensor and a reference to its memory. If the memory is shared,
/// other readers exist and it must not be overwritten.
struct Gradient {
  Tensor tensor;
  Memory memory;
  bool empty() const { return tensor.empty(); }
};

/// The elements of a tensor as floats, for the duration of one operation: a view if the tensor is fp32, else a
/// converted copy in arena memory. For Use::write and Use::update the copy is rounded to the tensor's type and stored
/// in the tensor by the destructor.
class Floats {
 public:
  /// read: initialized, not stored back; write: uninitialized, stored back; update: initialized and stored back.
  enum class Use { read, write, update };
  explicit Floats(Tape& tape) : tape_(tape) {}  ///< an absent operand: an empty span
  /// The values read are rounded to `finest`, so that an fp32 weight enters a bf16 product as bf16.
  Floats(Tape& tape, const Tensor& tensor, Use use, DType finest = DType::float32);
  /// A parameter, to be read; the elements of one that is stored in a file are copied as a whole.
  Floats(Tape& tape, const Leaf& leaf, DType finest);
  ~Floats();
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  std::span<float> span() const { return floats_; }
  operator std::span<float>() const { return floats_; }        // NOLINT(google-explicit-constructor): passed to kernels
  operator std::span<const float>() const { return floats_; }  // NOLINT(google-explicit-constructor)
  bool copied() const { return !memory_.empty(); }             ///< a copy: writes reach the tensor at destruction

 private:
  void make_room();             ///< for a copy
  void round_to(DType finest);  ///< the copy of an fp32 tensor
  Tape& tape_;
  Tensor tensor_;
  Use use_ = Use::read;
  Memory memory_;
  std::span<float> floats_;
};

/// A weight as factor of a matrix product with results in `type`: the tensor itself, or, if an fp32 weight enters a
/// 16-bit product, a view that the product rounds, or a copy rounded to `type` in arena memory if it multiplies `type`.
class RoundedWeight {
 public:
  RoundedWeight(Tape& tape, const Leaf& weight, DType type);
  RoundedWeight(const RoundedWeight&) = delete;
  RoundedWeight& operator=(const RoundedWeight&) = delete;
  operator kernels::Weight() const { return weight_; }  // NOLINT(google-explicit-constructor): passed to kernels

 private:
  Memory memory_;
  StoredMatrix view_;
  kernels::Weight weight_;
};

/// A recorded operation. It holds a Var for each value that its backward pass reads and a VarId for each value whose
/// gradient it only takes or gives, so that no activation lives longer than needed.
class Node {
 public:
  virtual ~Node() = default;
  /// Takes the gradients of the outputs and gives those of the inputs. If no gradient arrived, does nothing.
  virtual void backward(Tape& tape) = 0;
};

/// A recorded operation that can compute its result again, with the same bits, from what it keeps for its backward
/// pass.
class Restorable {
 public:
  /// Gives the discarded result its elements with Tape::renewed or Tape::restore.
  virtual void restore(Tape& tape) = 0;

 protected:
  ~Restorable() = default;
};

/// The record of one forward pass of one micro-batch through one model chunk. Several tapes may be alive at once on one
/// arena (pipeline schedules). After clear() a tape is used again without heap allocations. Not thread-safe: one thread
/// records, the kernels inside use `threads`.
class Tape {
 public:
  /// With `records` false nothing is kept for a backward pass (evaluation, generation). `arena` and `threads` must
  /// outlive the tape.
  Tape(Arena& arena, kernels::Threads& threads, bool records);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  kernels::Threads& threads() const { return threads_; }
  /// Whether operations are recorded for a backward pass.
  bool records() const { return records_; }
  /// Sets the compute type: operations compute in fp32 and round their results, and the gradients of these, to it.
  void computes_in(DType type) { type_ = type; }
  DType type() const { return type_; }

  /// A new fp32 value with uninitialized memory.
  Var make(const Shape& shape, bool wants_grad) { return make(DType::float32, shape, wants_grad); }
  /// The same in another type.
  Var make(DType type, const Shape& shape, bool wants_grad);
  /// The same in the compute type.
  Var result(const Shape& shape, bool wants_grad) { return make(type_, shape, wants_grad); }
  /// A value in memory of the caller, which must outlive the pass: an input or a tensor received from another pipeline
  /// stage. With `wants_grad`, take_grad returns its gradient after backward.
  Var input(const Tensor& tensor, bool wants_grad);
  /// A new value for an in-place operation: in the memory of `old` if no other handle refers to it, else in new memory
  /// of the same type and shape. The content is not copied; see to_change (ops/in_place.h).
  Var reuse(Var old, bool wants_grad);
  /// A new value with the memory of `other`; its gradient is separate from that of `other`.
  Var alias(const Var& other, bool wants_grad) { return alias(other, other.shape(), wants_grad); }
  /// The same with another shape. Throws ShapeError if the number of elements differs.
  Var alias(const Var& other, const Shape& shape, bool wants_grad);
  /// A value of another tape on the same arena, with shared memory. Throws BugError for another arena.
  Var adopt(const Var& other, bool wants_grad);
  /// Notes that `by`, the operation that gave a value, can compute it again.
  void restored_by(VarId of, Restorable& by) { slots_[of.slot].by = &by; }
  /// Frees the memory of a value, and of its aliases, although recorded operations keep it: the first to read it finds
  /// it computed again, usually in the backward pass. Does nothing to a value that no recorded operation can compute
  /// again. Source: Megatron-LM core, CheckpointWithoutOutput.
  void discard(VarId of);
  /// Whether a value was made since clear() that depends on a trained parameter or an input that wants a gradient. Also
  /// known if the tape does not record.
  bool saw_wanted() const { return saw_wanted_; }
  /// For Restorable::restore: new memory for a discarded value, to be filled by the caller.
  Tensor renewed(VarId of);
  /// The same with the elements of a value of another tape on the same arena, with shared memory. Throws BugError for
  /// another shape, type or arena.
  void restore(VarId of, const Var& from);
  /// A nested tape for the passes inside one operation (recomputation). Owned by this tape and used again by the next
  /// operation; the user clears it. Its grad-ready hook is this tape's, so a leaf used on it must be used nowhere else.
  Tape& inside(bool records);
  /// Memory for the duration of one operation: freed when the returned handle is.
  Memory scratch(std::size_t floats) { return arena_.allocate(floats * sizeof(float)); }
  /// The same for elements of any type.
  Memory scratch(DType type, std::size_t elements) { return arena_.allocate(elements * size_of(type)); }
  /// Memory that lives until clear(): for data, other than values, that recorded operations read.
  std::span<std::byte> keep(std::size_t bytes) { return kept_.emplace_back(arena_.allocate(bytes)).bytes(); }
  /// Number of memories that keep() has given since clear(), and the release of those after the first `count` before
  /// clear(), when no recorded operation reads them.
  std::size_t kept() const { return kept_.size(); }
  void release_kept(std::size_t count) { kept_.resize(count); }
  /// The same as keep() for `count` values of a type without constructor.
  template <class T>
  std::span<T> keep_array(std::size_t count) {
    return {reinterpret_cast<T*>(keep(count * sizeof(T)).data()), count};
  }
  /// The elements as floats; see Floats.
  Floats read(const Var& of) { return {*this, of.value(), Floats::Use::read}; }
  Floats read(const Tensor& of) { return {*this, of, Floats::Use::read}; }
  /// An operand of a matrix product with results in `type`: rounded to that type if it is finer.
  Floats read(const Leaf& of, DType type) { return {*this, of, type}; }
  /// Uninitialized floats, stored in `into` when the result is destroyed.
  Floats write(const Var& into) { return {*this, into.value(), Floats::Use::write}; }
  /// All of `memory` as floats; may be longer than what was asked for.
  static std::span<float> floats(const Memory& memory) {
    const auto bytes = memory.bytes();
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
  }

  /// Notes that the operation being recorded uses `leaf`. nullptr gives an empty LeafUse. Must be called in recording
  /// order, because it tells first uses from later ones.
  LeafUse use(Leaf* leaf);
  /// Records an operation: constructs Op from `args` in memory of the tape. The result is valid until its backward
  /// pass.
  template <class Op, class... Args>
  Op& record(Args&&... args) {
    auto* op = new (room(sizeof(Op), alignof(Op))) Op(std::forward<Args>(args)...);
    nodes_.push_back(op);
    return *op;
  }

  /// Sets the gradient of `at` from outside: the start of the backward pass, or what a later pipeline stage sent.
  /// Throws ShapeError if the shapes differ.
  void seed(const Var& at, const Tensor& gradient);
  /// Runs all recorded operations in reverse order, and destroys each when it is done.
  void backward();
  /// `hook` is called during backward with each leaf whose gradient of this pass is complete.
  void on_grad_ready(std::function<void(Leaf&)> hook) { hook_ = std::move(hook); }
  /// Drops all values and operations; keeps the memory for the next pass. Throws BugError if a Var of this tape still
  /// exists.
  void clear();

  // The rest is for operations, while backward runs.

  /// Removes and returns the gradient of `of`; empty if none arrived.
  Gradient take_grad(VarId of) { return std::exchange(slots_[of.slot].grad, {}); }
  /// Contributes `gradient` to the gradient of `to`: moved if it is the first contribution, else added. Dropped if `to`
  /// wants no gradient.
  void give_grad(VarId to, Gradient gradient);
  /// The same, but always copies or adds: `gradient` stays the caller's.
  void add_grad(VarId to, const Tensor& gradient);
  /// Where an operation writes a gradient of `to` itself, which saves a temporary. `add`: a contribution is already
  /// there, so add to it. Empty tensor: no gradient is wanted.
  struct Target {
    Tensor tensor;
    bool add;
  };
  Target grad_target(VarId to);
  /// The floats to write or add to, as `target` says.
  Floats write(const Target& target) {
    return {*this, target.tensor, target.add ? Floats::Use::update : Floats::Use::write};
  }
  /// Reports that the operation is done with `use`; calls the hook if this was the last use in the backward pass.
  void done(const LeafUse& use) const {
    const auto* tape = this;
    while (tape->outside_) tape = tape->outside_;
    if (use.first && tape->hook_) tape->hook_(*use.leaf);
  }

 private:
  friend class Var;
  /// One value: its tensor, its memory, its gradient so far, and the number of Vars that refer to it.
  struct Slot {
    Tensor value;
    Memory memory;
    Gradient grad;
    Restorable* by = nullptr;  ///< computes the value again; null: nothing does
    std::uint32_t source = 0;  ///< the value that this is an alias of; else itself
    std::uint32_t handles = 0;
    bool wants_grad = false, discarded = false;
  };
  static constexpr std::size_t chunk_bytes = 1 << 16;

  /// A new slot with one handle.
  Var add_slot(Tensor value, Memory memory, bool wants_grad);
  /// Gives a discarded value and its discarded aliases, as far as handles refer to them, these elements.
  void refill(std::uint32_t slot, const Tensor& value, const Memory& memory);
  /// One handle fewer; frees the memory of the value when none is left.
  void drop(std::uint32_t slot);
  /// Memory for a Node: nodes are placement-constructed in chunks, which saves a heap allocation each.
  void* room(std::size_t bytes, std::size_t alignment);
  void forget_nodes();

  Arena& arena_;
  kernels::Threads& threads_;
  const bool records_;
  bool saw_wanted_ = false;
  DType type_ = DType::float32;
  // A number that is unique per pass on this arena; tells whether a leaf was already used in this pass.
  std::uint64_t run_;
  std::vector<Slot> slots_;
  std::vector<Memory> kept_;
  std::vector<Node*> nodes_;  ///< in recording order; constructed in chunks_
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::size_t chunk_ = 0, used_ = 0;
  std::function<void(Leaf&)> hook_;
  const Tape* outside_ = nullptr;              ///< the tape that this one is nested in; null: none
  std::unique_ptr<Tape> recording_, looking_;  ///< nested tapes, with and without recording
};

inline VarId::VarId(const Var& of) : slot(of.slot_) {}

}  // namespace tessera::autograd
