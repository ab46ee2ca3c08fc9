#include "launch/tsrun/options.h"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <set>

#include "framework/base/help_text.h"
#include "framework/base/home.h"
#include "framework/options/report.h"
#include "launch/tsrun/option_table.h"

namespace tessera::tsrun {
namespace {

constexpr int host_lease_margin = 2;  // seconds: one heartbeat, and time to end the workers

/// "--nproc-per-node" becomes "--nproc_per_node": '-' and '_' inside a name are equivalent; upper case is not changed.
std::string plain(std::string name) {
  if (name.rfind("--", 0) == 0) std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

/// Options that print a text have no variable.
bool of_the_command_line(const std::string& name) {
  return name == "--help" || name == "--version" || name == "--man" || name == "--completion";
}

class OptionsReader {
 public:
  explicit OptionsReader(const std::map<std::string, std::string>& environment) : environment_(environment) {}

  LaunchOptions read(const std::vector<std::string>& words) {
    std::size_t next = 0;
    while (next < words.size() && words[next].size() > 1 && words[next][0] == '-' && words[next] != "--")
      next = read_one(words, next);
    if (next < words.size() && words[next] == "--") next++;
    options_.program.assign(words.begin() + static_cast<std::ptrdiff_t>(next), words.end());
    if (asks_for_text()) return options_;
    settle_dialect();
    read_environment();
    read_ttp();
    if (options_.program.empty()) complain("PROGRAM is missing; give the program to start");
    if (wrong_.empty()) check_sizes();
    if (wrong_.empty()) check_time_outs();
    if (!wrong_.empty()) throw ConfigError(joined());
    return options_;
  }

 private:
  /// Nothing is started: the options print a text. Mistakes in other options do not matter then, those in these do.
  bool asks_for_text() {
    const bool asks = options_.help || options_.version || options_.manual || given_.count("--completion") != 0;
    if (asks && options_.completion.empty() && given_.count("--completion") != 0) throw ConfigError(joined());
    return asks;
  }

  void complain(const std::string& what) { wrong_.push_back("tsrun: " + what); }

  std::string joined() const {
    std::string all;
    for (const auto& line : wrong_) all += line + "\n";
    return all + "`tsrun --help` lists the options.";
  }

  const OptionRow* find(const std::string& word) const {
    const auto name = plain(word);
    const auto row = std::find_if(table_.begin(), table_.end(), [&](const OptionRow& r) {
      return r.name == name || (word == r.brief && !word.empty());
    });
    return row == table_.end() ? nullptr : &*row;
  }

  void put(const OptionRow& row, const std::string& value, const std::string& origin) {
    try {
      row.put(options_, row.value == "FILE" || row.value == "DIR" ? with_home(value) : value);
    } catch (const ConfigError& error) {
      complain(origin + ": " + error.what());
    }
  }

  /// Reads words[at] and its value; returns the index of the next option.
  std::size_t read_one(const std::vector<std::string>& words, std::size_t at) {
    const auto& word = words[at];
    auto equal = word.find('=');
    auto name = word.substr(0, equal);
    const bool glued = word[1] != '-' && equal == std::string::npos && word.size() > 2;  // -r3
    if (glued) name = word.substr(0, 2), equal = 1;
    const auto* row = find(name);
    if (row == nullptr) {
      std::vector<std::string> known;
      for (const auto& each : table_) known.push_back(each.name);
      const auto hint = options::did_you_mean(plain(name), known);
      complain(text("there is no option '", name, "'", hint.empty() ? "" : "; ", hint));
      const bool value_follows = equal == std::string::npos && at + 2 < words.size() && words[at + 1][0] != '-';
      return at + (value_follows && !hint.empty() ? 2 : 1);
    }
    given_.insert(row->name);
    const bool here = equal != std::string::npos;
    if (row->value.empty()) {
      if (here) complain(text(name, " takes no value"));
      put(*row, "", name);
      return at + 1;
    }
    if (!here && at + 1 >= words.size()) {
      complain(text(name, " needs a value: ", row->value));
      return at + 1;
    }
    put(*row, here ? word.substr(equal + 1) : words[at + 1], name);
    return at + (here ? 1 : 2);
  }

  /// Options of one launcher decide the dialect; options of both are an error.
  void settle_dialect() {
    std::map<Dialect, std::vector<std::string>> exclusive;
    for (const auto& row : table_)
      if (row.dialect != Dialect::either && given_.count(row.name) != 0) exclusive[row.dialect].push_back(row.name);
    if (exclusive.size() > 1)
      complain(text(exclusive[Dialect::msrun][0], " is msrun's and ", exclusive[Dialect::torchrun][0],
                    " is torchrun's; use the options of one of them"));
    if (!exclusive.empty()) options_.dialect = exclusive.begin()->first;
  }

  void read_environment() {
    if (options_.dialect == Dialect::msrun) return;
    for (const auto& row : table_) {
      if (row.dialect == Dialect::msrun || of_the_command_line(row.name)) continue;
      auto name = "PET_" + row.name.substr(2);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
      const auto variable = environment_.find(name);
      if (variable == environment_.end() || given_.count(row.name) != 0) continue;
      if (row.value.empty() && (variable->second == "0" || variable->second.empty())) continue;
      if (row.dialect == Dialect::torchrun) options_.dialect = Dialect::torchrun;
      put(row, variable->second, name);
    }
  }

  void read_ttp() {
    for (const auto& row : ttp_table())
      if (const auto variable = environment_.find(row.name);
          variable != environment_.end() && !variable->second.empty())
        put(row, variable->second, row.name);
  }

  void check_sizes() {
    if (!options_.hosts.empty() && !options_.host_file.empty())
      complain("--hosts and --hostfile are mutually exclusive; give one of them");
    const bool listed = !options_.hosts.empty() || !options_.host_file.empty();
    if (!options_.spares.empty() && !listed)
      complain(
          "--spares needs --hosts or --hostfile; if the same command is started on each host, start it with --spare "
          "on a spare host");
    if (options_.spare && listed)
      complain("--spare is for the same command on each host; with --hosts list the spare hosts in --spares");
    try {
      if (sizes_of(options_).one_host && options_.spare)
        complain("--spare: all workers are on one host, whose loss ends the job; give fewer --local_worker_num");
    } catch (const ConfigError& error) {
      complain(error.what());
    }
  }

  /// A host that is cut off must have ended its workers before the leader starts their ranks on other hosts.
  void check_time_outs() {
    const auto& o = options_;
    if (o.host_lease + host_lease_margin > o.host_time_out)
      complain(text("--host_lease ", o.host_lease, " is too long for --host_time_out ", o.host_time_out,
                    ": a host that is cut off has to end its workers before others start in their place; give a "
                    "--host_lease of at most ",
                    o.host_time_out - host_lease_margin, " s, or a --host_time_out of at least ",
                    o.host_lease + host_lease_margin, " s"));
    if (o.leader_time_out <= o.host_lease)
      complain(text("--leader_time_out ", o.leader_time_out, " is not longer than --host_lease ", o.host_lease,
                    ": workers would end before the lease of their host does; give a --leader_time_out of at least ",
                    o.host_lease + 1, " s"));
  }

  const std::map<std::string, std::string>& environment_;
  const std::vector<OptionRow> table_ = option_table();
  LaunchOptions options_;
  std::set<std::string> given_;
  std::vector<std::string> wrong_;
};

void print_rows(std::ostream& out, const std::vector<OptionRow>& rows, Dialect dialect) {
  for (const auto& row : rows) {
    if (row.dialect != dialect) continue;
    const auto brief = row.brief.empty() ? "" : row.brief + ", ";
    out << help_entry("  " + brief + row.name + (row.value.empty() ? "" : " " + row.value), row.meaning);
  }
}

}  // namespace

LaunchOptions read_options(const std::vector<std::string>& words,
                           const std::map<std::string, std::string>& environment) {
  return OptionsReader(environment).read(words);
}

Sizes sizes_of(const LaunchOptions& o) {
  const bool listed = !o.hosts.empty() || !o.host_file.empty();
  if (o.dialect == Dialect::torchrun) {
    const int local = o.nproc_per_node.value_or(1), nodes = o.nnodes.value_or(1);
    return {local * nodes, local, nodes == 1 && !listed};
  }
  if (!o.worker_num && !o.local_worker_num) {
    if (listed) return {0, 0, false};
    throw ConfigError("the number of workers is missing; give --worker_num N (msrun) or --nproc_per_node N (torchrun)");
  }
  const int total = o.worker_num.value_or(std::max(8, o.local_worker_num.value_or(8)));
  const int local = o.local_worker_num.value_or(std::min(8, total));
  if (local > total) throw ConfigError(text("--local_worker_num ", local, " is more than --worker_num ", total));
  return {total, local, local == total && !listed};
}

void print_help(std::ostream& out) {
  out << "tsrun [OPTIONS] PROGRAM ARGUMENTS: starts PROGRAM once for each worker, as one\n"
         "MPI job, and monitors the workers.\n\n"
         "  tsrun --worker_num 8 --local_worker_num 8 tessera train recipe.yaml  (msrun)\n"
         "  tsrun --nnodes 2 --nproc_per_node 4 --node_rank 0 --master_addr a  (torchrun)\n\n"
         "Write --name value or --name=value, with - or _ inside names. Options of msrun\n"
         "and of torchrun do not mix.\n"
         "\nFor both:\n";
  print_rows(out, option_table(), Dialect::either);
  out << "\nmsrun's:\n";
  print_rows(out, option_table(), Dialect::msrun);
  out << "\ntorchrun's (each may also come from PET_<NAME>):\n";
  print_rows(out, option_table(), Dialect::torchrun);
  out << "\nEnvironment variables of MindIO TTP:\n";
  print_rows(out, ttp_table(), Dialect::either);
  for (const auto* words :
       {"Two departures from msrun: --join is True unless you say False, and logs go to the run folder's log/ when "
        "PROGRAM is `tessera train` (else to ./log). Logs grow over restarts; nothing is overwritten.",
        "Several hosts: the same line on each, differing only in --node_rank; or --hosts from one of them.",
        "Exit codes: 0 all workers are done; 2 wrong arguments or recipe, nothing was started; else the code of the "
        "worker that failed first (128 + its signal). A program that keeps its state in memory: 20 the restarts are "
        "used up, 21 a step failed alike twice, 22 its state could not be saved. See docs/resilience.md."})
    out << "\n" << wrapped(words, 0) << "\n";
}

}  // namespace tessera::tsrun
