#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <queue>
#include <vector>

#include "framework/base/error.h"

namespace tessera::training {

/// Messages of all stages. A receiver who waits longer than `longest_wait` throws CommError.
class Mailboxes {
 public:
  using Address = std::array<std::int64_t, 3>;  // from, to, tag
  /// Far above what a loaded machine needs: only a message that nobody sends lasts so long.
  static constexpr auto longest_wait = std::chrono::minutes(5);
  /// Returns the number of the message at this address.
  int put(const Address& address, std::vector<std::byte> values) {
    const std::lock_guard lock(mutex_);
    boxes_[address].push(std::move(values));
    changed_.notify_all();
    return sent_[address]++;
  }
  void expect(const Address& address) {
    const std::lock_guard lock(mutex_);
    ++expected_[address];
    changed_.notify_all();
  }
  /// Until the receiver has begun to receive it: a long message leaves no earlier.
  void wait_for_receiver(const Address& address, int number) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, longest_wait, [&] { return expected_[address] > number; }))
      throw CommError("nobody receives");
  }
  bool has(const Address& address) {
    const std::lock_guard lock(mutex_);
    return !boxes_[address].empty();
  }
  std::vector<std::byte> take(const Address& address) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[address];
    if (!changed_.wait_for(lock, longest_wait, [&] { return !box.empty(); })) throw CommError("no message came");
    auto values = std::move(box.front());
    box.pop();
    return values;
  }
  bool all_taken() {
    return std::all_of(boxes_.begin(), boxes_.end(), [](const auto& box) { return box.second.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Address, std::queue<std::vector<std::byte>>> boxes_;
  std::map<Address, int> sent_, expected_;
};

}  // namespace tessera::training
