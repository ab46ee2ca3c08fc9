#include "launch/tsrun/screen.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "framework/base/error.h"
#include "launch/tsrun/logger.h"

namespace tessera::tsrun {
namespace {

constexpr std::size_t most_at_once = 4096;  // bytes; a reader that takes that many within its patience is waited for

}  // namespace

struct Screen::Queue {
  struct Item {
    std::optional<log::LogLevel> level;  // level of a message; absent: lines of workers
    std::string words, file;
    std::uint64_t bytes = 0;  // bytes of the log file
    std::size_t begin = 0;    // first byte that is not written yet
    std::size_t left() const { return words.size() - begin; }
  };

  std::size_t most;
  int output;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> items;
  std::size_t waiting = 0;      // bytes that wait, including those that are being written
  std::uint64_t taken = 0;      // bytes that were written
  std::uint64_t given_up = -1;  // value of `taken` when a wait for the reader failed
  bool ends = false, runs = false;
  bool told = false;  // that output is lost; used by the thread only

  void add(std::shared_ptr<Queue> self, Item item) {
    waiting += item.words.size();
    items.push_back(std::move(item));
    if (!std::exchange(runs, true)) start(std::move(self));
    changed.notify_all();
  }

  /// The thread blocks all signals, so that the other threads receive them.
  static void start(std::shared_ptr<Queue> self) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([self = std::move(self)] { self->run(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ends || !items.empty(); });
      if (items.empty()) return;
      auto& first = items.front();
      const auto level = first.level;
      const auto part = level ? first.words : first.words.substr(first.begin, most_at_once);
      first.begin += part.size();
      if (first.left() == 0) items.pop_front();
      lock.unlock();
      level ? logger.write(*level, part) : write_all(part.data(), part.size());
      lock.lock();
      waiting -= part.size();
      taken += part.size();
      changed.notify_all();
    }
  }

  /// Output for a reader that has closed its end is discarded. Other failures are reported once; the job continues.
  void write_all(const char* bytes, std::size_t count) {
    while (count > 0) {
      const auto written = write(output, bytes, count);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) {  // another process made it non-blocking
        pollfd watched = {output, POLLOUT, 0};
        poll(&watched, 1, -1);
        continue;
      }
      if (written <= 0) {
        if (errno != EPIPE && !std::exchange(told, true))
          logger.error(text("tsrun: standard output: cannot be written: ", std::strerror(errno),
                            "; lines of workers are missing here, their log files have them"));
        return;
      }
      bytes += written;
      count -= static_cast<std::size_t>(written);
    }
  }

  template <class Holds>
  bool wait_until(Holds holds, double patience) {
    std::unique_lock lock(mutex);
    while (!holds()) {
      const auto before = taken;
      if (given_up == before) return false;
      if (changed.wait_for(lock, std::chrono::duration<double>(patience), [&] { return taken != before || holds(); }))
        continue;
      given_up = before;
      return false;
    }
    return true;
  }
};

Screen::Screen(std::size_t most_waiting, int output) : queue_(std::make_shared<Queue>()) {
  queue_->most = most_waiting;
  queue_->output = output;
}

Screen::~Screen() {
  const std::lock_guard lock(queue_->mutex);
  queue_->ends = true;
  queue_->changed.notify_all();
}

Screen& Screen::of_process() {
  static auto* const screen = new Screen;
  return *screen;
}

std::size_t Screen::room() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->most - std::min(queue_->most, queue_->waiting);
}

void Screen::echo(std::string lines, const std::string& file, std::uint64_t bytes) {
  if (lines.empty()) return;
  const std::lock_guard lock(queue_->mutex);
  queue_->add(queue_, {std::nullopt, std::move(lines), file, bytes});
}

std::map<std::string, std::uint64_t> Screen::take_back() {
  const std::lock_guard lock(queue_->mutex);
  std::map<std::string, std::uint64_t> all;
  for (const auto& item : queue_->items) {
    if (item.level) continue;
    all[item.file] += item.bytes * item.left() / item.words.size();  // the lines have labels, the file has none
    queue_->waiting -= item.left();
  }
  std::erase_if(queue_->items, [](const auto& item) { return !item.level; });
  return all;
}

void Screen::message(log::LogLevel level, std::string words) {
  const std::lock_guard lock(queue_->mutex);
  if (words.empty() || queue_->waiting + words.size() > 2 * queue_->most) return;
  queue_->add(queue_, {level, std::move(words), ""});
}

bool Screen::wait_for_room(double patience) {
  auto& queue = *queue_;
  return queue.wait_until([&] { return queue.waiting <= queue.most / 2; }, patience);
}

bool Screen::finish(double patience) {
  auto& queue = *queue_;
  return queue.wait_until([&] { return queue.waiting == 0; }, patience);
}

}  // namespace tessera::tsrun
