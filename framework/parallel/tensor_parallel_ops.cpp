#include "framework/parallel/tensor_parallel_ops.h"

#include <algorithm>
#include <cstring>

#include "framework/autograd/ops/in_place.h"
#include "framework/kernels/vector.h"

namespace tessera::parallel {
namespace {

/// A tensor as [outer, parts, inner]: along the divided dimension, part r belongs to rank r.
struct Pieces {
  std::size_t outer, parts, inner;  ///< inner in bytes

  /// For dimension `dim` of the whole tensor.
  Pieces(const Shape& whole, std::size_t dim, int members, DType type)
      : outer(1), parts(static_cast<std::size_t>(members)), inner(size_of(type)) {
    if (whole[dim] % members != 0)
      throw ShapeError(
          text("tensor parallel: dim ", dim, " of ", whole, " does not divide by ", members, " processes"));
    for (std::size_t k = 0; k < dim; ++k) outer *= static_cast<std::size_t>(whole[k]);
    for (std::size_t k = dim; k < whole.rank(); ++k) inner *= static_cast<std::size_t>(whole[k]);
    inner /= parts;
  }
  /// From [parts, outer, inner], as all-gather delivers, to [outer, parts, inner].
  void assemble(kernels::Threads& threads, std::span<const std::byte> parts_apart, std::span<std::byte> whole) const {
    each(threads, 0, parts, [&](std::size_t apart, std::size_t in_whole) {
      std::memcpy(whole.data() + in_whole, parts_apart.data() + apart, inner);
    });
  }
  /// The reverse, as reduce-scatter needs it.
  void take_apart(kernels::Threads& threads, std::span<const std::byte> whole, std::span<std::byte> parts_apart) const {
    take(threads, whole, 0, parts, parts_apart);
  }
  void take_part(kernels::Threads& threads, std::span<const std::byte> whole, std::size_t part,
                 std::span<std::byte> to) const {
    take(threads, whole, part, 1, to);
  }
  bool in_one_piece() const { return outer == 1; }

 private:
  void take(kernels::Threads& threads, std::span<const std::byte> whole, std::size_t first, std::size_t count,
            std::span<std::byte> to) const {
    each(threads, first, count, [&](std::size_t apart, std::size_t in_whole) {
      std::memcpy(to.data() + apart, whole.data() + in_whole, inner);
    });
  }
  /// Calls copy(byte in the parts, byte in the whole) for `inner` bytes each of `count` parts from `first` on.
  template <class Copy>
  void each(kernels::Threads& threads, std::size_t first, std::size_t count, const Copy& copy) const {
    constexpr std::size_t bytes_of_a_tile = 1 << 16;
    threads.parallel_for(count * outer, std::max<std::size_t>(1, bytes_of_a_tile / std::max<std::size_t>(1, inner)),
                         [&](std::size_t from, std::size_t end) {
                           for (auto i = from; i < end; ++i)
                             copy(i * inner, (i % outer * parts + first + i / outer) * inner);
                         });
  }
};

Shape with_extent(const Shape& shape, std::size_t dim, std::int64_t extent) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[dim] = extent;
  return Shape(std::span<const std::int64_t>(dims));
}

/// What a mapping does in one direction: identity, all-reduce, own part, all-gather, reduce-scatter.
enum class Passage { keep, sum, part, gather, part_of_sum };

/// One direction of a mapping along dimension `dim`.
struct Mapping {
  const comm::Communicator& group;
  std::size_t dim;
  std::string_view who;

  Shape shape_after(Passage passage, const Shape& shape) const {
    if (passage == Passage::gather) return with_extent(shape, dim, shape[dim] * group.size());
    if (passage == Passage::part || passage == Passage::part_of_sum) {
      if (shape[dim] % group.size() != 0)
        throw ShapeError(text(who, ": dim ", dim, " of ", shape, " does not divide by ", group.size(), " processes"));
      return with_extent(shape, dim, shape[dim] / group.size());
    }
    return shape;
  }

  void run(Passage passage, autograd::Tape& tape, const Tensor& from, const Tensor& to) const {
    switch (passage) {
      case Passage::keep:
      case Passage::sum:
        if (from.raw().data() != to.raw().data()) kernels::copy_bytes(tape.threads(), from.raw(), to.raw());
        if (passage == Passage::sum) group.all_reduce(to.raw(), to.dtype(), who);
        return;
      case Passage::part:
        Pieces(from.shape(), dim, group.size(), from.dtype())
            .take_part(tape.threads(), from.raw(), static_cast<std::size_t>(group.rank()), to.raw());
        return;
      case Passage::gather:
        gather(tape, from, to);
        return;
      case Passage::part_of_sum:
        part_of_sum(tape, from, to);
        return;
    }
  }

