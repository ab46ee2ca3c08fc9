#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/tsrun/connection.h"
#include "launch/tsrun/screen.h"

namespace tessera::tsrun {

/// What a worker prints, both streams, on its way through a pipe to the log file. The last lines are kept in memory, so
/// they can be reported also when the file could not take them. A thread of its own writes the file: a disk that is
/// slow or full never makes the worker wait. What the file cannot take is dropped, and counted in the file when it can
/// be written again.
class WorkerLog {
 public:
  /// Opens the file to grow. An older one is kept: a line `header` parts what it holds from what comes.
  /// Throws IoError, also for a symbolic link, which is not followed.
  WorkerLog(const std::filesystem::path& path, const std::string& header);
  ~WorkerLog();
  WorkerLog(const WorkerLog&) = delete;
  WorkerLog& operator=(const WorkerLog&) = delete;

  /// The program's end of the pipe; close it here when the program has it.
  Descriptor& program_end() { return writing_; }
  /// Readable when there is something to take; -1 when nobody can print any more.
  int number() const { return reading_.number(); }
  /// Take what has been printed; nothing waits.
  void take();
  /// Wait until the file has what was taken, for at most so long.
  void flush(double seconds);
  /// The last `count` lines that were printed; each is cut at 4096 bytes.
  std::vector<std::string> last_lines(std::size_t count) const;
  /// "worker_0.log: cannot be written: No space left on device" since something was dropped; else empty.
  std::string problem() const;

 private:
  struct File;
  std::shared_ptr<File> file_;  ///< shared with the thread, which may outlive this when a disk hangs
  Descriptor reading_, writing_;
  std::string tail_;
};

/// Shows what files gain, whole lines, each with its label before it. Takes from the files no more than the screen has
/// room for: what a slow reader has not taken yet waits in the files.
class LogFollower {
 public:
  /// `tell` gets one line about what is not shown at all. `most_behind`: bytes of a file that may wait for a slow
  /// reader; when there are more, the older ones are left out.
  LogFollower(Screen& screen, std::function<void(const std::string&)> tell, std::uint64_t most_behind = 16 << 20)
      : screen_(screen), tell_(std::move(tell)), most_behind_(most_behind) {}
  /// From what the file holds now on; it need not exist yet.
  void add(const std::filesystem::path& path, const std::string& label);
  /// Whether it shows that file, and all that this holds is shown.
  bool shows(const std::filesystem::path& path) const;
  /// Show what has come since and the screen has room for; nothing waits. Of each file at most 1 MiB, so that other
  /// work of the caller is not kept waiting. `all`: more, and also a last line without its end.
  void show(bool all = false);
  /// Show all that is left, as long as the reader takes something every `patience` seconds. The rest is left out.
  void finish(double patience = Screen::reader_patience);

 private:
  struct Followed {
    std::filesystem::path path;
    std::string label;
    std::uint64_t read = 0;
    std::string rest;            ///< a line that has no end yet
    std::uint64_t left_out = 0;  ///< bytes that are not told yet
    bool inside_line = false;    ///< what comes next is the end of a line whose beginning was left out
  };
  void show(Followed& one, bool all, std::size_t share);
  void skip_old(Followed& one) const;
  bool is_behind() const;
  void tell_left_out();
  Screen& screen_;
  std::function<void(const std::string&)> tell_;
  std::uint64_t most_behind_;
  std::vector<Followed> files_;
};

}  // namespace tessera::tsrun
