#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tessera::worker {

/// The messages of a worker to the launcher: the first byte of a packet; the text follows.
enum class LinkWord : char {
  joining = 'J',    ///< about to wait in MPI_Init for the other workers
  joined = 'I',     ///< MPI_Init has returned: all workers are there
  position = 'P',   ///< its coordinates in the layout, and its iteration
  failed = 'F',     ///< it ends because of an error of its own
  lost_peer = 'L',  ///< it ends because another worker failed or is missing
  done = 'D',       ///< its work is complete
  resume = 'R',     ///< how the run is continued should it end now
  ranks = 'N',      ///< with which numbers of ranks the run could be continued
  holds = 'H',      ///< its state after this iteration is in memory that outlives it
  deadline = 'T',   ///< seconds within which it says this again, and what it does until then
};

/// Exit code of a program that could not write its checkpoint: another start would meet the same disk.
inline constexpr int nothing_saved = 22;
inline constexpr const char* order_to_save = "save";
inline constexpr const char* order_to_finish = "finish";
inline constexpr const char* order_to_hand_over = "hand over";
inline constexpr const char* order_to_keep_nothing = "keep nothing";

/// The connection of this worker to the launcher `tsrun`, if that started it. The launcher passes two environment
/// variables:
///
///   TESSERA_LAUNCH_LINK    "descriptor:inode" of an open local socket that carries one packet per message
///   TESSERA_LAUNCH_FOLDER  a folder in this host's memory that all its workers share; the launcher deletes it when it
///                          starts the workers no more
///   TESSERA_LAUNCH_ORDER   order_to_save: write a checkpoint of the state in that folder and end;
///                          order_to_finish: complete the interrupted step of that state and end;
///                          order_to_hand_over: do what is due after the step of that state, write a checkpoint and
///                          end: another number of workers continues from it;
///                          order_to_keep_nothing: keep no state there; absent: neither
///
/// The worker only sends, and never blocks: a message that cannot be sent at once is dropped, since the launcher also
/// sees how the process ends. Without a launcher every function does nothing. Copies are handles of one connection; any
/// thread may use it. MPI is not needed, so it works before MPI_Init and after MPI has failed.
class LaunchLink {
 public:
  /// Reads the two variables. Ignores a descriptor that is not the named socket (closed meanwhile, or another file).
  LaunchLink();

  /// Whether there is a launcher.
  bool present() const { return descriptor_ >= 0; }
  /// The folder for shared memory, operation records and state files; empty without a launcher.
  const std::filesystem::path& folder() const { return folder_; }
  /// Whether this start is only to save a checkpoint of the state in the folder.
  bool wants_checkpoint() const { return order_ == order_to_save; }
  /// Whether this start is only to complete the step that earlier processes left in the folder.
  bool only_finishes() const { return order_ == order_to_finish; }
  /// Whether this start is only to save a checkpoint with which another number of workers continues.
  bool hands_over() const { return order_ == order_to_hand_over; }
  /// Whether the state may be in the folder.
  bool may_keep_state() const { return present() && order_ != order_to_keep_nothing; }

  /// Send these before and after MPI_Init. The launcher names the workers that have not joined within its
  /// --cluster_time_out. A process that has joined and ends without done() counts as failed, whatever its exit code.
  void joining() const { say(LinkWord::joining, ""); }
  void joined() const { say(LinkWord::joined, ""); }
  /// This worker's coordinates, for the report of a failure: "tp 0 dp 1 pp 0, iteration 12". May be sent in every step.
  void report(const std::string& position) const { say(LinkWord::position, position); }
  /// Why this worker is about to end. `lost_peer`: because another worker failed or is missing; the launcher then looks
  /// for the root cause there.
  void failed(const std::string& message, bool lost_peer) const {
    say(lost_peer ? LinkWord::lost_peer : LinkWord::failed, message);
  }
  void done() const { say(LinkWord::done, ""); }
  /// The state after `iteration` is in the folder: if this worker ends without done(), another start continues from
  /// there.
  void holds(std::int64_t iteration) const;
  /// For a phase of known length: "step 30" begins and takes at most `seconds`; the next call, or done(), is its end.
  /// Without it, and outside of operations with other ranks, which have a time-out of their own, the launcher stops
  /// this worker as hung.
  void expect(double seconds, const std::string& phase) const;
  /// A phase begins whose length nobody knows.
  void expect_nothing() const { say(LinkWord::deadline, ""); }
  /// What the launcher adds to the report of a failure or a stop: "the same command resumes from the newest
  /// checkpoint".
  void how_to_resume(const std::string& words) const { say(LinkWord::resume, words); }
  /// From a checkpoint the run can be continued with each of these numbers of ranks, ascending: with the same samples
  /// in the same steps. If there are many, the launcher gets the largest.
  void can_continue_with(const std::vector<std::int64_t>& ranks) const;

 private:
  void say(LinkWord word, const std::string& about) const;
  int descriptor_ = -1;
  std::filesystem::path folder_;
  std::string order_;
};

/// The files for the state of a rank in the launcher's folder: a file to be created there, and a link to a memfd that
/// the launcher holds, for hosts whose /dev/shm is small. The launcher keeps both for the next start of the workers.
std::filesystem::path state_file(const std::filesystem::path& folder, int rank);
std::filesystem::path held_state_file(const std::filesystem::path& folder, int rank);

/// The jobs that this process is a part of and that may start it several times, each with the number of this start,
/// from 0:
///
///   "tsrun <id>"   TESSERA_LAUNCH_JOB, "id:start" of tsrun: --max_restarts
///   "slurm <id>"   SLURM_JOB_ID and SLURM_RESTART_COUNT: a job that was queued again
std::map<std::string, std::int64_t> job_starts();

/// The host of this process among those of the job, TESSERA_LAUNCH_HOST of tsrun: processes with one number are lost
/// together. 0 without it.
int host_of_job();

/// The id of the job of tsrun, which `tessera state` takes; empty without it.
std::string id_of_job();

/// The number of ranks that the run was started with, TESSERA_LAUNCH_FULL_WORLD of tsrun, when it has fewer since a
/// host was lost; else `ranks`, which it has. Its global batch is that of all of them.
std::int64_t full_world(std::int64_t ranks);

/// How often tsrun started this job before; 0 without it.
std::int64_t start_of_job();

}  // namespace tessera::worker
