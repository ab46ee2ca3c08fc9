#include "launch/tsrun/roles.h"

#include <iostream>

#include "launch/tsrun/follower.h"
#include "launch/tsrun/handshake.h"
#include "launch/tsrun/leader.h"
#include "launch/tsrun/logger.h"

namespace tessera::tsrun {
namespace {

constexpr double patience_after_drop = 10;     // seconds that a spare host waits until the leader listens again
constexpr double patience_with_node_zero = 3;  // seconds that the other shells of its machine let node_rank 0 lead

bool port_is_taken(const ConfigError& error) { return std::string(error.what()).find("in use") != std::string::npos; }

[[noreturn]] void fail_without_head(const LaunchOptions& options, const Endpoint& where, const Failure& failure) {
  if (failure.kind == Failure::Kind::secret) throw ConfigError(failure.words);
  if (failure.kind == Failure::Kind::not_tsrun)
    throw Error(text("the leading tsrun, on ", where.address, ", sent ", failure.words,
                     " (is it of another version, or another program?)"));
  throw Error(text("no tsrun answers at ", words_of(where), ": ", failure.words, ". Was the same line started on ",
                   options.master_addr, "?"));
}

constexpr const char* remedy =
    "give all hosts the same --secret_file or TSRUN_SECRET (`openssl rand -hex 32` makes one)";

}  // namespace

int take_part(const LaunchOptions& options, const std::vector<std::string>& words) {
  const bool listed = !options.hosts.empty() || !options.host_file.empty();
  if (listed && !options.secret_file.empty())
    throw ConfigError(
        "--secret_file is for the same line on each host; with --hosts tsrun makes a secret for each job");
  const auto secret = given_secret(options);
  if (sizes_of(options).one_host || listed) return lead(options, words, random_letters(32));
  const Endpoint where = {resolve(options.master_addr.empty() ? "127.0.0.1" : options.master_addr),
                          options.master_port.value_or(options.dialect == Dialect::torchrun ? 29500 : 8118)};
  const bool own = is_own_address(where.address);
  if (options.require_secret && secret.empty() && !is_loopback(where.address))
    throw ConfigError(text("--require_secret: no secret is given; ", remedy));
  Failure failure;
  const auto find = [&](double seconds) { return find_leader(where, Role::host, secret, seconds, failure); };
  if (!own || options.node_rank > 0 || options.spare) {
    auto leader = find(own && !options.spare ? patience_with_node_zero : options.cluster_time_out);
    while (leader.open()) {
      const int code = follow(options, std::move(leader), secret);
      if (code != spare_was_dropped) return code;
      leader = find(patience_after_drop);
    }
    const bool somebody = failure.kind == Failure::Kind::secret || failure.kind == Failure::Kind::not_tsrun;
    if (!own || options.spare || somebody) fail_without_head(options, where, failure);
  }
  Descriptor listener;
  try {
    listener = listen_at(where);
  } catch (const ConfigError& error) {
    if (!port_is_taken(error)) throw;
    auto leader = find(1);
    if (leader.open()) return follow(options, std::move(leader), secret);
    if (failure.kind == Failure::Kind::secret) fail_without_head(options, where, failure);
    throw;
  }
  if (secret.empty() && !is_loopback(where.address))
    logger.warning(text("tsrun: no secret is given: any program that reaches port ", where.port, " of ", where.address,
                        " can take part in the job; ", remedy));
  return lead(options, words, secret, std::move(listener));
}

}  // namespace tessera::tsrun
