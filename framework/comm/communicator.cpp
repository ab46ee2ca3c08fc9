#include "framework/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "framework/comm/group.h"

namespace tessera {

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
    const Operation operation(*group_, name_, 0, bytes_, who_);
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

/// A collective: takes the group's next sequence number.
class Together {
 public:
  Together(Communicator::State& group, std::string_view name, std::size_t bytes, std::string_view who)
      : operation_(group, name, ++group.sequence, bytes, who) {}
  const Operation& operation() const { return operation_; }

 private:
  Operation operation_;
};

[[noreturn]] void refuse(const Communicator::State& group, const std::string& story) {
  throw ShapeError(text("group ", group.name, ": ", story));
}

}  // namespace

Communicator::Communicator() : state_(std::make_shared<State>()) {}
Communicator::Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}

int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return state_->size(); }
const std::string& Communicator::name() const { return state_->name; }
bool Communicator::on_one_host() const { return size() == 1 || state_->shares_memory; }
std::span<const int> Communicator::world_ranks() const { return state_->world_ranks; }

void Communicator::barrier(std::string_view who) const {
  if (size() == 1) return;
  const Together together(*state_, "barrier", 0, who);
  state_->exchange->barrier(together.operation());
}

void Communicator::all_reduce(std::span<float> values, std::string_view who) const {
  all_reduce(std::as_writable_bytes(values), DType::float32, who);
}
void Communicator::all_reduce(std::span<double> values, std::string_view who) const {
  all_reduce(std::as_writable_bytes(values), DType::float64, who);
}

void Communicator::all_reduce(std::span<std::byte> values, DType type, std::string_view who) const {
  if (values.size() % size_of(type) != 0)
    refuse(*state_, text("all_reduce of ", values.size(), " bytes of ", name_of(type), " asked by '", who, "'"));
  if (size() == 1) return;
  const Together together(*state_, "all_reduce", values.size(), who);
  state_->exchange->all_reduce(values, type, Combine::sum, together.operation());
}

void Communicator::all_reduce_max(std::span<float> values, std::string_view who) const {
  if (size() == 1) return;
  const Together together(*state_, "all_reduce_max", values.size_bytes(), who);
  state_->exchange->all_reduce(std::as_writable_bytes(values), DType::float32, Combine::greatest, together.operation());
}

void Communicator::reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType type,
                                  std::string_view who) const {
  if (!(all.size() == mine.size() * static_cast<std::size_t>(size()) && mine.size() % size_of(type) == 0))
    refuse(*state_, text("reduce_scatter asked by '", who, "' has ", all.size(), " bytes in all and ", mine.size(),
                         " for each of ", size(), " members, elements of ", name_of(type)));
  if (size() == 1) {
    if (!mine.empty()) std::memmove(mine.data(), all.data(), mine.size());
    return;
  }
  const Together together(*state_, "reduce_scatter", all.size(), who);
  state_->exchange->reduce_scatter(all, mine, type, together.operation());
}

void Communicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::string_view who) const {
  if (all.size() != mine.size() * static_cast<std::size_t>(size()))
    refuse(*state_, text("all_gather asked by '", who, "' has ", all.size(), " bytes in all and ", mine.size(),
                         " from each of ", size(), " members"));
  if (size() == 1) {
    if (!mine.empty()) std::memmove(all.data(), mine.data(), mine.size());
    return;
  }
  const Together together(*state_, "all_gather", all.size(), who);
  state_->exchange->all_gather(mine, all, together.operation());
}

void Communicator::broadcast(std::span<std::byte> values, int root, std::string_view who) const {
  if (!(root >= 0 && root < size())) refuse(*state_, text("broadcast asked by '", who, "' from member ", root));
  if (size() == 1) return;
  const Together together(*state_, "broadcast", values.size(), who);
  state_->exchange->broadcast(values, root, together.operation());
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
    refuse(*state_, text("message to member ", to, ", tag ", tag, ", asked by '", who, "'"));
  auto transfer = std::make_unique<Transfer::State>(
      state_, text("send to rank ", world_ranks()[static_cast<std::size_t>(to)]), tag, values.size(), who);
  transfer->messages.send(values, to, first_user_tag + tag);
  return Transfer(std::move(transfer));
}

Transfer Communicator::receive(std::span<std::byte> values, int from, int tag, std::string_view who) const {
  if (!(from >= 0 && from < size() && from != rank() && tag >= 0 && tag < user_tags))
    refuse(*state_, text("message from member ", from, ", tag ", tag, ", asked by '", who, "'"));
  auto transfer = std::make_unique<Transfer::State>(
      state_, text("receive from rank ", world_ranks()[static_cast<std::size_t>(from)]), tag, values.size(), who);
  transfer->messages.receive(values, from, first_user_tag + tag);
  return Transfer(std::move(transfer));
}

}  // namespace tessera
