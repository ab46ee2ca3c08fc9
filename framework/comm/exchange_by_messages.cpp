#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/comm/group.h"
#include "framework/comm/ordered_sum.h"

namespace tessera {
namespace {

void combine(Combine how, std::span<const std::byte* const> sources, std::byte* out, std::size_t count, DType type) {
  if (how == Combine::greatest) return greatest(sources, out, count);
  ordered_sum(sources, std::span(&out, 1), count, type);
}

class ByMessages final : public Exchange {
 public:
  explicit ByMessages(const Communicator::State& group) : group_(group) {}

  void barrier(const Operation& operation) override {
    Messages messages = group_.messages();
    std::byte nothing{};
    for (const int other : group_.others()) messages.receive({&nothing, 0}, other, exchange_tag);
    for (const int other : group_.others()) messages.send({&nothing, 0}, other, exchange_tag);
    messages.wait(operation);
  }

  void all_reduce(std::span<std::byte> values, DType type, Combine how, const Operation& operation) override {
    const std::size_t width = size_of(type), piece = 4 << 20;
    if (values.size() <= small_) return reduce_at_once(values, type, how, operation);
    for (std::size_t first = 0; first < values.size(); first += piece * count())
      reduce_piece(values.subspan(first, std::min(piece * count(), values.size() - first)), width, type, how,
                   operation);
  }

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

  /// Everybody sends all to everybody: one journey.
  void reduce_at_once(std::span<std::byte> values, DType type, Combine how, const Operation& operation) {
    std::vector<std::byte> all(values.size() * count());
    const auto own = static_cast<std::size_t>(group_.rank);
    std::memcpy(all.data() + own * values.size(), values.data(), values.size());
    all_gather({all.data() + own * values.size(), values.size()}, all, operation);
    std::vector<const std::byte*> sources(count());
    for (std::size_t r = 0; r < count(); ++r) sources[r] = all.data() + r * values.size();
    combine(how, sources, values.data(), values.size() / size_of(type), type);
  }

  /// Everybody sums a share and sends it to all.
  void reduce_piece(std::span<std::byte> values, std::size_t width, DType type, Combine how,
                    const Operation& operation) {
    const auto share = [&](int rank) {
      const Cut here = cut(values.size() / width, rank, group_.size(), 64);
      return values.subspan(here.first * width, here.size() * width);
    };
    const auto own = share(group_.rank);
    std::vector<std::byte> arrived((count() - 1) * own.size());
    std::vector<const std::byte*> sources(count());
    Messages messages = group_.messages();
    std::size_t place = 0;
    for (const int other : group_.others()) {
      const auto here = std::span(arrived).subspan(place++ * own.size(), own.size());
      sources[static_cast<std::size_t>(other)] = here.data();
      messages.receive(here, other, exchange_tag);
    }
    sources[static_cast<std::size_t>(group_.rank)] = own.data();
    for (const int other : group_.others()) messages.send(share(other), other, exchange_tag);
    messages.wait(operation);
    combine(how, sources, own.data(), own.size() / width, type);
    for (const int other : group_.others()) messages.receive(share(other), other, exchange_tag);
    for (const int other : group_.others()) messages.send(own, other, exchange_tag);
    messages.wait(operation);
  }

  const Communicator::State& group_;
  std::size_t small_ = 32768;
};

}  // namespace

std::unique_ptr<Exchange> exchange_by_messages(const Communicator::State& group) {
  return std::make_unique<ByMessages>(group);
}

}  // namespace tessera
