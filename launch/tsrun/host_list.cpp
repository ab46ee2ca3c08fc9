#include "launch/tsrun/host_list.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace tessera::tsrun {
namespace {

ListedHost read_host(const std::string& words, int each, const std::string& origin) {
  const auto colon = words.find(':');
  ListedHost host = {words.substr(0, colon), each};
  if (colon != std::string::npos) {
    const auto number = words.substr(colon + 1);
    const bool digits =
        !number.empty() && number.size() < 7 && number.find_first_not_of("0123456789") == std::string::npos;
    host.workers = digits ? std::stoi(number) : 0;
    if (host.workers == 0) throw ConfigError(text(origin, ": '", words, "' is not HOST:WORKERS"));
  }
  if (host.name.empty()) throw ConfigError(text(origin, ": '", words, "' names no host"));
  if (host.workers == 0)
    throw ConfigError(text(origin, ": the number of workers of ", host.name, " is missing; write ", host.name,
                           ":N or give --local_worker_num"));
  return host;
}

std::vector<ListedHost> from_list(const std::string& list, int each, const std::string& origin) {
  std::vector<ListedHost> hosts;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) hosts.push_back(read_host(word, each, origin));
  return hosts;
}

std::vector<ListedHost> from_file(const std::string& path, int each) {
  std::ifstream file(path);
  if (!file) throw ConfigError(text("--hostfile: ", path, " cannot be read"));
  std::vector<ListedHost> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    const auto origin = text(path, ":", ++number);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots;
    if (!(words >> name)) continue;
    if (words >> slots) {
      if (slots.rfind("slots=", 0) != 0) throw ConfigError(text(origin, ": '", slots, "' is not slots=N"));
      name = text(name, ":", slots.substr(6));
    }
    hosts.push_back(read_host(name, each, origin));
  }
  if (hosts.empty()) throw ConfigError(text("--hostfile: ", path, " names no host"));
  return hosts;
}

void refuse_duplicates(const std::vector<ListedHost>& hosts) {
  for (const auto& host : hosts) {
    const auto same = [&](const ListedHost& other) { return other.name == host.name; };
    if (std::count_if(hosts.begin(), hosts.end(), same) > 1)
      throw ConfigError(text("host ", host.name, " is listed twice"));
  }
}

}  // namespace

std::vector<ListedHost> listed_hosts(const LaunchOptions& options, int each, int total) {
  if (options.hosts.empty() && options.host_file.empty()) return {};
  const auto hosts =
      options.hosts.empty() ? from_file(options.host_file, each) : from_list(options.hosts, each, "--hosts");
  int sum = 0;
  for (const auto& host : hosts) sum += host.workers;
  refuse_duplicates(hosts);
  if (total != 0 && sum != total)
    throw ConfigError(text("the listed hosts have ", sum, " workers together; the job has ", total));
  return hosts;
}

std::vector<ListedHost> listed_spares(const LaunchOptions& options, int each, const std::vector<ListedHost>& hosts) {
  if (options.spares.empty()) return {};
  const auto spares = from_list(options.spares, each, "--spares");
  auto all = hosts;
  all.insert(all.end(), spares.begin(), spares.end());
  refuse_duplicates(all);
  return spares;
}

}  // namespace tessera::tsrun
