#pragma once

#include <string>

#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// Bytes of a secret that a user gives.
inline constexpr std::size_t shortest_secret = 16, longest_secret = 1024;

/// So many random bytes of the system, as hexadecimal digits. Throws Error when there are none.
std::string random_letters(std::size_t bytes);

/// The secret of the same line on each host: what the file of --secret_file has, else TSRUN_SECRET; white space at its
/// end does not count. Empty: none was given. Takes TSRUN_SECRET out of the environment, so that nothing that is
/// started from here has it. Throws ConfigError for a file that others than its owner may read or write, and for a
/// secret of a length that is none.
std::string given_secret(const LaunchOptions& options);

/// What the supervisors of workers and the agents of mpirun prove instead of the secret: it is in their environment,
/// for this job only, and the secret cannot be found from it. `salt`: random, of the job.
std::string workers_key(const std::string& secret, const std::string& salt);

/// What a proof is computed from beside the secret.
struct Handshake {
  std::string role;                        ///< of the one who connects
  std::string client_nonce, leader_nonce;  ///< random, of this connection; 64 hexadecimal digits
};
enum class Prover { client, leader };

/// HMAC-SHA256 with the secret as key, in hexadecimal digits. An empty secret stands for none: who has none proves
/// that.
std::string proof_of(Prover prover, const std::string& secret, const Handshake& handshake);
/// Takes equally long whatever differs.
bool same_proof(const std::string& one, const std::string& other);

}  // namespace tessera::tsrun
