#pragma once

#include <functional>

#include "framework/comm/communicator.h"

namespace tessera::comm {

/// Another rank of the group failed in together(). That rank reports the error, so this one need not.
class PeerFailed : public Error {
 public:
  PeerFailed(std::string what, bool given_wrong) : Error(std::move(what)), given_wrong_(given_wrong) {}
  /// Whether the other's error was a ConfigError: the user can correct it.
  bool given_wrong() const { return given_wrong_; }

 private:
  bool given_wrong_;
};

/// Runs `work` on every member of the group. If it throws on some members, it throws on all: the error itself on the
/// failed member of the lowest rank, PeerFailed with its message on the others. So no member waits for one that has
/// given up, and each failure is reported once. A CommError is rethrown without telling the others, who then time out.
void together(const Communicator& group, std::string_view who, const std::function<void()>& work);

}  // namespace tessera::comm
