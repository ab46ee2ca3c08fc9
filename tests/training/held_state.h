#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/checkpoint/state_snapshot.h"

namespace tessera::training {

/// A copied state whose bytes nobody gets before release(): a rank that is slow to write.
class HeldState final : public checkpoint::StateSnapshot {
 public:
  explicit HeldState(std::vector<checkpoint::TensorRange> ranges) : StateSnapshot(std::move(ranges)), copy_(ranges_) {}
  std::span<const std::byte> bytes(std::size_t index, std::size_t first, std::span<std::byte> buffer) const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return released_; });
    return copy_.bytes(index, first, buffer);
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  checkpoint::CopiedState copy_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool released_ = false;
};

/// A state that cannot be read.
class BrokenState final : public checkpoint::StateSnapshot {
 public:
  BrokenState(std::vector<checkpoint::TensorRange> ranges, std::string message)
      : StateSnapshot(std::move(ranges)), message_(std::move(message)) {}
  std::span<const std::byte> bytes(std::size_t, std::size_t, std::span<std::byte>) const override {
    throw IoError(message_);
  }

 private:
  std::string message_;
};

}  // namespace tessera::training
