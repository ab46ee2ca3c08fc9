#pragma once

#include <filesystem>
#include <string>

namespace tessera {

/// What a worker says to the launcher, and the first byte of the packet that says it; the text follows.
enum class LinkWord : char {
  joining = 'J',    ///< about to wait for the other workers
  joined = 'I',     ///< all workers have come
  place = 'P',      ///< where it stands in the layout and in the run
  failed = 'F',     ///< it ends because of an error of its own
  lost_peer = 'L',  ///< it ends because another worker did not do its part
  done = 'D',       ///< its work is complete
};

/// This worker's line to `tsrun`, the launcher, if that started it; the launcher gives it in two variables:
///
///   TESSERA_LAUNCH_LINK    "descriptor:inode" of an open local socket that carries one packet for each word
///   TESSERA_LAUNCH_FOLDER  a folder in this host's memory that all its workers share and that the launcher deletes
///
/// Nothing is ever read from it, nothing waits: a word that cannot be sent at once is dropped, since the launcher
/// also sees how the process ends. Without a launcher every function does nothing. Copies are handles of one line;
/// any thread may use it. Nothing here needs MPI, so it works before MPI_Init and after a crash of it.
class LaunchLink {
 public:
  /// Reads the two variables. A descriptor that is not the promised socket (closed meanwhile, another file) is left
  /// alone.
  LaunchLink();

  bool present() const { return descriptor_ >= 0; }
  /// Where shared memory and records of operations go; empty without a launcher.
  const std::filesystem::path& folder() const { return folder_; }

  /// Say so before MPI_Init, and after it. The launcher names the workers that have not come within its
  /// --cluster_time_out. Once joined, a process that ends without done() has failed whatever its exit code says.
  void joining() const { say(LinkWord::joining, ""); }
  void joined() const { say(LinkWord::joined, ""); }
  /// Where this worker is, for the report of a failure: "tp 0 dp 1 pp 0, iteration 12". May be said in every step.
  void report(const std::string& place) const { say(LinkWord::place, place); }
  /// The reason why this worker is about to end. `lost_peer`: another one has failed or did not come; the launcher
  /// then looks for the root cause there.
  void failed(const std::string& message, bool lost_peer) const {
    say(lost_peer ? LinkWord::lost_peer : LinkWord::failed, message);
  }
  void done() const { say(LinkWord::done, ""); }

 private:
  void say(LinkWord word, const std::string& about) const;
  int descriptor_ = -1;
  std::filesystem::path folder_;
};

}  // namespace tessera
