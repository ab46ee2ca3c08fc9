#include "launch/tsrun/host_list.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <sstream>

#include "launch/tsrun/address.h"

namespace tessera::tsrun {
namespace {

constexpr const char* forms = "write HOST:N, HOST slots=N or HOST N";

/// A host as it is written; 0 workers: without a number.
struct Entry {
  ListedHost host;
  std::string origin;
};

/// Names go on the command line of the agent, so they must not look like an option.
void check_name(const std::string& name, const std::string& words, const std::string& origin) {
  const auto host = ListedHost{name}.host();
  if (host.empty()) throw ConfigError(text(origin, ": '", words, "' names no host"));
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || std::strchr("._-%@", c) != nullptr; };
  if (name[0] == '-' || (!is_ipv6(host) && !std::all_of(name.begin(), name.end(), allowed)))
    throw ConfigError(text(origin, ": '", name, "' is not the name or address of a host"));
}

/// 0: `digits` is not a number of workers.
int workers_in(const std::string& digits) {
  const bool good = !digits.empty() && digits.size() < 7 && digits.find_first_not_of("0123456789") == std::string::npos;
  return good ? std::stoi(digits) : 0;
}

/// "HOST" or "HOST:N".
Entry read_host(const std::string& words, const std::string& origin) {
  HostAndNumber parts;
  try {
    parts = split_number(words);
  } catch (const ConfigError& error) {
    throw ConfigError(text(origin, ": ", error.what()));
  }
  Entry entry = {{parts.host, workers_in(parts.number)}, origin};
  if (parts.has_number && entry.host.workers == 0)
    throw ConfigError(text(origin, ": '", words, "' is not HOST:WORKERS"));
  check_name(parts.host, words, origin);
  return entry;
}

std::vector<Entry> from_list(const std::string& list, const std::string& origin) {
  std::vector<Entry> entries;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) entries.push_back(read_host(word, origin));
  return entries;
}

/// "slots=8" and "slots = 8" are one word.
std::vector<std::string> words_of_line(std::string line) {
  line = line.substr(0, line.find('#'));
  for (auto at = line.find('='); at != std::string::npos; at = line.find('=', at + 1)) {
    while (at > 0 && std::isspace(static_cast<unsigned char>(line[at - 1])) != 0) line.erase(--at, 1);
    while (at + 1 < line.size() && std::isspace(static_cast<unsigned char>(line[at + 1])) != 0) line.erase(at + 1, 1);
  }
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// "max-slots" is "max_slots".
std::string key_of(const std::string& setting) {
  auto key = setting.substr(0, setting.find('='));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

/// "slots=8" and the like behind a host.
class Settings {
 public:
  explicit Settings(Entry& entry) : entry_(entry) {}

  void take(const std::string& setting) {
    const auto key = key_of(setting), value = setting.substr(std::min(setting.find('=') + 1, setting.size()));
    if (one_of({"slots", "cpu", "count"}, key))
      take_count(setting, value);
    else if (one_of({"max_slots", "slots_max", "cpu_max", "count_max"}, key))
      most_ = number(setting, value);
    else if (one_of({"user", "username", "user_name"}, key) && !value.empty())
      entry_.host.name = text(value, "@", entry_.host.host());
    else
      throw ConfigError(text(entry_.origin, ": '", setting, "' is not slots=N; ", forms));
  }

  void check() const {
    if (most_ != 0 && entry_.host.workers > most_)
      throw ConfigError(text(entry_.origin, ": slots=", entry_.host.workers, " is more than max_slots=", most_,
                             "; lower slots, or raise max_slots"));
  }

 private:
  static bool one_of(std::initializer_list<const char*> keys, const std::string& key) {
    return std::any_of(keys.begin(), keys.end(), [&](const char* one) { return key == one; });
  }

  int number(const std::string& setting, const std::string& value) const {
    const int count = workers_in(value);
    if (count == 0)
      throw ConfigError(text(entry_.origin, ": '", setting, "' has no number of workers; give one from 1 to 999999"));
    return count;
  }

  void take_count(const std::string& setting, const std::string& value) {
    const int count = number(setting, value);
    if (entry_.host.workers != 0 && entry_.host.workers != count)
      throw ConfigError(text(entry_.origin, ": ", entry_.host.name, " has two numbers of workers, ",
                             entry_.host.workers, " and ", count, "; give one"));
    entry_.host.workers = count;
  }

  Entry& entry_;
  int most_ = 0;
};

/// "HOST N QUEUE RANGE" of Grid Engine: true if the second word is a number.
bool take_plain_count(const std::vector<std::string>& words, Entry& entry) {
  if (words.size() < 2 || words[1].find_first_not_of("0123456789") != std::string::npos) return false;
  Settings(entry).take("slots=" + words[1]);
  return true;
}

Entry read_line(const std::vector<std::string>& words, const std::string& origin) {
  auto entry = read_host(words[0], origin);
  if (take_plain_count(words, entry)) return entry;
  Settings settings(entry);
  for (std::size_t i = 1; i < words.size(); i++) settings.take(words[i]);
  settings.check();
  check_name(entry.host.name, words[0], origin);
  return entry;
}

std::vector<Entry> from_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw ConfigError(text("--hostfile: ", path, " cannot be read: ", std::strerror(errno)));
  std::vector<Entry> entries;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    const auto origin = text(path, ":", ++number);
    if (const auto words = words_of_line(line); !words.empty()) entries.push_back(read_line(words, origin));
  }
  if (entries.empty()) throw ConfigError(text("--hostfile: ", path, " names no host"));
  return entries;
}

