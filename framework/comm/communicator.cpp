#include "framework/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

#include "framework/comm/group_state.h"

namespace tessera::comm {

class Transfer::State {
 public:
  State(std::shared_ptr<Communicator::State> group, const std::string& name, int tag, std::size_t bytes,
        std::string_view who)
      : group_(std::move(group)),
        name_(text(name, ", tag ", tag)),
        who_(who),
        bytes_(bytes),
        messages(group_->messages()) {}

  void wait() {
    if (messages.done()) return;
    const Operation operation(*group_, {name_, 0, bytes_, who_});
    messages.wait(operation);
  }

 private:
  std::shared_ptr<Communicator::State> group_;
  std::string name_, who_;
  std::size_t bytes_;

 public:
  Messages messages;
};

Transfer::Transfer() = default;
Transfer::Transfer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Transfer::Transfer(Transfer&&) noexcept = default;
Transfer& Transfer::operator=(Transfer&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
Transfer::~Transfer() {
  // During another exception do not wait for a peer that may be gone.
  if (!state_ || std::uncaught_exceptions() > 0) return;
  try {
    wait();
  } catch (const CommError&) {  // the next operation of the group fails with the same error
  }
}
bool Transfer::done() { return !state_ || state_->messages.done(); }
void Transfer::wait() {
  if (state_) state_->wait();
}

namespace {

using Kind = Collective::Kind;

[[noreturn]] void refuse(const Communicator::State& group, const std::string& message) {
  throw ShapeError(text("group ", group.name, ": ", message));
}

}  // namespace

Communicator::Communicator() : state_(std::make_shared<State>()) {}
Communicator::Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}

Communicator Communicator::unconnected(const std::string& name, std::span<const int> world_ranks, int own_rank) {
  auto state = std::make_shared<State>();
  state->name = name;
  state->set_members({world_ranks.begin(), world_ranks.end()}, own_rank);
  return Communicator(std::move(state));
}

bool Communicator::connected() const { return size() == 1 || state_->world != nullptr; }
int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return state_->size(); }
const std::string& Communicator::name() const { return state_->name; }
void Communicator::set_time_out(std::chrono::milliseconds time) const {
  if (state_->world) state_->world->time_out = time;
}
double Communicator::waited_seconds() const {
  return state_->world ? std::chrono::duration<double>(state_->world->waited).count() : 0;
}
std::size_t Communicator::message_bytes() const { return state_->world ? state_->world->message_bytes : 0; }
bool Communicator::on_one_host() const { return size() == 1 || state_->shares_memory; }
std::span<const int> Communicator::world_ranks() const { return state_->world_ranks; }

void Communicator::barrier(std::string_view who) const {
  if (size() == 1) return;
  const auto marks = state_->marks();
  const auto own = marks.subspan(static_cast<std::size_t>(rank()), 1);
  state_->run({.kind = Kind::barrier, .input = own, .values = marks}, "barrier", 0, who);
}

void Communicator::all_reduce(std::span<float> values, std::string_view who) const {
  all_reduce(std::as_writable_bytes(values), DType::float32, who);
}
void Communicator::all_reduce(std::span<double> values, std::string_view who) const {
  all_reduce(std::as_writable_bytes(values), DType::float64, who);
}

void Communicator::all_reduce(std::span<std::byte> values, DType type, std::string_view who) const {
  if (values.size() % size_of(type) != 0)
    refuse(*state_, text("all_reduce of ", values.size(), " bytes of ", name_of(type), " called by '", who, "'"));
  if (size() == 1) return;
  state_->run({.kind = Kind::all_reduce, .values = values, .type = type}, "all_reduce", values.size(), who);
}

void Communicator::all_reduce_max(std::span<float> values, std::string_view who) const {
  if (size() == 1) return;
  state_->run({.kind = Kind::all_reduce, .values = std::as_writable_bytes(values), .how = Combine::greatest},
              "all_reduce_max", values.size_bytes(), who);
}

void Communicator::reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType type,
                                  std::string_view who) const {
  if (!(all.size() == mine.size() * static_cast<std::size_t>(size()) && mine.size() % size_of(type) == 0))
    refuse(*state_, text("reduce_scatter called by '", who, "' has ", all.size(), " bytes in all and ", mine.size(),
                         " for each of ", size(), " members, elements of ", name_of(type)));
  if (size() == 1) {
    if (!mine.empty()) std::memmove(mine.data(), all.data(), mine.size());
    return;
  }
  state_->run({.kind = Kind::reduce_scatter, .input = all, .values = mine, .type = type}, "reduce_scatter", all.size(),
              who);
}

void Communicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view who) const {
  if (all.size() != mine.size() * static_cast<std::size_t>(size()))
    refuse(*state_, text("all_gather called by '", who, "' has ", all.size(), " bytes in all and ", mine.size(),
                         " from each of ", size(), " members"));
  if (size() == 1) {
    if (!mine.empty()) std::memmove(all.data(), mine.data(), mine.size());
    return;
  }
  state_->run({.kind = Kind::all_gather, .input = mine, .values = all}, "all_gather", all.size(), who);
}

void Communicator::all_to_all(std::span<const std::byte> send, std::span<const std::size_t> send_bytes,
                              std::span<std::byte> receive, std::span<const std::size_t> receive_bytes,
                              std::string_view who) const {
  const auto fits = [&](std::size_t bytes, std::span<const std::size_t> parts) {
    return parts.size() == static_cast<std::size_t>(size()) &&
           std::accumulate(parts.begin(), parts.end(), std::size_t{0}) == bytes;
  };
  if (!fits(send.size(), send_bytes) || !fits(receive.size(), receive_bytes))
    refuse(*state_, text("all_to_all called by '", who, "' sends ", send.size(), " bytes in ", send_bytes.size(),
                         " parts and receives ", receive.size(), " in ", receive_bytes.size(), "; expected a part for ",
                         "each of ", size(), " members, of together these sizes"));
  const auto own = static_cast<std::size_t>(rank());
  if (send_bytes[own] != receive_bytes[own])
    refuse(*state_, text("all_to_all called by '", who, "' sends ", send_bytes[own],
                         " bytes to its own rank and expects ", receive_bytes[own], " from it"));
  if (size() == 1) {
    if (!send.empty()) std::memmove(receive.data(), send.data(), send.size());
    return;
  }
  state_->run({.kind = Kind::all_to_all,
               .input = send,
               .values = receive,
               .send_bytes = send_bytes,
               .receive_bytes = receive_bytes},
              "all_to_all", send.size(), who);
}

void Communicator::broadcast(std::span<std::byte> values, int root, std::string_view who) const {
  if (!(root >= 0 && root < size())) refuse(*state_, text("broadcast called by '", who, "' from member ", root));
  if (size() == 1) return;
  state_->run({.kind = Kind::broadcast, .values = values, .root = root}, "broadcast", values.size(), who);
}

std::vector<std::string> Communicator::all_gather(const std::string& mine, std::string_view who) const {
  if (size() == 1) return {mine};
  const auto members = static_cast<std::size_t>(size());
  const std::uint64_t own = mine.size();
  std::vector<std::uint64_t> lengths(members);
  all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(lengths)), who);
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  // Two all-gathers: the lengths, then the texts padded to the longest, because all_gather needs equal sizes.
  std::string padded = mine, all(members * longest, 0);
  padded.resize(longest);
  all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)), who);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < members; ++r) texts.push_back(all.substr(r * longest, lengths[r]));
  return texts;
}

std::string Communicator::broadcast(const std::string& mine, int root, std::string_view who) const {
  std::uint64_t length = mine.size();
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root, who);
  std::string words = mine;
  words.resize(length);
  broadcast(std::as_writable_bytes(std::span(words)), root, who);
  return words;
}

Transfer Communicator::send(std::span<const std::byte> values, int to, int tag, std::string_view who) const {
  if (!(to >= 0 && to < size() && to != rank() && tag >= 0 && tag < user_tags))
    refuse(*state_, text("message to member ", to, ", tag ", tag, ", called by '", who, "'"));
  if (!connected()) return {};
  auto transfer = std::make_unique<Transfer::State>(
      state_, text("send to rank ", world_ranks()[static_cast<std::size_t>(to)]), tag, values.size(), who);
  transfer->messages.send(values, to, first_user_tag + tag);
  return Transfer(std::move(transfer));
}

Transfer Communicator::receive(std::span<std::byte> values, int from, int tag, std::string_view who) const {
  if (!(from >= 0 && from < size() && from != rank() && tag >= 0 && tag < user_tags))
    refuse(*state_, text("message from member ", from, ", tag ", tag, ", called by '", who, "'"));
  if (!connected()) return {};
  auto transfer = std::make_unique<Transfer::State>(
      state_, text("receive from rank ", world_ranks()[static_cast<std::size_t>(from)]), tag, values.size(), who);
  transfer->messages.receive(values, from, first_user_tag + tag);
  return Transfer(std::move(transfer));
}

}  // namespace tessera::comm
