#include "launch/tsrun/roles.h"

#include <iostream>

#include "launch/tsrun/follower.h"
#include "launch/tsrun/head.h"

namespace tessera::tsrun {
namespace {

constexpr double patience_with_node_zero = 3;  // seconds that others on its machine give it to lead

/// Whether a tsrun answers there, and not some other program.
bool port_is_taken(const ConfigError& error) { return std::string(error.what()).find("in use") != std::string::npos; }

int follow_or_fail(const LaunchOptions& options, const Endpoint& where, double seconds) {
  std::string why;
  auto head = find_head(where, seconds, why);
  if (head.open()) return follow(options, std::move(head), "", -1, 0);
  throw Error(text("nobody leads at ", where.address, ":", where.port, ": ", why, ". Was the same line started on ",
                   options.master_addr, "?"));
}

}  // namespace

int take_part(const LaunchOptions& options, const std::vector<std::string>& words) {
  const bool listed = !options.hosts.empty() || !options.host_file.empty();
  if (sizes_of(options).one_host || listed) return lead(options, words);
  const Endpoint where = {resolve(options.master_addr.empty() ? "127.0.0.1" : options.master_addr),
                          options.master_port.value_or(options.dialect == Dialect::torchrun ? 29500 : 8118)};
  if (!is_own_address(where.address)) return follow_or_fail(options, where, options.cluster_time_out);
  std::string why;
  if (options.node_rank > 0) {
    auto head = find_head(where, patience_with_node_zero, why);
    if (head.open()) return follow(options, std::move(head), "", -1, 0);
  }
  Descriptor listener;
  try {
    listener = listen_at(where);
  } catch (const ConfigError& error) {
    if (!port_is_taken(error)) throw;
    auto head = find_head(where, 1, why);
    if (!head.open() || !is_tsrun(head)) throw;
    return follow(options, std::move(head), "", -1, 0);
  }
  return lead(options, words, std::move(listener));
}

}  // namespace tessera::tsrun
