#include "framework/parallel/head_exchange.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/nn/context_rank.h"

namespace tessera::parallel {
namespace {

constexpr auto who = "heads of context parallelism";

/// Consecutive elements of a token: where they are in a row with all heads, and in the row of the rank that gets them.
struct Strip {
  std::int64_t all = 0, own = 0, count = 0;
  bool copy = false;  ///< an earlier rank gets them too
};

/// What each rank gets of a token's row.
struct HeadCut {
  std::int64_t all_row = 0, own_row = 0;  ///< elements of the two rows
  std::vector<std::vector<Strip>> of;     ///< of each rank
  bool copies = false;
};

HeadCut cut_of_projection(const kernels::AttentionExtents& e, int ranks) {
  const auto inside = extents_of_heads(e, ranks);
  const auto queries = e.H / e.G, queries_inside = inside.H / inside.G;
  HeadCut cut{.all_row = e.q.row_stride, .own_row = inside.q.row_stride, .of = {}, .copies = e.G < ranks};
  for (std::int64_t r = 0; r < ranks; ++r) {
    auto& strips = cut.of.emplace_back();
    for (std::int64_t g = 0; g < inside.G; ++g) {
      const auto first = r * inside.H + g * queries_inside, group = first / queries;
      for (std::int64_t q = 0; q < queries_inside; ++q)
        strips.push_back({e.q.offset + group * e.q.group_stride + (first % queries + q) * e.q.head_stride,
                          inside.q.offset + g * inside.q.group_stride + q * inside.q.head_stride, e.D, false});
      const bool copy = first % queries != 0;
      strips.push_back({e.k.offset + group * e.k.group_stride, inside.k.offset + g * inside.k.group_stride, e.D, copy});
      strips.push_back({e.v.offset + group * e.v.group_stride, inside.v.offset + g * inside.v.group_stride, e.D, copy});
    }
  }
  return cut;
}

HeadCut cut_of_result(const kernels::AttentionExtents& e, int ranks) {
  const auto own = e.H / ranks * e.D;
  HeadCut cut{.all_row = e.H * e.D, .own_row = own, .of = {}, .copies = false};
  for (std::int64_t r = 0; r < ranks; ++r) cut.of.push_back({{r * own, 0, own, false}});
  return cut;
}

/// One exchange: of which extents, and among whom.
struct Swap {
  std::int64_t samples, tokens;  ///< tokens: of each sample on one rank
  comm::Communicator group;
  bool contiguous;
  HeadCut cut;

