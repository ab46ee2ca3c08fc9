#include "framework/autograd/ops/rows.h"

#include <algorithm>

#include "framework/autograd/ops/in_place.h"

namespace tessera::autograd {
namespace {

class JoinedRows final : public Node {
 public:
  JoinedRows(VarId y, VarId x, const Shape& shape) : y_(y), x_(x), shape_(shape) {}
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (!dy.empty()) tape.give_grad(x_, {dy.tensor.reshaped(shape_), std::move(dy.memory)});
  }

 private:
  VarId y_, x_;
  Shape shape_;  ///< of x
};

std::span<std::byte> row_of(const Tensor& x, std::int64_t row) {
  const auto bytes = static_cast<std::size_t>(x.shape().width()) * size_of(x.dtype());
  return x.raw().subspan(static_cast<std::size_t>(row) * bytes, bytes);
}

/// Calls `task(place)` for all places, divided over the threads.
template <class Task>
void for_each_place(Tape& tape, std::span<const RowPlace> places, const Task& task) {
  tape.threads().parallel_for(places.size(), 16, [&](std::size_t first, std::size_t last) {
    for (const auto& place : places.subspan(first, last - first)) task(place);
  });
}

void clear(Tape& tape, const Tensor& x) {
  tape.threads().parallel_for(static_cast<std::size_t>(x.shape().rows()), 16, [&](std::size_t first, std::size_t last) {
    for (auto row = first; row < last; ++row) std::ranges::fill(row_of(x, static_cast<std::int64_t>(row)), std::byte{});
  });
}

class ReplacedRows final : public Node {
 public:
  ReplacedRows(VarId y, VarId x, VarId rows, const Shape& shape, std::span<const RowPlace> places)
      : y_(y), x_(x), rows_(rows), shape_(shape), places_(places) {}
  void backward(Tape& tape) override {
    auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    give_rows(tape, dy.tensor);
    if (dy.memory.shared()) {
      auto own = tape.scratch(dy.tensor.dtype(), static_cast<std::size_t>(dy.tensor.elements()));
      const Tensor copy(own.bytes(), dy.tensor.dtype(), dy.tensor.shape());
      kernels::copy_bytes(tape.threads(), dy.tensor.raw(), copy.raw());
      dy = {copy, std::move(own)};
    }
    for_each_place(tape, places_,
                   [&](const RowPlace& place) { std::ranges::fill(row_of(dy.tensor, place.to), std::byte{}); });
    tape.give_grad(x_, std::move(dy));
  }

 private:
  /// The rows of dy at the places, as the gradient of `rows`; rows without a place get 0.
  void give_rows(Tape& tape, const Tensor& dy) const {
    auto memory = tape.scratch(dy.dtype(), static_cast<std::size_t>(shape_.elements()));
    const Tensor out(memory.bytes(), dy.dtype(), shape_);
    clear(tape, out);
    for_each_place(tape, places_, [&](const RowPlace& place) {
      std::ranges::copy(row_of(dy, place.to), row_of(out, place.from).begin());
    });
    tape.give_grad(rows_, {out, std::move(memory)});
  }

  VarId y_, x_, rows_;
  Shape shape_;  ///< of `rows`
  std::span<const RowPlace> places_;
};

/// y = x in the type of y.
void convert(Tape& tape, const Tensor& x, const Tensor& y) {
  const auto from = tape.read(x);
  const Floats to(tape, y, Floats::Use::write);
  kernels::copy(tape.threads(), from.span(), to.span());
}

class Converted final : public Node {
 public:
  Converted(VarId y, VarId x, DType type, const Shape& shape) : y_(y), x_(x), type_(type), shape_(shape) {}
  void backward(Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    if (dy.empty()) return;
    auto memory = tape.scratch(type_, static_cast<std::size_t>(shape_.elements()));
    const Tensor dx(memory.bytes(), type_, shape_);
    convert(tape, dy.tensor, dx);
    tape.give_grad(x_, {dx, std::move(memory)});
  }

 private:
  VarId y_, x_;
  DType type_;  ///< of x
  Shape shape_;
};

}  // namespace

Var converted(Var x, DType type) {
  if (x.value().dtype() == type) return x;
  auto& tape = x.tape();
  const Shape shape = x.shape();
  const auto before = x.value().dtype();
  auto y = tape.make(type, shape, x.wants_grad());
  convert(tape, x.value(), y.value());
  if (y.wants_grad()) tape.record<Converted>(y, x, before, shape);
  return y;
}

Var joined_rows(const Var& x, std::int64_t count) {
  auto& tape = x.tape();
  const Shape shape = x.shape();
  if (count < 1 || shape.rows() % count != 0)
    throw ShapeError(text("joined_rows: x is ", shape, "; ", count, " rows at a time do not divide it"));
  auto y = tape.alias(x, {1, shape.rows() / count, count * shape.width()}, x.wants_grad());
  if (y.wants_grad()) tape.record<JoinedRows>(y, x, shape);
  return y;
}

Var replaced_rows(Var x, const Var& rows, std::span<const RowPlace> places) {
  auto& tape = x.tape();
  must(x.value().dtype() == rows.value().dtype(), "rows replace rows of the same type");
  const Shape shape = x.shape(), given = rows.shape();
  if (shape.width() != given.width())
    throw ShapeError(text("replaced_rows: x is ", shape, ", the other rows ", given, "; the last extents must agree"));
  for (const auto& place : places)
    if (place.to < 0 || place.to >= shape.rows() || place.from < 0 || place.from >= given.rows())
      throw ShapeError(text("replaced_rows: row ", place.from, " of ", given, " in place of row ", place.to, " of ",
                            shape, "; these rows do not exist"));
  const VarId from = x;
  const bool grad = x.wants_grad() || rows.wants_grad();
  auto y = to_change(std::move(x), grad);
  for_each_place(tape, places, [&](const RowPlace& place) {
    std::ranges::copy(row_of(rows.value(), place.from), row_of(y.value(), place.to).begin());
  });
  if (y.wants_grad()) tape.record<ReplacedRows>(y, from, rows, given, places);
  return y;
}

}  // namespace tessera::autograd
