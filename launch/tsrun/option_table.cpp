#include "launch/tsrun/option_table.h"

#include <algorithm>
#include <cctype>
#include <climits>

#include "framework/base/cpu_limit.h"
#include "framework/log/log.h"
#include "launch/tsrun/address.h"

namespace tessera::tsrun {
namespace {

using Put = std::function<void(LaunchOptions&, const std::string&)>;

int whole_number(const std::string& word, long least, long most) {
  std::size_t end = 0;
  long number = 0;
  try {
    number = std::stol(word, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  if (end == 0 || end != word.size()) throw ConfigError(text("'", word, "' is not a whole number"));
  if (number < least || number > most)
    throw ConfigError(
        text(number, " is out of range; ", least, most < INT_MAX ? text(" to ", most) : " and above", " is"));
  return static_cast<int>(number);
}

bool truth(const std::string& given) {
  auto word = given;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word != "true" && word != "false") throw ConfigError(text("'", given, "' is neither True nor False"));
  return word == "true";
}

/// The same for an environment variable, where 1 and 0 are also allowed.
bool truth_of_variable(const std::string& word) {
  try {
    return word == "1" || (word != "0" && truth(word));
  } catch (const ConfigError&) {
    throw ConfigError(text("'", word, "' is neither 1 nor 0, nor true nor false"));
  }
}

template <class Number>
Put number(Number LaunchOptions::*member, long least, long most = INT_MAX) {
  return [=](LaunchOptions& o, const std::string& word) { o.*member = whole_number(word, least, most); };
}
Put words(std::string LaunchOptions::*member) {
  return [=](LaunchOptions& o, const std::string& word) { o.*member = word; };
}
Put ignored(const std::string& name, const std::string& why) {
  return [=](LaunchOptions& o, const std::string&) { o.notes.push_back(text(name, " has no effect here: ", why)); };
}
Put refused(const std::string& why) {
  return [=](LaunchOptions&, const std::string&) { throw ConfigError(why); };
}

void put_after_loss(LaunchOptions& o, const std::string& word) {
  if (word != "oversubscribe" && word != "shrink")
    throw ConfigError(text("'", word, "' is neither oversubscribe nor shrink"));
  o.shrink = word == "shrink";
}

void put_nodes(LaunchOptions& o, const std::string& word) {
  const auto colon = word.find(':');
  const int least = whole_number(word.substr(0, colon), 1, INT_MAX);
  const int most = colon == std::string::npos ? least : whole_number(word.substr(colon + 1), 1, INT_MAX);
  if (least != most)
    throw ConfigError(text("a run starts with all its hosts: give N or N:N instead of ", word,
                           "; with --after_host_loss shrink it continues with fewer after a loss"));
  o.nnodes = least;
}

void put_processes(LaunchOptions& o, const std::string& word) {
  if (word == "gpu" || word == "xpu")
    throw ConfigError(text("this backend has no ", word, "; give a number, auto or cpu"));
  o.nproc_per_node = word == "auto" || word == "cpu" ? usable_core_count() : whole_number(word, 1, INT_MAX);
}

void put_simulation(LaunchOptions&, const std::string& word) {
  if (whole_number(word, -1, 3) >= 0)
    throw ConfigError(
        "simulation is not supported; `tessera check RECIPE --ranks N` shows layout and memory of N ranks");
}

void put_rendezvous(LaunchOptions&, const std::string& word) {
  if (word != "static" && word != "c10d")
    throw ConfigError(text("'", word, "' is not supported; give static or c10d, which both mean the tsrun of host 0"));
}

void put_endpoint(LaunchOptions& o, const std::string& word) {
  if (word.empty()) return;
  const auto parts = split_number(word);
  o.master_addr = parts.host;
  o.master_port = parts.has_number ? whole_number(parts.number, 0, 65535) : 29400;
  if (*o.master_port == 0) o.master_port.reset();
}

void put_rendezvous_settings(LaunchOptions& o, const std::string& word) {
  for (std::size_t begin = 0; begin < word.size();) {
    const auto end = std::min(word.find(',', begin), word.size());
    const auto setting = word.substr(begin, end - begin);
    const auto equal = std::min(setting.find('='), setting.size());
    const auto key = setting.substr(0, equal);
    if (key == "join_timeout" || key == "timeout")
      o.cluster_time_out = whole_number(setting.substr(std::min(equal + 1, setting.size())), 1, INT_MAX);
    else
      o.notes.push_back(text("--rdzv_conf ", setting, " has no effect here"));
    begin = end + 1;
  }
}

void put_bind(LaunchOptions& o, const std::string& word) {
  if (word.empty() || word[0] != '{') truth(word);
  o.bind_core = word;
}

void put_tail(LaunchOptions& o, const std::string& word) {
  for (std::size_t begin = 0; begin <= word.size() && !word.empty();) {
    const auto end = std::min(word.find(',', begin), word.size());
    whole_number(word.substr(begin, end - begin), -1, INT_MAX);
    begin = end + 1;
  }
  o.tail = word.empty() ? "-1" : word;
}

/// Values: 0 none, 1 stdout, 2 stderr, 3 both, or a list such as 0:3,1:1.
bool any_stream(const std::string& word) { return word.find_first_not_of("0:,") != std::string::npos; }

void put_redirects(LaunchOptions& o, const std::string& word) {
  if (any_stream(word)) o.tail = "";  // to files only
}
void put_tee(LaunchOptions& o, const std::string& word) {
  if (any_stream(word)) o.tail = "-1";
}

void put_shell(LaunchOptions& o, const std::string& word) {
  if (word != "bash" && word != "zsh" && word != "fish")
    throw ConfigError(text("'", word, "' is neither bash, zsh nor fish"));
  o.completion = word;
}

std::vector<OptionRow> neutral_rows() {
  const auto d = Dialect::either;
  return {
      {"--node_rank", "", d, "K", "Index of this host, from 0. -1: assigned in the order of connection.",
       number(&LaunchOptions::node_rank, -1)},
      {"--master_addr", "", d, "HOST", "Address of host 0, which coordinates the job (default: 127.0.0.1).",
       [](LaunchOptions& o, const std::string& word) { o.master_addr = without_brackets(word); }},
      {"--master_port", "", d, "PORT",
       "Port of host 0. One host: any free port; several: 8118 as in msrun, 29500 as in torchrun.",
       number(&LaunchOptions::master_port, 1, 65535)},
      {"--log_dir", "", d, "DIR", "Folder for worker_<rank>.log and scheduler.log (default: see below).",
       words(&LaunchOptions::log_dir)},
      {"--log_level", "", d, "debug|info|warning|error", "Minimum level of tsrun's messages (default: info).",
       [](LaunchOptions&, const std::string& word) { log::set_log_level(log::log_level_of(word)); }},
      {"--max_restarts", "", d, "N",
       "Start all workers again after a failure, at most N times in a row without a completed step (default: 3 if the "
       "program keeps its state in memory, as tessera train does; else 0).",
       [](LaunchOptions& o, const std::string& word) { o.max_restarts = whole_number(word, 0, INT_MAX); }},
      {"--restart_window", "", d, "SECONDS",
       "Time window in which the workers are restarted at most --max_restarts times, even if steps are completed "
       "between "
       "the "
       "failures (default: no such limit).",
       [](LaunchOptions& o, const std::string& word) { o.restart_window = whole_number(word, 1, INT_MAX); }},
      {"--lease", "", d, "SECONDS",
       "If tsrun is killed, time for which workers that keep their state in memory continue to train; then they save "
       "and end (default: 15).",
       number(&LaunchOptions::lease, 0, 86400)},
      {"--host_time_out", "", d, "SECONDS",
       "Several hosts: time without a message after which the leader takes a host for lost (default: 8).",
       number(&LaunchOptions::host_time_out, 4, 86400)},
      {"--host_lease", "", d, "SECONDS",
       "Several hosts: a host that has received nothing from the leader for so long ends its workers; at least 2 s "
       "less "
       "than --host_time_out (default: 6).",
       number(&LaunchOptions::host_lease, 2, 86400)},
      {"--leader_time_out", "", d, "SECONDS",
       "Time without a message from the leader after which the supervisor of a worker kills it; more than --host_lease "
       "(default: 15).",
       number(&LaunchOptions::leader_time_out, 3, 86400)},
      {"--stop_time_out", "", d, "SECONDS",
       "After a signal: time from the end of the first worker to that of the last, which is then killed (default: 30).",
       number(&LaunchOptions::stop_time_out, 1, 86400)},
      {"--left", "", d, "save|finish",
       "Start the workers only to save the state that a killed job with the same command left in memory, or to "
       "complete "
       "its interrupted iteration; `tessera state` does it.",
       [](LaunchOptions& o, const std::string& word) {
         if (word != "save" && word != "finish") throw ConfigError(text("'", word, "' is neither save nor finish"));
         o.left = word;
       }},
      {"--hosts", "", d, "A:8,B:8", "Start these hosts from here, each with this number of workers.",
       words(&LaunchOptions::hosts)},
      {"--hostfile", "", d, "FILE",
       "The same from a file: a line 'A slots=8', 'A:8' or 'A 8' for each host; a host may have several lines.",
       words(&LaunchOptions::host_file)},
      {"--spares", "", d, "C:8,D:8",
       "With --hosts: also start tsrun on these hosts, without workers. They get the workers of hosts that are lost.",
       words(&LaunchOptions::spares)},
      {"--spare", "", d, "", "Same command on each host: this host gets workers only when another one is lost.",
       [](LaunchOptions& o, const std::string&) { o.spare = true; }},
      {"--after_host_loss", "", d, "oversubscribe|shrink",
       "Without a spare host: the other hosts run the workers of a lost one, too (default), or the job continues with "
       "fewer workers and the same global batch until a host comes back.",
       put_after_loss},
      {"--agent", "", d, "COMMAND", "How --hosts starts a command: COMMAND HOST WORDS (default: ssh).",
       words(&LaunchOptions::agent)},
      {"--secret_file", "", d, "FILE",
       "File with the job's shared secret, readable by its owner only (default: TSRUN_SECRET).",
       words(&LaunchOptions::secret_file)},
      {"--require_secret", "", d, "", "Several hosts: refuse to start without a secret.",
       [](LaunchOptions& o, const std::string&) { o.require_secret = true; }},
      {"--completion", "", d, "bash|zsh|fish", "Print a script that completes tsrun's options in a shell, and exit.",
       put_shell},
      {"--man", "", d, "", "Print the manual page and exit: tsrun --man | man -l -",
       [](LaunchOptions& o, const std::string&) { o.manual = true; }},
      {"--help", "-h", d, "", "Print this help and exit.", [](LaunchOptions& o, const std::string&) { o.help = true; }},
      {"--version", "", d, "", "Print the version and exit.",
       [](LaunchOptions& o, const std::string&) { o.version = true; }},
  };
}

std::vector<OptionRow> msrun_rows() {
  const auto d = Dialect::msrun;
  return {
      {"--worker_num", "", d, "N", "Number of workers of the job (default: 8).", number(&LaunchOptions::worker_num, 1)},
      {"--local_worker_num", "", d, "N", "Number of workers on this host (default: 8, at most worker_num).",
       number(&LaunchOptions::local_worker_num, 1)},
      {"--join", "", d, "True|False",
       "False: return at once, the workers continue. Default True, unlike msrun: wait for the workers.",
       [](LaunchOptions& o, const std::string& word) { o.join = truth(word); }},
      {"--cluster_time_out", "", d, "SECONDS", "Timeout until all workers have started (default: 600); negative: none.",
       number(&LaunchOptions::cluster_time_out, INT_MIN)},
      {"--bind_core", "", d, "True|JSON",
       "True: each worker gets an equal share of the cores. {\"device0\": [\"0-3\"], ...}: these cores.", put_bind},
      {"--worker_log_name", "", d, "NAME",
       "Logs are NAME_<rank>.log (default: worker); {ip} and {hostname} are replaced.",
       words(&LaunchOptions::worker_log_name)},
      {"--tail_worker_log", "", d, "IDS",
       "Which local workers' logs are echoed here: 0,3 or -1 for all (default), ids that do not exist for none.",
       put_tail},
      {"--sim_level", "", d, "N", "Only -1 (off): simulation is not supported.", put_simulation},
      {"--sim_rank_id", "", d, "N", "Read and ignored.", ignored("--sim_rank_id", "simulation is not supported")},
      {"--rank_table_file", "", d, "FILE", "Passed to the workers as RANK_TABLE_FILE; MPI needs none.",
       words(&LaunchOptions::rank_table_file)},
  };
}

std::vector<OptionRow> torchrun_rows() {
  const auto d = Dialect::torchrun;
  const auto only_programs = "python modules and paths are not run here; name a program, or a .py file";
  return {
      {"--nproc_per_node", "", d, "N|auto|cpu",
       "Number of workers on each host (default: 1); auto and cpu: one per usable core (CPU quota included).",
       put_processes},
      {"--nnodes", "", d, "N", "Number of hosts (default: 1). N:N is accepted, MIN:MAX is refused.", put_nodes},
      {"--standalone", "", d, "", "One host, any free port.",
       [](LaunchOptions& o, const std::string&) {
         o.nnodes = 1;
         o.master_port.reset();
       }},
      {"--rdzv_backend", "", d, "static|c10d", "Both mean that host 0 coordinates the job; etcd is refused.",
       put_rendezvous},
      {"--rdzv_endpoint", "", d, "HOST:PORT", "The same as --master_addr and --master_port (29400 when missing).",
       put_endpoint},
      {"--rdzv_id", "", d, "ID", "Given to the workers as TORCHELASTIC_RUN_ID.", words(&LaunchOptions::run_id)},
      {"--rdzv_conf", "", d, "K=V,...", "join_timeout is --cluster_time_out; others are ignored.",
       put_rendezvous_settings},
      {"--redirects", "-r", d, "N", "Other than 0: logs are not echoed here. They are always written.", put_redirects},
      {"--tee", "-t", d, "N", "Other than 0: logs are echoed here also with --redirects.", put_tee},
      {"--local_ranks_filter", "", d, "IDS", "Which local workers' logs are echoed here.", put_tail},
      {"--role", "", d, "NAME", "Given to the workers as ROLE_NAME.", words(&LaunchOptions::role)},
      {"--no_python", "", d, "", "As always here: PROGRAM is run as it is (a .py file by python3).",
       [](LaunchOptions&, const std::string&) {}},
      {"--module", "-m", d, "", "Refused.", refused(only_programs)},
      {"--run_path", "", d, "", "Refused.", refused(only_programs)},
      {"--monitor_interval", "", d, "SECONDS", "Ignored.",
       ignored("--monitor_interval", "the end of a worker is seen at once")},
      {"--start_method", "", d, "NAME", "Ignored.", ignored("--start_method", "every worker is a program of its own")},
      {"--local_addr", "", d, "ADDRESS", "Ignored.", ignored("--local_addr", "it is that of the route to the leader")},
      {"--signals_to_handle", "", d, "NAMES", "Ignored.",
       ignored("--signals_to_handle", "every signal that asks to stop is passed on to the workers")},
      {"--numa_binding", "", d, "KIND", "Ignored.", ignored("--numa_binding", "use --bind_core True")},
      {"--logs_specs", "", d, "NAME", "Ignored.", ignored("--logs_specs", "there is one kind of logs")},
      {"--event_log_handler", "", d, "NAME", "Ignored.", ignored("--event_log_handler", "there are no such events")},
  };
}

}  // namespace

std::vector<OptionRow> ttp_table() {
  const auto d = Dialect::either;
  return {{"ENABLE_TTP", "", d, "0|1",
           "0 or false: programs keep no state in memory; restarts continue from checkpoints (default: 1).",
           [](LaunchOptions& o, const std::string& word) { o.keep_state = truth_of_variable(word); }},
          {"TTP_OT", "", d, "SECONDS",
           "How long saving the state in memory may take when nothing continues with it (default: no limit).",
           [](LaunchOptions& o, const std::string& word) { o.save_time_out = whole_number(word, 1, INT_MAX); }}};
}

std::vector<OptionRow> option_table() {
  auto all = msrun_rows();
  for (auto rows : {torchrun_rows(), neutral_rows()}) std::move(rows.begin(), rows.end(), std::back_inserter(all));
  return all;
}

}  // namespace tessera::tsrun
