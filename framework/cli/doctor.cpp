#include "framework/cli/doctor.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include "framework/base/cpu_limit.h"
#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/base/memory_limit.h"
#include "framework/cli/layout_report.h"
#include "framework/comm/world.h"
#include "framework/kernels/cpu.h"
#include "framework/kernels/gemm_blas.h"
#include "framework/kernels/machine_limits.h"
#include "framework/kernels/threads.h"
#include "framework/options/limits.h"

namespace tessera::cli {
namespace {

struct DoctorArguments {
  int threads = 0;
  bool json = false;
};

/// The chosen one of "always [madvise] never"; empty if the file cannot be read.
std::string huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string words;
  std::getline(file, words);
  const auto open = words.find('['), close = words.find(']');
  return open == std::string::npos || close == std::string::npos ? "" : words.substr(open + 1, close - open - 1);
}

/// Bytes of the file system that MPI's shared memory is in.
std::int64_t shared_memory() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) return 0;
  return static_cast<std::int64_t>(info.f_blocks) * static_cast<std::int64_t>(info.f_frsize);
}

double load() {
  double average = 0;
  return getloadavg(&average, 1) == 1 ? std::round(10 * average) / 10 : 0;
}

std::string cores_text(double cores) { return text(cores, cores == 1 ? " core" : " cores"); }

Json describe_machine(int threads) {
  Json out;
  out["processor"] = kernels::processor_name();
  for (const auto isa : kernels::available_isas()) out["instruction_sets"].push_back(kernels::name_of(isa));
  out["instruction_set"] = kernels::name_of(kernels::chosen_isa());
  const char* forced = std::getenv("TESSERA_CPU");
  out["chosen_by"] = forced != nullptr && *forced != '\0' ? "TESSERA_CPU" : "fastest available";
  out["cores"] = std::thread::hardware_concurrency();
  out["allowed_cores"] = allowed_cores();
  const auto quota = cpu_quota();
  out["cpu_quota"] = quota ? Json(quota->cores) : Json();
  out["cpu_quota_source"] = quota ? quota->source : "";
  out["usable_cores"] = usable_core_count();
  out["threads"] = threads;
  out["load"] = load();
  const auto memory = process_memory_limit();
  out["memory_bytes"] = memory.bytes;
  out["memory_limit"] = memory.source;
  out["huge_pages"] = huge_pages();
  out["dev_shm_bytes"] = shared_memory();
  out["blas"] = kernels::describe_blas();
  out["mpi"] = comm::describe_mpi();
  return out;
}

Json measure_machine(int count) {
  kernels::Threads threads(count);
  const auto memory = kernels::memory_rates(threads);
  Json out;
  out["fp32_multiply_adds"] = kernels::multiply_add_rate(threads);
  for (const auto type : {DType::float32, DType::bfloat16, DType::float16})
    out["matrix_product"][std::string(name_of(type))] = kernels::product_rate(threads, type, 0.3);
  out["memory_read"] = memory.read;
  out["memory_triad"] = memory.triad;
  out["memory_update"] = memory.update;
  return out;
}

