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

/// How a start of all workers ended.
struct Outcome {
  enum class Kind { done, stopped, failed } kind = Kind::done;
  int code = 0;
  std::string words;     ///< the root cause, for the screen
  bool refused = false;  ///< the program refused its input: trying again is no use
  std::string resume;    ///< how to continue what it did, if it told
  int held = -1;         ///< the last iteration whose state is in memory that outlives the workers; -1: none
  std::string cause;     ///< which worker failed, and how, in a few words: the same for a failure that repeats itself
  std::vector<std::size_t> lost_hosts;  ///< of Job::hosts, ascending: they are gone
  bool host_lost = false;               ///< a host is gone, and no other one can have its workers
  bool regroups = false;                ///< stopped so that another number of workers continues
  std::vector<int> possible;            ///< numbers of workers with which the program can be continued, if it told
};

/// What the leader listens to while the job runs; lives longer than its attempts.
struct LeaderSockets {
  Descriptor listener;
  Descriptor signals;
  std::vector<Connection> hosts;     ///< to the tsrun of each host; that of this host is not open
  Spares spares;                     ///< hosts without ranks
  std::set<pid_t> agents;            ///< that hold the tsrun of other hosts, and live as long as those (--agent)
  std::function<void()> call_hosts;  ///< called while workers are missing: starts tsrun on lost hosts again, if it can
};

/// One start of all workers, watched to its end: starts mpirun (by a guard), gives every worker its program, and judges
/// by what the workers tell. mpirun's exit code is no verdict. Afterwards nothing of it runs any more.
class Attempt {
 public:
  /// `order`: what the program is told to do, see worker::LaunchLink; empty: its work.
  Attempt(const Job& job, const JobFolders& folders, int restart, std::string order, LeaderSockets& sockets,
          Reporter& reporter, LogFollower& logs);
  ~Attempt();
  Outcome run();

 private:
  struct Line {
    Connection connection;
    int rank = -1;
    std::string place, resume;  ///< how its work is continued, if it told
    bool joining = false, joined = false, started = false;
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
  void stop_as_asked(int number, int host);
  void start_programs();
  void check_deadlines();
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
  std::optional<int> limit_;  ///< seconds for the whole
  LeaderSockets& sockets_;
  Reporter& reporter_;
  LogFollower& logs_;

  double began_ = 0, last_heartbeat_ = 0;
  pid_t mpirun_ = 0;       ///< its guard
  Descriptor guard_line_;  ///< the guard notices when it is closed
  double mpirun_ended_ = 0;
  Descriptor mpirun_output_;
  std::string mpirun_rest_;
  std::vector<std::string> mpirun_lines_;

  PendingConnections pending_;
  std::list<Agent> agents_;
  std::vector<Line> lines_;      ///< by rank
  std::vector<WorkerEnd> ends_;  ///< in the order of time
  std::size_t good_ = 0;
  bool log_failed_ = false;  ///< told already

  bool failing_ = false;
  double settled_ = 0;  ///< when enough has been heard after the first failure
  std::string trouble_;
  std::vector<int> suspects_;
  std::set<std::size_t> lost_hosts_;
  bool about_mpirun_ = false;  ///< its last lines may tell why
  std::set<int> asked_on_;
  int asked_to_stop_ = 0;      ///< the signal that asked, 0: none
  bool regroups_ = false;      ///< nobody else asked
  std::vector<int> possible_;  ///< Outcome::possible
  double asked_at_ = 0, first_end_after_stop_ = 0;
};

}  // namespace tessera::tsrun
