#pragma once

#include <functional>
#include <list>
#include <set>
#include <string>
#include <vector>

#include "launch/tsrun/job.h"
#include "launch/tsrun/log_file.h"
#include "launch/tsrun/pending_connections.h"
#include "launch/tsrun/spares.h"

namespace tessera::tsrun {

/// Result of one start of all workers.
struct Outcome {
  enum class Kind { done, stopped, failed } kind = Kind::done;
  int code = 0;
  std::string words;     ///< root cause, as text for the screen
  bool refused = false;  ///< the program refused its input (exit code 2): another start would fail in the same way
  std::string resume;    ///< how to resume the run, as the program reported it; empty: it reported nothing
  int held = -1;         ///< last iteration whose state is in memory that outlives the workers; -1: none
  std::string cause;     ///< short description of the failure, equal for a failure that repeats; empty: no failure
  std::vector<std::size_t> lost_hosts;  ///< indices into Job::hosts of the hosts that were lost, ascending
  bool host_lost = false;               ///< a host was lost and no other host can take over its ranks
  bool regroups = false;                ///< stopped so that another number of workers resumes
  int rank = -1;                        ///< of the worker that is the root cause; -1: unknown, or no worker is
  std::string host;                     ///< where that worker was
  int completed = -1;                   ///< WorkerEnd::completed_steps() of the failure; -1: unknown
  bool asked = false;                   ///< a signal asked the job to stop: no other start trains
  std::vector<int> possible;  ///< numbers of workers with which the program can resume; empty: it reported none
};

/// The open connections and processes of the leader. They outlive every Attempt.
struct LeaderSockets {
  Descriptor listener;
  Descriptor signals;
  std::vector<Connection> hosts;  ///< to the tsrun of each host in Job::hosts; not open for the leader's own host
  Spares spares;                  ///< hosts without ranks
  std::set<pid_t> agents;         ///< processes of --agent; each ends with the tsrun that it started
  std::function<void()>
      call_hosts;  ///< called while ranks are missing: tries to start tsrun on lost hosts; may be empty
};

/// One start of all workers, from mpirun to the end of the last worker. Starts mpirun under a guard (guard.h), sends
/// every worker its program, and decides the outcome from the reports of the workers, not from mpirun's exit code. When
/// run() has returned or the object is destroyed, no process of this start runs on this host.
class Attempt {
 public:
  /// `restart`: number of this start, from 0. `order`: worker::order_to_save and so on (worker::LaunchLink); empty:
  /// train normally. All references must outlive this object.
  Attempt(const Job& job, const JobFolders& folders, int restart, std::string order, LeaderSockets& sockets,
          Reporter& reporter, LogFollower& logs);
  ~Attempt();
  /// Starts the workers and waits for their end. Call it once. Throws Error or ConfigError if mpirun cannot be started.
  Outcome run();

 private:
  /// Seconds without a message, which comes every second, after which a supervisor may be in trouble.
  static constexpr double suspicious_silence_seconds = 1.9;

  struct Line {
    Connection connection;
    int rank = -1;
    std::string place, resume;  ///< its last report of coordinates and iteration, and of how to resume the run
    bool joining = false, joined = false, started = false;
    pid_t supervisor = 0;  ///< its process, once it was silent; 0: unknown, or not on this host
  };
  struct Agent {
    Connection connection;
    std::size_t host;
  };

  void start_mpirun();
  void poll_once();
  void handle_pending();
  void handle_agents();
  void admit(PendingConnection& client, HostMessage&& host);
  void admit(PendingConnection& client, const AgentMessage& agent);
  void admit(PendingConnection& client, const WorkerMessage& worker);
  void handle_workers();
  void handle(Line& line);
  void handle_hosts();
  void handle_mpirun();
  void handle_signals();
  void take_late_signals();
  void stop_as_asked(int number, int host);
  void start_programs();
  void check_deadlines();
  void check_silence();
  bool everybody_is_silent() const;
  void find_supervisors();
  void heartbeat();
  void look_for_stop_file();
  void grow();
  StartMessage start_message(int rank) const;

  void fail(const std::string& trouble, std::vector<int> suspects, double settle);
  bool only_lost_peers() const;
  bool undecided() const;
  bool ended(int rank) const;
  void judge_end(const WorkerEnd& end);
  void stop_all();
  template <class Message>
  void tell_all(const Message& message);
  Outcome verdict();
  Outcome stopped_verdict() const;
  Outcome judged();
  std::string trouble_words() const;
  std::string resume_words() const;
  std::string ranks_words(const std::vector<int>& ranks) const;
  void finish_mpirun(double patience);

  const Job& job_;
  const JobFolders& folders_;
  int restart_;
  std::string order_;
  std::optional<int> limit_;  ///< time limit of this start, in seconds (TTP_OT); absent: none
  LeaderSockets& sockets_;
  Reporter& reporter_;
  LogFollower& logs_;

  double began_ = 0, last_heartbeat_ = 0;
  pid_t mpirun_ = 0;       ///< process id of the guard that runs mpirun; 0: it has ended
  Descriptor guard_line_;  ///< pipe to the guard; its end tells the guard that the leader is gone
  double mpirun_ended_ = 0;
  Descriptor mpirun_output_;
  std::string mpirun_rest_;
  std::vector<std::string> mpirun_lines_;

  PendingConnections pending_;
  std::list<Agent> agents_;
  std::vector<Line> lines_;      ///< indexed by rank
  std::vector<WorkerEnd> ends_;  ///< in chronological order
  std::size_t good_ = 0;
  bool log_failed_ = false;  ///< a log that cannot be written has been reported on the screen

  bool failing_ = false;
  double settled_ = 0;  ///< time by now() at which the outcome is decided after the first failure
  std::string trouble_;
  std::vector<int> suspects_;
  std::set<std::size_t> lost_hosts_;
  bool about_mpirun_ = false;  ///< the last lines of mpirun may explain the failure and are shown
  std::set<int> asked_on_;
  int asked_to_stop_ = 0;      ///< signal that asked the job to stop; 0: none
  bool regroups_ = false;      ///< the stop is only a change of the number of workers; no user asked for it
  bool asked_ = false;         ///< Outcome::asked
  std::vector<int> possible_;  ///< Outcome::possible
  double asked_at_ = 0, first_end_after_stop_ = 0;
};

}  // namespace tessera::tsrun