  int ranks() const { return group.size(); }
  /// The row inside, where all tokens are, of token t of rank r in sample b.
  std::int64_t row_inside(std::int64_t b, int rank, std::int64_t t) const {
    const auto all = tokens * ranks();
    return b * all + nn::ContextRank{rank, ranks(), contiguous}.index(t, all);
  }
  std::int64_t elements_of_pair() const { return samples * tokens * cut.own_row; }
};

void exchange(const Swap& s, std::size_t element, std::span<const std::byte> send, std::span<std::byte> receive) {
  const std::vector<std::size_t> each(static_cast<std::size_t>(s.ranks()),
                                      static_cast<std::size_t>(s.elements_of_pair()) * element);
  s.group.all_to_all(send, each, receive, each, who);
}

/// Calls copy(row, row inside) for each row of a message: they are sorted by rank, sample and token.
template <class Copy>
void each_row(kernels::Threads& threads, const Swap& s, const Copy& copy) {
  threads.parallel_for(
      static_cast<std::size_t>(s.ranks() * s.samples * s.tokens), 64, [&](std::size_t first, std::size_t last) {
        for (auto row = static_cast<std::int64_t>(first); row < static_cast<std::int64_t>(last); ++row) {
          const auto sample = row / s.tokens;
          const auto rank = static_cast<int>(sample / s.samples);
          copy(static_cast<std::size_t>(row),
               static_cast<std::size_t>(s.row_inside(sample % s.samples, rank, row % s.tokens)));
        }
      });
}

/// All heads of this rank's tokens to all tokens of its heads. Both arrays have elements of `element` bytes.
void to_heads(autograd::Tape& tape, const Swap& s, std::size_t element, std::span<const std::byte> rows,
              std::span<std::byte> inside) {
  const auto bytes = static_cast<std::size_t>(s.elements_of_pair() * s.ranks()) * element;
  const auto memory = tape.scratch(DType::uint8, 2 * bytes);
  const auto send = memory.bytes().first(bytes), receive = memory.bytes().subspan(bytes, bytes);
  const auto own = static_cast<std::size_t>(s.cut.own_row) * element,
             all = static_cast<std::size_t>(s.cut.all_row) * element;
  const auto tokens = s.samples * s.tokens;
  tape.threads().parallel_for(static_cast<std::size_t>(s.ranks() * tokens), 64,
                              [&](std::size_t first, std::size_t last) {
                                for (auto i = first; i < last; ++i)
                                  for (const auto& strip : s.cut.of[i / static_cast<std::size_t>(tokens)])
                                    std::memcpy(send.data() + i * own + static_cast<std::size_t>(strip.own) * element,
                                                rows.data() + i % static_cast<std::size_t>(tokens) * all +
                                                    static_cast<std::size_t>(strip.all) * element,
                                                static_cast<std::size_t>(strip.count) * element);
                              });
  exchange(s, element, send, receive);
  each_row(tape.threads(), s, [&](std::size_t row, std::size_t row_inside) {
    std::memcpy(inside.data() + row_inside * own, receive.data() + row * own, own);
  });
}

/// The reverse. Copies are summed if there are any: then the elements are floats, else of any type.
void to_sequence(autograd::Tape& tape, const Swap& s, std::size_t element, std::span<const std::byte> inside,
                 std::span<std::byte> rows) {
  const auto bytes = static_cast<std::size_t>(s.elements_of_pair() * s.ranks()) * element;
  const auto memory = tape.scratch(DType::uint8, 2 * bytes);
  const auto send = memory.bytes().first(bytes), receive = memory.bytes().subspan(bytes, bytes);
  const auto own = static_cast<std::size_t>(s.cut.own_row) * element,
             all = static_cast<std::size_t>(s.cut.all_row) * element;
  each_row(tape.threads(), s, [&](std::size_t row, std::size_t row_inside) {
    std::memcpy(send.data() + row * own, inside.data() + row_inside * own, own);
  });
  exchange(s, element, send, receive);
  const auto tokens = static_cast<std::size_t>(s.samples * s.tokens);
  tape.threads().parallel_for(tokens, 64, [&](std::size_t first, std::size_t last) {
    for (std::size_t rank = 0; rank < s.cut.of.size(); ++rank)
      for (auto i = first; i < last; ++i)
        for (const auto& strip : s.cut.of[rank]) {
          const auto* from = receive.data() + (rank * tokens + i) * own + static_cast<std::size_t>(strip.own) * element;
          auto* at = rows.data() + i * all + static_cast<std::size_t>(strip.all) * element;
          if (!strip.copy) {
            std::memcpy(at, from, static_cast<std::size_t>(strip.count) * element);
            continue;
          }
          auto* sum = reinterpret_cast<float*>(at);
          const auto* more = reinterpret_cast<const float*>(from);
          for (std::int64_t d = 0; d < strip.count; ++d) sum[d] += more[d];
        }
  });
}

/// An exchange, whose gradient is exchanged back.
class Exchanged final : public autograd::Node {
 public:
  Exchanged(autograd::VarId y, autograd::VarId x, Swap swap, bool in_heads)
      : y_(y), x_(x), swap_(std::move(swap)), in_heads_(in_heads) {}
  void backward(autograd::Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    const auto target = tape.grad_target(x_);
    if (dy.empty() || target.tensor.empty()) return;
    must(!target.add, "a fused projection has one attention, whose result has one use");
    const auto back = in_heads_ ? to_sequence : to_heads;
    const bool sums = in_heads_ && swap_.cut.copies;
    if (!sums && dy.tensor.dtype() == target.tensor.dtype())
      return back(tape, swap_, size_of(dy.tensor.dtype()), dy.tensor.raw(), target.tensor.raw());
    const auto from = tape.read(dy.tensor), to = tape.write(target);
    back(tape, swap_, sizeof(float), std::as_bytes(from.span()), std::as_writable_bytes(to.span()));
  }

 private:
  autograd::VarId y_, x_;
  Swap swap_;
  bool in_heads_;
};

}  // namespace

kernels::AttentionExtents extents_of_heads(const kernels::AttentionExtents& e, int ranks) {
  if (e.H % ranks != 0 || (e.G % ranks != 0 && ranks % e.G != 0))
    throw ShapeError(text(who, ": ", e.H, " query heads in ", e.G, " groups cannot be divided among ", ranks,
                          " ranks; the ranks must divide the heads, and divide the groups or be a multiple of them"));
  auto inside = e;
  inside.T = inside.S = e.T * ranks;
  inside.H = e.H / ranks;
  inside.G = std::max<std::int64_t>(1, e.G / ranks);
  const auto queries = inside.H / inside.G, group = (queries + 2) * e.D, row = inside.G * group;
  inside.q = {row, 0, group, e.D};
  inside.k = {row, queries * e.D, group};
  inside.v = {row, (queries + 1) * e.D, group};
  inside.o = {inside.H * e.D, 0, queries * e.D, e.D};
  return inside;
}

autograd::Var sequence_to_heads(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                                const comm::Communicator& group, bool contiguous) {
  auto& tape = qkv.tape();
  const Swap swap{.samples = e.B,
                  .tokens = e.T,
                  .group = group,
                  .contiguous = contiguous,
                  .cut = cut_of_projection(e, group.size())};
  const auto type = qkv.value().dtype();
  auto y = tape.make(type, {e.B, e.T * group.size(), swap.cut.own_row}, qkv.wants_grad());
  to_heads(tape, swap, size_of(type), qkv.value().raw(), y.value().raw());
  if (y.wants_grad()) tape.record<Exchanged>(y, qkv, swap, true);
  return y;
}

autograd::Var heads_to_sequence(const autograd::Var& heads, const kernels::AttentionExtents& e,
                                const comm::Communicator& group, bool contiguous) {
  auto& tape = heads.tape();
  const Swap swap{
      .samples = e.B, .tokens = e.T, .group = group, .contiguous = contiguous, .cut = cut_of_result(e, group.size())};
  const auto type = heads.value().dtype();
  auto y = tape.make(type, {e.B, e.T, e.H * e.D}, heads.wants_grad());
  to_sequence(tape, swap, size_of(type), heads.value().raw(), y.value().raw());
  if (y.wants_grad()) tape.record<Exchanged>(y, heads, swap, false);
  return y;
}

}  // namespace tessera::parallel
