#include "framework/comm/operation.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iomanip>

#include "framework/comm/group_state.h"

namespace tessera::comm {
namespace {

/// Whether `peer` is known to be in this operation: what it waits for is another rank.
bool has_entered(const Peer& peer, const std::string& group, const OperationName& name) {
  if (name.sequence == 0 || !peer.record) return false;
  const auto entries = peer.record->read();
  return !entries.empty() && entries.front().inside() && entries.front().group == group &&
         entries.front().sequence == name.sequence;
}

}  // namespace

Operation::Operation(const Communicator::State& group, const OperationName& name)
    : group_(group),
      world_(*group.world),
      name_(name),
      exceptions_(std::uncaught_exceptions()),
      span_(name.operation, group.name, name.who, name.bytes) {
  group.world->record->enter(group.name, name.operation, name.sequence, name.bytes, name.who);
}

// During an exception the record stays inside the operation: that is what the other ranks report about this one.
Operation::~Operation() {
  if (std::uncaught_exceptions() == exceptions_) group_.world->record->leave();
}

std::string describe(const Communicator::State& group, const OperationName& name) {
  std::string message(name.operation);
  if (name.sequence != 0) message += text(" ", name.sequence);
  message += text(" of group ", group.name, " (ranks");
  constexpr std::size_t shown = 16;
  for (std::size_t r = 0; r < std::min(shown, group.world_ranks.size()); ++r)
    message += text(" ", group.world_ranks[r]);
  if (group.world_ranks.size() > shown) message += text(" ... ", group.world_ranks.back());
  return message + text("), ", name.bytes, " bytes, called by '", name.who, "'");
}

void disagree(const Communicator::State& group, const OperationName& name, int member) {
  throw CommError(text(describe(group, name),
                       ": another rank of the group called a different operation, or with other sizes:\n  ",
                       group.world->where_is(group.world_ranks[static_cast<std::size_t>(member)])));
}

void Operation::late(const Missing& missing) const {
  Missing absent;
  for (const int member : missing)
    if (!has_entered(group_.peer(member), group_.name, name_)) absent.push_back(member);
  const double seconds = std::chrono::duration<double>(world_.time_out).count();
  std::string message =
      text(describe(group_, name_), ": rank ", world_.rank, " of host ", group_.peer(group_.rank).host, " has waited ",
           std::fixed, std::setprecision(1), seconds, " s for:");
  for (const int member : absent.empty() ? missing : absent)
    message += "\n  " + world_.where_is(group_.world_ranks[static_cast<std::size_t>(member)]);
  throw CommError(message);
}

}  // namespace tessera::comm