 private:
  void gather(autograd::Tape& tape, const Tensor& from, const Tensor& to) const {
    const Pieces pieces(to.shape(), dim, group.size(), to.dtype());
    if (pieces.in_one_piece()) {
      group.all_gather(from.raw(), to.raw(), who);
      return;
    }
    // All-gather delivers the parts one after the other; if the divided dimension is not the first, they must be
    // interleaved.
    const auto apart = tape.scratch((to.bytes() + sizeof(float) - 1) / sizeof(float));
    const auto bytes = apart.bytes().first(to.bytes());
    group.all_gather(from.raw(), bytes, who);
    pieces.assemble(tape.threads(), bytes, to.raw());
  }
  void part_of_sum(autograd::Tape& tape, const Tensor& from, const Tensor& to) const {
    const Pieces pieces(from.shape(), dim, group.size(), from.dtype());
    if (pieces.in_one_piece()) {
      group.reduce_scatter(from.raw(), to.raw(), from.dtype(), who);
      return;
    }
    // Reduce-scatter expects the parts one after the other.
    const auto apart = tape.scratch((from.bytes() + sizeof(float) - 1) / sizeof(float));
    const auto bytes = apart.bytes().first(from.bytes());
    pieces.take_apart(tape.threads(), from.raw(), bytes);
    group.reduce_scatter(bytes, to.raw(), from.dtype(), who);
  }
};

class Mapped final : public autograd::Node {
 public:
  Mapped(autograd::VarId y, autograd::VarId x, const comm::Communicator& group, std::size_t dim, std::string_view who,
         Passage back)
      : y_(y), x_(x), group_(group), dim_(dim), who_(who), back_(back) {}
  void backward(autograd::Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    if (back_ == Passage::keep) {
      tape.give_grad(x_, std::move(dy));
      return;
    }
    const Mapping mapping{group_, dim_, who_};
    // The gradient's memory may be overwritten only if no other operation reads it.
    const bool in_place = back_ == Passage::sum && !dy.memory.empty() && !dy.memory.shared();
    if (in_place) {
      mapping.run(back_, tape, dy.tensor, dy.tensor);
      tape.give_grad(x_, std::move(dy));
      return;
    }
    const auto shape = mapping.shape_after(back_, dy.tensor.shape());
    const auto bytes = static_cast<std::size_t>(shape.elements()) * size_of(dy.tensor.dtype());
    autograd::Gradient dx;
    dx.memory = tape.scratch((bytes + sizeof(float) - 1) / sizeof(float));
    dx.tensor = Tensor(dx.memory.bytes(), dy.tensor.dtype(), shape);
    mapping.run(back_, tape, dy.tensor, dx.tensor);
    tape.give_grad(x_, std::move(dx));
  }

 private:
  autograd::VarId y_, x_;
  comm::Communicator group_;
  std::size_t dim_;
  std::string_view who_;
  Passage back_;
};

/// Records a mapping: `there` is the forward, `back` the backward direction. With identity forward an alias is needed,
/// so that the gradient of the result is separate from that of x.
autograd::Var mapped(const autograd::Var& x, const comm::Communicator& group, std::size_t dim, std::string_view who,
                     Passage there, Passage back) {
  if (group.size() == 1) return x;
  auto& tape = x.tape();
  const Mapping mapping{group, dim, who};
  autograd::Var y;
  if (there == Passage::keep) {
    y = tape.alias(x, x.wants_grad());
  } else {
    y = tape.make(x.value().dtype(), mapping.shape_after(there, x.shape()), x.wants_grad());
    mapping.run(there, tape, x.value(), y.value());
  }
  if (y.wants_grad()) tape.record<Mapped>(y, x, group, dim, who, back);
  return y;
}

std::size_t last_dim(const autograd::Var& x) { return x.shape().rank() - 1; }

}  // namespace

autograd::Var copy_to_tensor_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who) {
  return mapped(x, group, 0, who, Passage::keep, Passage::sum);
}

autograd::Var reduce_from_tensor_region(autograd::Var x, const comm::Communicator& group, std::string_view who) {
  // Not through mapped(): the sum is done in place in x, which saves a copy of the largest activations.
  if (group.size() == 1) return x;
  auto& tape = x.tape();
  const autograd::VarId from = x;
  const bool grad = x.wants_grad();
  const auto y = autograd::to_change(std::move(x), grad);
  group.all_reduce(y.value().raw(), y.value().dtype(), who);
  if (grad) tape.record<Mapped>(y, from, group, std::size_t{0}, who, Passage::keep);
  return y;
}

autograd::Var scatter_to_tensor_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who) {
  return mapped(x, group, last_dim(x), who, Passage::part, Passage::gather);
}

autograd::Var gather_from_tensor_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who) {
  return mapped(x, group, last_dim(x), who, Passage::gather, Passage::part);
}

autograd::Var scatter_to_sequence_region(const autograd::Var& x, const comm::Communicator& group,
                                         std::string_view who) {
  return mapped(x, group, 1, who, Passage::part, Passage::gather);
}

autograd::Var gather_from_sequence_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who,
                                          bool parts_differ) {
  return mapped(x, group, 1, who, Passage::gather, parts_differ ? Passage::part_of_sum : Passage::part);
}

autograd::Var reduce_scatter_to_sequence_region(const autograd::Var& x, const comm::Communicator& group,
                                                std::string_view who) {
  return mapped(x, group, 1, who, Passage::part_of_sum, Passage::gather);
}

}  // namespace tessera::parallel
