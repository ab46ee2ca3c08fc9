#include "launch/tsrun/worker_environment.h"

#include <algorithm>
#include <array>

namespace tessera::tsrun {
namespace {

bool begins_with_one_of(const std::string& name, std::initializer_list<const char*> heads) {
  return std::any_of(heads.begin(), heads.end(), [&](const char* head) { return name.rfind(head, 0) == 0; });
}

/// Whether a variable says which process of which MPI job this is. Settings (OMPI_MCA_...) do not.
bool of_a_job(const std::string& name) {
  return begins_with_one_of(name, {"OMPI_", "PMIX_", "PMI_", "PMI2_", "ORTE_", "OPAL_"});
}

}  // namespace

Environment dialect_variables(const WorkerPlace& p) {
  const auto rank = std::to_string(p.rank), workers = std::to_string(p.workers), local = std::to_string(p.local_rank),
             locals = std::to_string(p.local_workers), port = std::to_string(p.master_port),
             wait = std::to_string(p.cluster_time_out);
  Environment all = {
      {"MS_ROLE", "MS_WORKER"},
      {"MS_SCHED_HOST", p.master_addr},
      {"MS_SCHED_PORT", port},
      {"MS_WORKER_NUM", workers},
      {"MS_NODE_ID", rank},
      {"MS_TOPO_TIMEOUT", wait},
      {"MS_CLUSTER_TIMEOUT", wait},
      {"RANK_ID", rank},
      {"RANK_SIZE", workers},
      {"DEVICE_ID", local},
      {"RANK", rank},
      {"LOCAL_RANK", local},
      {"GROUP_RANK", std::to_string(p.node)},
      {"ROLE_RANK", rank},
      {"ROLE_NAME", p.role},
      {"WORLD_SIZE", workers},
      {"LOCAL_WORLD_SIZE", locals},
      {"GROUP_WORLD_SIZE", std::to_string(p.nodes)},
      {"ROLE_WORLD_SIZE", workers},
      {"MASTER_ADDR", p.master_addr},
      {"MASTER_PORT", port},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(p.restart)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(p.max_restarts)},
      {"TORCHELASTIC_RUN_ID", p.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
  };
  if (!p.rank_table_file.empty()) all["RANK_TABLE_FILE"] = p.rank_table_file;
  return all;
}

Environment without_other_jobs(const Environment& from) {
  Environment kept;
  // A process of an MPI job finds that job's settings in its environment; they cannot be told from the user's.
  const bool within_one = from.count("OMPI_COMM_WORLD_RANK") != 0;
  for (const auto& [name, value] : from) {
    const bool setting = begins_with_one_of(name, {"OMPI_MCA_"});
    if (setting ? within_one : of_a_job(name) || begins_with_one_of(name, {"TSRUN_", "TESSERA_LAUNCH_"})) continue;
    kept.emplace(name, value);
  }
  // hwloc, which MPI uses to examine the machine, looks for X displays, the first at port 6000. If another program
  // listens there (a --master_port 6000), every MPI program of the machine would wait for ever. It also reads the
  // registers of all PCI devices, in each process; in a virtual machine each read is a call of the hypervisor, and all
  // of them took a third of the system time of a start. tsrun's MPI chooses its networks by address, not by device.
  kept.emplace("HWLOC_COMPONENTS", "-gl,-pci,-linux:pci");
  return kept;
}

Environment free_of_launchers(const Environment& from) {
  auto kept = without_other_jobs(from);
  for (auto variable = kept.begin(); variable != kept.end();)
    variable = variable->first.rfind("SLURM_", 0) == 0 ? kept.erase(variable) : std::next(variable);
  return kept;
}

Environment worker_environment(const WorkerPlace& place, const Environment& host, const Environment& mpi, int cores) {
  auto all = dialect_variables(place);
  for (const auto& [name, value] : mpi)
    if (of_a_job(name)) all[name] = value;
  for (const auto& variable : without_other_jobs(host)) all.insert(variable);
  all["TESSERA_LAUNCH_HOST"] = std::to_string(place.machine);
  if (place.full_workers > place.workers) all["TESSERA_LAUNCH_FULL_WORLD"] = std::to_string(place.full_workers);
  all["TESSERA_LAUNCH_JOB"] = text(place.job, ":", place.restart);
  const int share = place.torchrun ? 1 : std::max(1, cores / std::max(1, place.local_workers));
  if (place.local_workers > 1) all.emplace("OMP_NUM_THREADS", std::to_string(share));
  return all;
}

}  // namespace tessera::tsrun
