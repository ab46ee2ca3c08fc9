#include "launch/tsrun/agents.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "framework/base/escaped_text.h"
#include "launch/tsrun/messages.h"

namespace tessera::tsrun {
namespace {

constexpr double seconds_between_calls = 10;

}  // namespace

/// Returns the line that the tsrun on `host` reads from standard input.
std::string Agents::orders(const ListedHost& host, int node_rank, bool spare) const {
  Environment given;
  for (const auto& [name, value] : this_environment())
    if (name == "PATH" || name == "LD_LIBRARY_PATH" || name.rfind("TESSERA_", 0) == 0) given.emplace(name, value);
  return encode(OrdersMessage{job_.secret, words_, host.name, node_rank, host.workers, spare, given}) + "\n";
}

pid_t Agents::start(const ListedHost& host, int node_rank, bool spare) {
  const auto input = orders(host, node_rank, spare);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("pipe2 failed");
  const Descriptor reading(ends[0]), writing(ends[1]);
  Spawn agent;
  for (std::size_t begin = 0; begin < job_.options.agent.size();) {
    const auto end = std::min(job_.options.agent.find(' ', begin), job_.options.agent.size());
    if (end > begin) agent.words.push_back(job_.options.agent.substr(begin, end - begin));
    begin = end + 1;
  }
  agent.environment = this_environment();
  agent.words.at(0) = find_program(agent.words.at(0), agent.environment);
  agent.words.push_back(host.name);
  agent.words.push_back(text("cd ", in_shell_quotes(std::filesystem::current_path()), " && exec ",
                             in_shell_quotes(own_path()), " --as-host ", words_of(job_.leader)));
  agent.input = reading.number();
  const auto pid = spawn(agent);
  sockets_.agents.insert(pid);
  // A pipe holds 64 KiB; the command line and a few variables are smaller.
  if (write(writing.number(), input.data(), input.size()) != static_cast<ssize_t>(input.size()))
    throw Error(text("the agent for ", host.name, " takes no input"));
  return pid;
}

void Agents::lost(const ListedHost& host) {
  std::erase_if(away_, [&](const Away& away) { return away.host.name == host.name; });
  away_.push_back({host});
  call_at_ = now() + seconds_between_calls;
}

void Agents::call_lost() {
  if (now() < call_at_) return;
  call_at_ = now() + seconds_between_calls;
  for (auto& [host, agent] : away_) {
    const auto& spares = sockets_.spares.all();
    const bool came = std::any_of(spares.begin(), spares.end(),
                                  [&name = host.name](const auto& spare) { return spare.info.called == name; });
    if (came || (agent > 0 && kill(agent, 0) == 0)) continue;
    try {
      reporter_.note(text("trying to start tsrun on the lost host ", host.name, " again"));
      agent = start(host, 0, true);
    } catch (const std::exception& error) {
      reporter_.note(text("the lost host ", host.name, ": ", error.what()));
    }
  }
}

}  // namespace tessera::tsrun
