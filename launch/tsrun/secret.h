#pragma once

#include <string>

#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// Limits of the length of a secret, in bytes.
inline constexpr std::size_t shortest_secret = 16, longest_secret = 1024;

/// Returns `bytes` random bytes of the system as 2 * `bytes` hexadecimal digits. Throws Error if the system has none.
std::string random_letters(std::size_t bytes);

/// Returns the secret for the same command on each host: the content of --secret_file, else of TSRUN_SECRET, without
/// white space at the end. Empty: none was given. Removes TSRUN_SECRET from the environment, so that child processes do
/// not have it. Throws ConfigError if the file cannot be read, if others than its owner have access to it, or if the
/// secret is too short or too long.
std::string given_secret(const LaunchOptions& options);

/// Returns the key that supervisors of workers and agents of mpirun prove instead of the secret. They have it in their
/// environment. It is valid for one job, and the secret cannot be computed from it. `salt`: random text of the job.
std::string workers_key(const std::string& secret, const std::string& salt);

/// The values from which a proof is computed, besides the secret.
struct Handshake {
  std::string role;                        ///< role of the client: name_of(Role)
  std::string client_nonce, leader_nonce;  ///< random, new for each connection; 64 hexadecimal digits each
};
/// Which side computes a proof.
enum class Prover { client, leader };

/// Returns HMAC-SHA256 of `prover` and `handshake` with the secret as key, as 64 hexadecimal digits. An empty secret
/// means that none is used; a fixed key takes its place.
std::string proof_of(Prover prover, const std::string& secret, const Handshake& handshake);
/// Compares two proofs in constant time, so that the duration does not tell where they differ.
bool same_proof(const std::string& one, const std::string& other);

}  // namespace tessera::tsrun
