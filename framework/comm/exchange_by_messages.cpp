#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/comm/group.h"
#include "framework/comm/message_pieces.h"
#include "framework/kernels/ordered_sum.h"

namespace tessera {
namespace {

constexpr std::size_t at_once = 32 << 10;  // bytes: up to here each member sends all to all and adds itself

void combine(Combine how, std::span<const std::byte* const> sources, std::byte* out, std::size_t count, DType type) {
  if (how == Combine::greatest) return greatest(sources, std::span(&out, 1), count);
  ordered_sum(sources, std::span(&out, 1), {}, count, type);
}

class ByMessages final : public Exchange {
 public:
  explicit ByMessages(const Communicator::State& group) : group_(group), pieces_(group, pieces_tag) {}

  // Not MPI_Barrier: it blocks inside MPI, where no time-out and no report of missing ranks is possible.
  void barrier(const Operation& operation) override {
    Messages messages = group_.messages();
    std::byte nothing{};
    for (const int other : group_.others()) messages.receive({&nothing, 0}, other, exchange_tag);
    for (const int other : group_.others()) messages.send({&nothing, 0}, other, exchange_tag);
    messages.wait(operation);
  }

  void all_reduce(std::span<std::byte> values, DType type, Combine how, const Operation& operation) override {
    if (values.size() <= at_once) return reduce_at_once(values, type, how, operation);
    pieces_.add({.values = values, .type = type, .how = how, .sum = true, .everywhere = true, .grain = 64});
    operation.wait([this] { return pieces_.advance(); }, [this] { return pieces_.missing(); });
  }

  // Each member receives its part from all others, then adds in the order of ranks: MPI_Reduce_scatter does not promise
  // an order, so its results could depend on the network.
  void reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType type,
                      const Operation& operation) override {
    Messages messages = group_.messages();
    std::vector<std::byte> arrived((count() - 1) * mine.size());
    std::vector<const std::byte*> sources(count());
    std::size_t place = 0;
    const auto part = [&](int rank) { return all.subspan(static_cast<std::size_t>(rank) * mine.size(), mine.size()); };
    for (const int other : group_.others()) {
      const auto here = std::span(arrived).subspan(place++ * mine.size(), mine.size());
      sources[static_cast<std::size_t>(other)] = here.data();
      messages.receive(here, other, exchange_tag);
    }
    sources[static_cast<std::size_t>(group_.rank)] = part(group_.rank).data();
    for (const int other : group_.others()) messages.send(part(other), other, exchange_tag);
    messages.wait(operation);
    combine(Combine::sum, sources, mine.data(), mine.size() / size_of(type), type);
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const Operation& operation) override {
    Messages messages = group_.messages();
    const auto part = [&](int rank) { return all.subspan(static_cast<std::size_t>(rank) * mine.size(), mine.size()); };
    for (const int other : group_.others()) messages.receive(part(other), other, exchange_tag);
    for (const int other : group_.others()) messages.send(mine, other, exchange_tag);
    const auto own = part(group_.rank);
    if (own.data() != mine.data() && !mine.empty()) std::memmove(own.data(), mine.data(), mine.size());
    messages.wait(operation);
  }

  void broadcast(std::span<std::byte> values, int root, const Operation& operation) override {
    Messages messages = group_.messages();
    if (group_.rank != root)
      messages.receive(values, root, exchange_tag);
    else
      for (const int other : group_.others()) messages.send(values, other, exchange_tag);
    messages.wait(operation);
  }

 private:
  std::size_t count() const { return static_cast<std::size_t>(group_.size()); }

  /// All to all, then every member adds everything: one message latency instead of two.
  void reduce_at_once(std::span<std::byte> values, DType type, Combine how, const Operation& operation) {
    std::vector<std::byte> all(values.size() * count());
    const auto own = static_cast<std::size_t>(group_.rank);
    std::memcpy(all.data() + own * values.size(), values.data(), values.size());
    all_gather({all.data() + own * values.size(), values.size()}, all, operation);
    std::vector<const std::byte*> sources(count());
    for (std::size_t r = 0; r < count(); ++r) sources[r] = all.data() + r * values.size();
    combine(how, sources, values.data(), values.size() / size_of(type), type);
  }

  const Communicator::State& group_;
  MessagePieces pieces_;
};

}  // namespace

std::unique_ptr<Exchange> exchange_by_messages(const Communicator::State& group) {
  return std::make_unique<ByMessages>(group);
}

}  // namespace tessera
