#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace tessera {

/// Open a worker's log to grow. An older one is kept: a line `header` parts what it holds from what comes.
/// Returns the descriptor; throws IoError.
int open_log(const std::filesystem::path& path, const std::string& header);

/// The last `count` lines of what was added from byte `from` on.
std::vector<std::string> last_lines(const std::filesystem::path& path, std::uint64_t from, std::size_t count);

/// Shows what files gain, whole lines, each with its label before it.
class LogFollower {
 public:
  explicit LogFollower(std::ostream& out) : out_(out) {}
  /// From what the file holds now on; it need not exist yet.
  void add(const std::filesystem::path& path, const std::string& label);
  bool shows(const std::filesystem::path& path) const;
  /// Show what has come since. `all`: also a last line without its end.
  void show(bool all = false);

 private:
  struct Followed {
    std::filesystem::path path;
    std::string label;
    std::uint64_t read = 0;
    std::string rest;
  };
  void show(Followed& one, bool all);
  std::ostream& out_;
  std::vector<Followed> files_;
};

}  // namespace tessera
