#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "framework/log/log.h"

namespace tessera::tsrun {

/// What tsrun shows: lines of its workers on standard output, its own messages on standard error, in their order. A
/// thread writes them, so a reader that stops reading never makes tsrun wait. The descriptors stay as they are: other
/// processes may share them, so they are not made non-blocking.
///
/// A process that forks and continues in the child must not have shown anything before, because the child has no
/// thread.
class Screen {
 public:
  /// At most so many bytes wait to be written. `output`: where the lines of workers go.
  explicit Screen(std::size_t most_waiting = 4 << 20, int output = 1);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  /// That of this process; never destroyed.
  static Screen& of_process();

  /// How many bytes of echo fit now.
  std::size_t room() const;
  /// Lines that are `bytes` bytes of a worker's log file. What is larger than room() is taken, too.
  void echo(std::string lines, const std::string& file, std::uint64_t bytes);
  /// Forget the lines that nobody has taken yet: about how many bytes of each file they are.
  std::map<std::string, std::uint64_t> take_back();
  /// A message of tsrun, by its logger. Left out when twice the bytes that may wait do.
  void message(log::LogLevel level, std::string words);

  /// Seconds without a byte taken after which a reader is given up when tsrun ends.
  static constexpr double reader_patience = 5;
  /// Wait until half of the bytes fit, or all is written. False if the reader has taken nothing for `patience` seconds.
  bool wait_for_room(double patience = reader_patience);
  bool finish(double patience = reader_patience);

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;  ///< shared with the thread, which may be inside a write when this ends
};

}  // namespace tessera::tsrun
