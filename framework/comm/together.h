#pragma once

#include <functional>

#include "framework/comm/communicator.h"

namespace tessera::comm {

/// Thrown by together() when another rank of the group failed. That rank reports its error, so this one need not.
class PeerFailed : public Error {
 public:
  PeerFailed(std::string what, bool given_wrong) : Error(std::move(what)), given_wrong_(given_wrong) {}
  /// Whether the other rank's error was a ConfigError, which the user can correct.
  bool given_wrong() const { return given_wrong_; }

 private:
  bool given_wrong_;
};

/// Runs `work` on every member of the group. If it throws on some members, together() throws on all: on the failed
/// member of the lowest rank its own exception, on the others PeerFailed with that message. So no member waits for one
/// that has failed, and each failure is reported once. A CommError is rethrown without telling the other members, which
/// then time out.
void together(const Communicator& group, std::string_view who, const std::function<void()>& work);

}  // namespace tessera::comm