/// What slows training down on this machine, one sentence each.
std::vector<std::string> advice(const Json& machine, const Json& rates) {
  std::vector<std::string> all;
  const auto tell = [&](auto... words) { all.push_back(text(words...)); };
  const auto cores = machine["usable_cores"].get<int>(), threads = machine["threads"].get<int>();
  const auto& pages = machine["huge_pages"].string();
  if (machine["load"].get<double>() > 0.25 * cores)
    tell("other programs keep ", machine["load"].get<double>(),
         " cores busy: the rates above, and training, are slower than alone");
  if (threads > cores)
    tell(threads, " threads share ", cores, " cores, and wait for each other; use at most ", cores, " in all ranks");
  if (!machine["cpu_quota"].is_null())
    tell("processor time is limited to ", cores_text(machine["cpu_quota"].number()), " by ",
         machine["cpu_quota_source"].string(), ": by default, ", cores, cores == 1 ? " thread is" : " threads are",
         " used in all ranks");
  if (const auto allowed = machine["allowed_cores"].get<int>(); allowed < machine["cores"].get<int>())
    tell("this process may run on ", allowed, " of ", machine["cores"].get<int>(), " cores (affinity)");
  if (pages == "never")
    tell("transparent huge pages are off, which slows large models by 1 to 10 %; as root: ",
         "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  const auto& products = rates["matrix_product"];
  const auto fp32 = products["float32"].number(), bf16 = products["bfloat16"].number();
  if (bf16 > 1.2 * fp32)
    tell("matrix products of bf16 are ", std::round(10 * bf16 / fp32) / 10,
         " times as fast as of fp32: set training_config.bf16");
  else
    tell("bf16 and fp16 save memory here, not time: their matrix products are not faster than those of fp32");
  constexpr std::int64_t enough = std::int64_t{256} << 20;
  if (machine["dev_shm_bytes"].get<std::int64_t>() < enough)
    tell("/dev/shm has ", in_binary_units(machine["dev_shm_bytes"].number()),
         ", which Open MPI may exceed with several ranks; in a container: ", "--shm-size=1g");
  return all;
}

std::string giga(double rate, const char* unit) {
  std::ostringstream out;
  out.precision(1);
  out << std::fixed << rate / 1e9 << " " << unit;
  return out.str();
}

void print(const Json& machine, const Json& rates, const std::vector<std::string>& notes) {
  std::string sets;
  for (const auto& set : machine["instruction_sets"]) sets += (sets.empty() ? "" : ", ") + set.string();
  const auto word = [&](const char* key) { return machine[key].string(); };
  print_line("processor", word("processor"));
  print_line("instruction sets", sets);
  print_line("used", text(word("instruction_set"), " (", word("chosen_by"), ")"));
  print_line("cores", text(machine["allowed_cores"].get<int>(), " of ", machine["cores"].get<int>(), "; load ",
                           machine["load"].get<double>()));
  print_line("CPU quota", machine["cpu_quota"].is_null()
                              ? "none"
                              : text(cores_text(machine["cpu_quota"].number()), " (", word("cpu_quota_source"), ")"));
  print_line("threads of the rates below", text(machine["threads"].get<int>()));
  print_line("memory", text(in_binary_units(machine["memory_bytes"].get<double>()), " (", word("memory_limit"), ")"));
  print_line("transparent huge pages", word("huge_pages").empty() ? "unknown" : word("huge_pages"));
  print_line("/dev/shm", in_binary_units(machine["dev_shm_bytes"].get<double>()));
  print_line("BLAS", word("blas"));
  print_line("MPI", word("mpi"));
  const auto peak = rates["fp32_multiply_adds"].number();
  print_line("fp32 multiply-adds", giga(peak, "GFLOP/s"));
  for (const auto& [type, rate] : rates["matrix_product"].items())
    print_line("matrix product of " + type, text(giga(rate.number(), "GFLOP/s"), ", ",
                                                 std::round(100 * rate.number() / peak), " % of fp32 multiply-adds"));
  print_line("memory, read", giga(rates["memory_read"].number(), "GB/s"));
  print_line("memory, a = b + s c", giga(rates["memory_triad"].number(), "GB/s"));
  print_line("memory, update in place", giga(rates["memory_update"].number(), "GB/s"));
  for (const auto& note : notes) std::cout << "note: " << note << "\n";
}

void doctor(const DoctorArguments& arguments) {
  const int threads = arguments.threads > 0 ? arguments.threads : usable_core_count();
  const Json machine = describe_machine(threads), rates = measure_machine(threads);
  const auto notes = advice(machine, rates);
  if (!arguments.json) return print(machine, rates, notes);
  std::cout << Json{{"machine", machine}, {"per_second", rates}, {"notes", notes}}.dump(2) << "\n";
}

}  // namespace

void add_doctor_commands(Command& app, CommandContext&) {
  auto* command =
      app.add_subcommand("doctor", "Measure what this machine offers for training, and report what slows it down");
  const auto arguments = std::make_shared<DoctorArguments>();
  command
      ->add_option("--threads", arguments->threads,
                   "Number of threads to measure with; default: the cores that this process may use")
      ->type_name("N")
      ->between(std::int64_t{1}, options::most_threads);
  command->add_flag("--json", arguments->json, "Write one JSON object; rates are per second");
  command->callback([arguments] { doctor(*arguments); });
}

}  // namespace tessera::cli