bool has_number(const Entry& entry) { return entry.host.workers != 0; }

/// Gives the number of workers to hosts without one.
std::vector<ListedHost> completed(const std::vector<Entry>& entries, int each) {
  std::vector<ListedHost> hosts;
  for (const auto& entry : entries) {
    hosts.push_back(entry.host);
    if (!has_number(entry)) hosts.back().workers = each;
    if (hosts.back().workers == 0)
      throw ConfigError(text(entry.origin, ": the number of workers of ", entry.host.name, " is missing; write ",
                             bracketed(entry.host.name), ":N or give --local_worker_num"));
  }
  return hosts;
}

/// One entry for each host, in the order of their first lines, with the sum of their workers.
std::vector<ListedHost> added_up(const std::vector<ListedHost>& lines) {
  std::vector<ListedHost> hosts;
  for (const auto& line : lines) {
    const auto same =
        std::find_if(hosts.begin(), hosts.end(), [&](const ListedHost& host) { return host.name == line.name; });
    if (same == hosts.end())
      hosts.push_back(line);
    else
      same->workers += line.workers;
  }
  return hosts;
}

/// A file in which each line is one worker: no line has a number, and a host has several lines.
bool lines_are_workers(const std::vector<Entry>& entries) {
  std::set<std::string> names;
  for (const auto& entry : entries) names.insert(entry.host.name);
  return names.size() < entries.size() && std::none_of(entries.begin(), entries.end(), has_number);
}

std::vector<ListedHost> hosts_of_file(const std::string& path, int each) {
  const auto entries = from_file(path);
  return added_up(completed(entries, lines_are_workers(entries) ? 1 : each));
}

void refuse_duplicates(const std::vector<ListedHost>& hosts) {
  for (const auto& host : hosts) {
    const auto same = [&](const ListedHost& other) { return other.host() == host.host(); };
    if (std::count_if(hosts.begin(), hosts.end(), same) > 1)
      throw ConfigError(text("host ", host.name, " is listed twice"));
  }
}

}  // namespace

std::vector<ListedHost> listed_hosts(const LaunchOptions& options, int each, int total) {
  if (options.hosts.empty() && options.host_file.empty()) return {};
  const auto hosts = options.hosts.empty() ? hosts_of_file(options.host_file, each)
                                           : completed(from_list(options.hosts, "--hosts"), each);
  int sum = 0;
  for (const auto& host : hosts) sum += host.workers;
  refuse_duplicates(hosts);
  if (total != 0 && sum != total)
    throw ConfigError(text("the listed hosts have ", sum, " workers together; the job has ", total));
  return hosts;
}

std::vector<ListedHost> listed_spares(const LaunchOptions& options, int each, const std::vector<ListedHost>& hosts) {
  if (options.spares.empty()) return {};
  const auto spares = completed(from_list(options.spares, "--spares"), each);
  auto all = hosts;
  all.insert(all.end(), spares.begin(), spares.end());
  refuse_duplicates(all);
  return spares;
}

}  // namespace tessera::tsrun
