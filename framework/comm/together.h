#pragma once

#include <functional>

#include "framework/comm/communicator.h"

namespace tessera {

/// Another process of the group failed at something that all did together; it says why, so this one need not.
class PeerFailed : public Error {
 public:
  PeerFailed(std::string what, bool given_wrong) : Error(std::move(what)), given_wrong_(given_wrong) {}
  /// The other's error was a ConfigError: what the user gave is wrong.
  bool given_wrong() const { return given_wrong_; }

 private:
  bool given_wrong_;
};

/// Run `work`, on every member of the group. When it throws on some, it throws on all: the error itself on the member
/// of the lowest rank that has one, PeerFailed with its message on the others. So no member waits for one that gave up,
/// and each failure is told once.
void together(const Communicator& group, std::string_view who, const std::function<void()>& work);

}  // namespace tessera
