#include "framework/autograd/ops/whole_norm.h"

#include <algorithm>
#include <array>

#include "framework/autograd/ops/heads_grad.h"
#include "framework/kernels/heads.h"
#include "framework/kernels/part_norm.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {
namespace {

/// The query heads or the key heads of a projection, and what their norm keeps.
struct NormedHeads {
  std::span<const std::int64_t> offsets;
  std::int64_t width = 0;  ///< channels of all heads on all ranks
  bool counted = true;
  LeafUse gain = {};
  Var inverse = {};
};
using BothNormed = std::array<NormedHeads, 2>;

kernels::HeadsInRows heads_of(const Shape& x, const WholeNormKind& kind) {
  return {x.rows(), x.width(), kind.channels};
}

/// Sums of the rows of queries, then of keys: [2, rows].
class RowSums {
 public:
  RowSums(Tape& tape, std::int64_t rows)
      : rows_(static_cast<std::size_t>(rows)), memory_(tape.scratch(4 * static_cast<std::size_t>(rows))) {}
  std::span<double> all() const { return {reinterpret_cast<double*>(memory_.bytes().data()), 2 * rows_}; }
  std::span<double> of(std::size_t which) const { return all().subspan(which * rows_, rows_); }

 private:
  std::size_t rows_;
  Memory memory_;
};

/// The heads of both parts, one behind the other as dense arrays.
class DenseHeads {
 public:
  DenseHeads(Tape& tape, const kernels::HeadsInRows& e, const BothNormed& parts, std::span<const float> x) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      counts_[i] = static_cast<std::size_t>(e.rows * e.channels) * parts[i].offsets.size();
    memory_ = tape.scratch(counts_[0] + counts_[1]);
    for (std::size_t i = 0; i < parts.size(); ++i) kernels::gather_heads(tape.threads(), e, parts[i].offsets, x, of(i));
  }
  std::span<float> of(std::size_t which) const {
    return Tape::floats(memory_).subspan(which == 0 ? 0 : counts_[0], counts_[which]);
  }

 private:
  std::array<std::size_t, 2> counts_ = {};
  Memory memory_;
};

/// Adds up `sums` over the ranks, without the squares of heads that another rank counts.
void add_squares(Tape& tape, const BothNormed& parts, const WholeNormKind& kind, const RowSums& sums) {
  if (!kind.add_up) return;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto own = sums.of(i);
    if (!parts[i].counted)
      tape.threads().parallel_for(own.size(), 4096, [&](std::size_t first, std::size_t last) {
        std::fill(own.begin() + static_cast<std::ptrdiff_t>(first), own.begin() + static_cast<std::ptrdiff_t>(last),
                  0.0);
      });
  }
  kind.add_up(sums.all());
}

class WholeNormNode final : public Node {
 public:
  WholeNormNode(VarId y, Var x, BothNormed parts, WholeNormKind kind)
      : y_(y), x_(std::move(x)), parts_(std::move(parts)), kind_(std::move(kind)) {}
  void backward(Tape& tape) override {
    backward_of_heads(tape, y_, x_, [&](std::span<const float> x, std::span<const float> dy, std::span<float> dx) {
      normalise_backward(tape, x, dy, dx);
      for (const auto& part : parts_) tape.done(part.gain);
    });
  }

 private:
  void normalise_backward(Tape& tape, std::span<const float> x, std::span<const float> dy, std::span<float> dx) {
    auto& threads = tape.threads();
    const auto e = heads_of(x_.shape(), kind_);
    const DenseHeads values(tape, e, parts_, x), slopes(tape, e, parts_, dy);
    const RowSums products(tape, e.rows);
    const auto gains = std::array{tape.read(parts_[0].gain.leaf->value), tape.read(parts_[1].gain.leaf->value)};
    const auto norm = [&](std::size_t i) {
      return kernels::PartNorm{values.of(i), gains[i], kind_.gain_offset, parts_[i].inverse.floats()};
    };
    for (std::size_t i = 0; i < parts_.size(); ++i)
      kernels::part_products(threads, norm(i), slopes.of(i), products.of(i));
    if (kind_.add_up) kind_.add_up(products.all());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      auto& gain = *parts_[i].gain.leaf;
      kernels::part_rmsnorm_backward(threads, norm(i), slopes.of(i),
                                     parts_[i].counted ? products.of(i) : std::span<double>(), parts_[i].width,
                                     slopes.of(i), gain.trained() ? gain.grad_to_add_to(threads) : std::span<float>());
      kernels::scatter_heads(threads, e, parts_[i].offsets, slopes.of(i), dx);
    }
  }

  VarId y_;
  Var x_;
  BothNormed parts_;
  WholeNormKind kind_;
};

}  // namespace

Var whole_norm(const Var& x, const WholeNorm& queries, const WholeNorm& keys, const WholeNormKind& kind) {
  auto& tape = x.tape();
  auto& threads = tape.threads();
  const auto e = heads_of(x.shape(), kind);
  auto y = tape.result(x.shape(), x.wants_grad() || queries.gain->trained() || keys.gain->trained());
  BothNormed parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& norm = i == 0 ? queries : keys;
    parts[i] = {norm.offsets, norm.heads * kind.channels, norm.counted, {}, tape.make({e.rows}, false)};
  }
  {
    const auto in = tape.read(x), out = tape.write(y);
    kernels::copy(threads, in, out);
    const DenseHeads values(tape, e, parts, in);
    const RowSums squares(tape, e.rows);
    for (std::size_t i = 0; i < parts.size(); ++i) kernels::part_squares(threads, values.of(i), squares.of(i));
    add_squares(tape, parts, kind, squares);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto gain = tape.read((i == 0 ? queries : keys).gain->value);
      kernels::inverse_rms(threads, squares.of(i), parts[i].width, kind.eps, parts[i].inverse.floats());
      kernels::part_rmsnorm_forward(threads, {values.of(i), gain, kind.gain_offset, parts[i].inverse.floats()},
                                    values.of(i));
      kernels::scatter_heads(threads, e, parts[i].offsets, values.of(i), out);
    }
  }
  if (!y.wants_grad()) return y;
  parts[0].gain = tape.use(queries.gain);
  parts[1].gain = tape.use(keys.gain);
  tape.record<WholeNormNode>(y, x, std::move(parts), kind);
  return y;
}

}  // namespace tessera::autograd
