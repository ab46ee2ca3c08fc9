#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tessera::worker {

/// Kinds of message from a worker to the launcher: the first byte of a packet. The text of the message follows it.
enum class LinkWord : char {
  joining = 'J',    ///< the worker is about to wait in MPI_Init for the other workers
  joined = 'I',     ///< MPI_Init has returned: all workers are present
  position = 'P',   ///< text: its coordinates in the parallel layout, and its iteration
  failed = 'F',     ///< it ends because of an error of its own; text: the error
  lost_peer = 'L',  ///< it ends because another worker failed or is missing; text: the error
  done = 'D',       ///< its work is complete
  resume = 'R',     ///< text: how to resume the run if it ended now
  ranks = 'N',      ///< text: numbers of ranks with which the run could resume, "2,4,8"
  holds = 'H',      ///< text: iteration whose state is in memory that outlives the worker
  deadline = 'T',   ///< text: "30 step 12", seconds until the next message of this kind, and what the worker does
};

/// Exit code of a program that could not write its checkpoint. tsrun does not restart it, because the disk would be the
/// same.
inline constexpr int nothing_saved = 22;
/// Values of TESSERA_LAUNCH_ORDER; see LaunchLink.
inline constexpr const char* order_to_save = "save";
inline constexpr const char* order_to_finish = "finish";
inline constexpr const char* order_to_hand_over = "hand over";
inline constexpr const char* order_to_keep_nothing = "keep nothing";

/// The connection of this worker to the launcher `tsrun`, if tsrun started it. The launcher passes three environment
/// variables:
///
///   TESSERA_LAUNCH_LINK    "descriptor:inode" of an open local socket that carries one packet per message
///   TESSERA_LAUNCH_FOLDER  folder in this host's memory that all workers of the host share; the launcher deletes it
///                          after the last start of the workers
///   TESSERA_LAUNCH_ORDER   order_to_save: write a checkpoint of the state in that folder and end;
///                          order_to_finish: complete the interrupted step of that state and end;
///                          order_to_hand_over: do what is due after the step of that state, write a checkpoint and
///                          end, because another number of workers resumes from it;
///                          order_to_keep_nothing: train normally, but keep no state in the folder;
///                          absent: train normally
///
/// The worker only sends, and never blocks: a message that cannot be sent at once is dropped, because the launcher also
/// sees how the process ends. Without a launcher every function does nothing. Copies of the object share one
/// connection; any thread may use it. It does not use MPI, so it works before MPI_Init and after MPI has failed.
class LaunchLink {
 public:
  /// Reads the three variables. Ignores a descriptor that is not the named socket (it was closed, or is another file).
  LaunchLink();

  /// Whether tsrun started this process.
  bool present() const { return descriptor_ >= 0; }
  /// The folder for shared memory, operation records and state files; empty without a launcher.
  const std::filesystem::path& folder() const { return folder_; }
  /// Whether this start is only to save a checkpoint of the state in the folder.
  bool wants_checkpoint() const { return order_ == order_to_save; }
  /// Whether this start is only to complete the interrupted step of the state in the folder.
  bool only_finishes() const { return order_ == order_to_finish; }
  /// Whether this start is only to save a checkpoint from which another number of workers resumes.
  bool hands_over() const { return order_ == order_to_hand_over; }
  /// Whether the worker may keep its state in the folder.
  bool may_keep_state() const { return present() && order_ != order_to_keep_nothing; }

  /// Call joining() before and joined() after MPI_Init. The launcher reports the workers that have not joined within
  /// its --cluster_time_out. A process that has joined and ends without done() counts as failed, whatever its exit code
  /// is.
  void joining() const { say(LinkWord::joining, ""); }
  void joined() const { say(LinkWord::joined, ""); }
  /// Reports this worker's coordinates and iteration for the report of a failure: "tp 0 dp 1 pp 0, iteration 12". May
  /// be called in every step.
  void report(const std::string& position) const { say(LinkWord::position, position); }
  /// Reports why this worker is about to end. `lost_peer`: it ends because another worker failed or is missing; the
  /// launcher then looks for the root cause there.
  void failed(const std::string& message, bool lost_peer) const {
    say(lost_peer ? LinkWord::lost_peer : LinkWord::failed, message);
  }
  /// Reports that this worker's work is complete.
  void done() const { say(LinkWord::done, ""); }
  /// Reports that the state after `iteration` is in the folder: if this worker ends without done(), the next start
  /// continues from that state.
  void holds(std::int64_t iteration) const;
  /// Announces a phase, for example "step 30", that takes at most `seconds`. The phase ends with the next call of
  /// expect(), expect_nothing() or done(). If it takes longer, and the worker is not inside an operation with other
  /// ranks, which has its own time-out, the launcher stops the worker as hung.
  void expect(double seconds, const std::string& phase) const;
  /// Announces a phase without time limit.
  void expect_nothing() const { say(LinkWord::deadline, ""); }
  /// Sets the sentence that the launcher adds to the report of a failure or a stop, for example "the same command
  /// resumes from the newest checkpoint".
  void how_to_resume(const std::string& words) const { say(LinkWord::resume, words); }
  /// Reports with which numbers of ranks, ascending, the run can resume from a checkpoint so that every step has the
  /// same samples. Only the largest 1000 are sent.
  void can_continue_with(const std::vector<std::int64_t>& ranks) const;

 private:
  void say(LinkWord word, const std::string& about) const;
  int descriptor_ = -1;
  std::filesystem::path folder_;
  std::string order_;
};

/// Paths of the files for the state of a rank in the launcher's folder. state_file: a file that the worker creates.
/// held_state_file: a link to a memfd that the launcher holds, for hosts whose /dev/shm is small. The launcher keeps
/// both for the next start of the workers.
std::filesystem::path state_file(const std::filesystem::path& folder, int rank);
std::filesystem::path held_state_file(const std::filesystem::path& folder, int rank);

/// The jobs that this process is part of and that may start it several times. Maps each job to the number of this
/// start, from 0:
///
///   "tsrun <id>"   from TESSERA_LAUNCH_JOB, "id:start": tsrun restarts workers (--max_restarts)
///   "slurm <id>"   from SLURM_JOB_ID and SLURM_RESTART_COUNT: Slurm requeues a job
std::map<std::string, std::int64_t> job_starts();

/// Number of this process's host in the job (TESSERA_LAUNCH_HOST of tsrun); 0 without tsrun. Processes with the same
/// number are lost together.
int host_of_job();

/// Id of the tsrun job, which `tessera state` takes as an argument; empty without tsrun.
std::string id_of_job();

/// Number of ranks at the start of the run (TESSERA_LAUNCH_FULL_WORLD of tsrun) if a host was lost since; otherwise
/// `ranks`, the present number. The global batch is defined for this number.
std::int64_t full_world(std::int64_t ranks);

/// Number of earlier starts of this job by tsrun; 0 without tsrun.
std::int64_t start_of_job();

}  // namespace tessera::worker
