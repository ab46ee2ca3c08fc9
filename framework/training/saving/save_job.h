#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/writer.h"
#include "framework/comm/communicator.h"

namespace tessera::training {

/// How the files of one checkpoint are written. begin, commit and abandon are called on rank 0 only; if the checkpoint
/// is divided over hosts, on one rank of each host that has a folder of its own.
class CheckpointFiles {
 public:
  CheckpointFiles() = default;
  CheckpointFiles(const CheckpointFiles&) = delete;
  CheckpointFiles& operator=(const CheckpointFiles&) = delete;
  virtual ~CheckpointFiles() = default;
  virtual std::filesystem::path folder() const = 0;  ///< of the committed checkpoint
  /// Creates a temporary folder.
  virtual void begin() = 0;
  /// Writes what `rank` saves. Called in another thread than the constructor.
  virtual checkpoint::WrittenPart write(int rank, const checkpoint::StateSnapshot& state) = 0;
  /// As of CheckpointWriter. Formats that need no index of ours have none.
  virtual std::string index() const { return {}; }
  virtual void add_index(const std::string& /*index*/, const checkpoint::WrittenPart& /*part*/) {}
  /// Makes what all ranks have written a checkpoint.
  virtual void commit(std::span<const checkpoint::WrittenPart> parts, const checkpoint::Blobs& blobs) = 0;
  /// Deletes the temporary folder.
  virtual void abandon() noexcept = 0;
  /// The temporary folder, if the checkpoint can be divided over hosts; else empty.
  virtual std::filesystem::path divisible() const { return {}; }
  /// As CheckpointWriter::divide.
  virtual void divide(std::vector<std::string>, std::vector<std::string>) {}
};

/// The checkpoint that a SaveJob saves.
struct SaveTarget {
  std::filesystem::path root;  ///< the checkpoint's folder is <root>/<checkpoint_name(prefix, iteration)>
  std::string prefix;
  std::int64_t iteration = 0;
  /// Called where CheckpointFiles::begin is, before the temporary folder is created. What it throws is an error of the
  /// save.
  std::function<void()> before = {};
  /// Called where CheckpointFiles::commit is, when the checkpoint has its name: see after_saving().
  std::function<void()> after = {};
  /// Writes the checkpoint in another format than ours; then `root` and `prefix` are not used.
  std::unique_ptr<CheckpointFiles> files = {};
  bool needs_approval = false;  ///< nothing is committed before SaveJob::approve()
  bool background = false;      ///< the job's threads run at low priority (run_in_background)
};

/// Calls `after`, which may be null, when the checkpoint in `folder` is saved. What it throws is a warning in the log:
/// it does not undo the save.
void after_saving(const std::filesystem::path& folder, const std::function<void()>& after);

/// Calls `work`. A std::filesystem::filesystem_error, of a file or a folder that cannot be looked at, becomes an
/// IoError, so that a run handles it as any disk that fails.
void with_io_errors(const std::function<void()>& work);

/// Saves one checkpoint by all ranks of a group, while the calling threads may do other work. The constructor fixes
/// what is saved and starts a thread that writes this rank's part. When all ranks have written, rank 0 commits the
/// checkpoint; if one failed, nothing remains of it, and earlier checkpoints are unchanged.
///
/// The ranks exchange short messages along a binary tree, only in poll() and finish(), and no collectives after the
/// constructor: other operations of the group may come in between. All ranks must begin the same jobs in the same
/// order. Several jobs may be in flight if their iterations differ; all ranks must finish() them in the same order.
///
/// Where the hosts of the ranks have no folder in common, which a file in the temporary folder finds out, a checkpoint
/// in our format is divided: the folder of each host gets the files of its ranks and the index. The checkpoint exists
/// when rank 0 has committed it; a host that stops before it has done the same has all its files in `<name>_tmp`, from
/// which the next start of the run takes them (divided_checkpoints.h).
class SaveJob {
 public:
  /// Collective. Throws IoError on all ranks if rank 0 cannot begin, and BugError if the snapshots of the ranks do not
  /// cover every tensor exactly once.
  SaveJob(const comm::Communicator& world, SaveTarget target,
          std::shared_ptr<const checkpoint::StateSnapshot> snapshot);
  /// Waits until this rank has written. A job that has not ended by then fails on all ranks, which learn of it in
  /// poll() or finish(), unless all have written: then it may be committed.
  ~SaveJob();
  SaveJob(const SaveJob&) = delete;
  SaveJob& operator=(const SaveJob&) = delete;

  /// Whether the job has ended, so that finish() returns or throws at once. Does not block. Ranks learn of the end at
  /// different times, and only if all of them go on calling poll() or finish(). Throws CommError.
  bool poll() { return advance(false); }
  /// Waits for the end and returns the checkpoint's folder. If a rank failed: throws that rank's exception on the
  /// failed rank of the lowest number, and IoError with its message on the others. Throws CommError if a rank does not
  /// come to its end within the time-out of the World.
  std::filesystem::path finish();
  /// Allows to commit what was saved, if the target needs that: the state was found to be right. Call it on all ranks,
  /// before finish().
  void approve() { approved_ = true; }
  bool approved() const { return approved_; }
  /// Lets the job fail on all ranks, unless this rank's part is already reported as written: for a state that was found
  /// to be wrong. Call it on all ranks, then finish().
  void give_up(const std::string& why);

 private:
  /// Which rank failed, and why.
  struct Failure {
    std::int32_t rank = -1;  ///< the lowest that failed; -1: none
    std::array<char, 1020> message = {};
  };
  /// What a rank sends to its parent in the tree: this, then one WrittenPart for each rank of its subtree, of which it
  /// is the first; then, as a message of its own, the index of these if it has bytes.
  struct ReportHead {
    Failure failure;
    std::uint64_t index_bytes = 0;
  };
  using Report = std::vector<std::byte>;
  struct Child {
    int rank;
    Report report;
    std::string index;
    bool has_reported;
    comm::Transfer coming, index_coming, verdict;
  };
  enum class Stage { writing, gathering, approving, committing, waiting, telling, finishing, ended };

  void begin();
  void find_folders();
  void begin_in_folder();
  void listen();
  void read_verdict();
  void commit_on_host() noexcept;
  bool advance(bool wait);
  bool step(bool wait);
  void fail(const std::string& message);
  void start(std::function<void()> work);
  void write();
  bool has_worked(bool wait);
  bool has_come(Child& child, bool wait);
  bool has_gathered(bool wait);
  void read(const Child& child);
  void fail_here(const std::exception& error);
  void report();
  void commit();
  void tell();

  comm::Communicator world_;
  std::shared_ptr<const checkpoint::StateSnapshot> snapshot_;
  SaveTarget target_;
  int report_tag_;  ///< of messages to the parent; the next is that of verdicts
  Stage stage_ = Stage::writing;
  bool approved_ = false;
  std::exception_ptr own_;  ///< what this rank failed with
  Failure failure_;         ///< of the ranks that this one knows of; of all, once the stage is telling
  std::vector<checkpoint::WrittenPart> parts_;
  std::vector<Child> children_;
  bool leads_;            ///< this rank begins and commits
  bool divided_ = false;  ///< hosts have folders of their own
  Report sent_, told_;    ///< told_: a Failure and, if divided, the parts of all ranks
  std::string sent_index_;
  comm::Transfer reported_, index_reported_, verdict_;
  std::atomic<bool> hurries_ = false;  ///< someone waits for the end
  std::atomic<int> thread_ = 0;        ///< the thread that runs at low priority; 0: none
  std::future<void> work_;             ///< last, so that its thread ends before what it uses
};

}  // namespace tessera::training
