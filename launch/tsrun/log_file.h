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

/// The log of one worker: takes what the program prints (stdout and stderr) from a pipe and writes it to a file. Keeps
/// the last lines in memory, so they can be reported even if the file could not be written. A separate thread writes
/// the file, so a slow or full disk never makes the worker wait. Output that the file cannot take is dropped; when the
/// file can be written again, a line in it says how many bytes are missing.
class WorkerLog {
 public:
  /// Opens `path` for appending. If it already has content, a line with `header` separates old and new output. Throws
  /// IoError if it cannot be opened or is a symbolic link, and Error if there is no pipe.
  WorkerLog(const std::filesystem::path& path, const std::string& header);
  ~WorkerLog();
  WorkerLog(const WorkerLog&) = delete;
  WorkerLog& operator=(const WorkerLog&) = delete;

  /// The program's end of the pipe. The caller closes it after the program has inherited it.
  Descriptor& program_end() { return writing_; }
  /// Descriptor to poll for output; -1 when no process can write to the pipe any more.
  int number() const { return reading_.number(); }
  /// Takes the output that is in the pipe; does not wait.
  void take();
  /// Waits until everything taken so far is written to the file, for at most `seconds`.
  void flush(double seconds);
  /// The last `count` lines of output; each line is cut to 4096 bytes.
  std::vector<std::string> last_lines(std::size_t count) const;
  /// Path and reason once output was dropped, for example "worker_0.log: cannot be written: No space left on device";
  /// else empty.
  std::string problem() const;

 private:
  struct File;
  std::shared_ptr<File> file_;  ///< shared with the thread, which may outlive this object when a disk hangs
  Descriptor reading_, writing_;
  std::string tail_;
};

/// Copies lines that are appended to log files to the screen, each with a label in front. Reads from the files only as
/// much as the screen has room for; the rest stays in the files until the reader of the screen catches up.
class LogFollower {
 public:
  /// `tell`: called with one line about output that is not shown. `most_behind`: maximum number of bytes of one file
  /// that wait for a slow reader; if there are more, the oldest are skipped.
  LogFollower(Screen& screen, std::function<void(const std::string&)> tell, std::uint64_t most_behind = 16 << 20)
      : screen_(screen), tell_(std::move(tell)), most_behind_(most_behind) {}
  /// Follows `path` from its present end. The file need not exist yet. `label`: text in front of each line.
  void add(const std::filesystem::path& path, const std::string& label);
  /// Whether `path` is followed and everything in it has been shown.
  bool shows(const std::filesystem::path& path) const;
  /// Shows new complete lines for which the screen has room, at most 1 MiB of each file; does not wait. `all`: more
  /// than 1 MiB, and also a last line without a line end. 1 MiB or more without a line end is shown as a line.
  void show(bool all = false);
  /// Shows everything that is left, as long as the reader of the screen takes something within `patience` seconds.
  /// Skips the rest and reports it through `tell`.
  void finish(double patience = Screen::reader_patience);

 private:
  struct Followed {
    std::filesystem::path path;
    std::string label;
    std::uint64_t read = 0;
    std::string rest;            ///< beginning of a line whose end has not been written yet
    std::uint64_t left_out = 0;  ///< skipped bytes that have not been reported yet
    bool inside_line = false;    ///< the next bytes are the end of a line whose beginning was skipped
  };
  void show(Followed& one, bool all, std::size_t share);
  static void end_line(Followed& one, std::string& lines, std::uint64_t& shown);
  void skip_old(Followed& one) const;
  bool is_behind() const;
  void tell_left_out();
  Screen& screen_;
  std::function<void(const std::string&)> tell_;
  std::uint64_t most_behind_;
  std::vector<Followed> files_;
};

}  // namespace tessera::tsrun
