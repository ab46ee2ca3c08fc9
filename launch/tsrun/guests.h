#pragma once

#include <poll.h>

#include <list>
#include <optional>
#include <vector>

#include "launch/tsrun/job.h"
#include "launch/tsrun/messages.h"

namespace tessera::tsrun {

/// A connection that is not admitted yet: anybody may be at its other end.
struct Guest {
  Connection connection;
  std::optional<HostInfo> info;  ///< of a host that has introduced itself
  std::string called, token;     ///< its name in --hosts; what it has to repeat
};

/// The connections to the head that are not admitted. Whatever they send or do not send, the head goes on: what is no
/// message of a newcomer closes the connection with a line in scheduler.log; so do lines that do not end, and when
/// there are too many connections, the oldest are closed.
class Guests {
 public:
  /// `expected`: how many may come at once, all workers of the job; so many and 128 more are kept.
  Guests(Voice& voice, int expected) : voice_(voice), most_(static_cast<std::size_t>(expected) + 128) {}
  /// Take new connections, and what all have sent.
  void take(const Descriptor& listener);
  /// Close what is over the limits, and forget what is closed.
  void tidy();
  /// Close one, with the reason in scheduler.log.
  void refuse(Guest& guest, const std::string& why);
  void watch(std::vector<pollfd>& watched) const;
  std::list<Guest>& all() { return all_; }

 private:
  void note(const Guest& guest, const std::string& why);
  Voice& voice_;
  std::size_t most_;
  std::list<Guest> all_;  ///< the oldest first
  int noted_ = 0;
};

}  // namespace tessera::tsrun
