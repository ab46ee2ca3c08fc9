#include "launch/tsrun/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "launch/tsrun/connection.h"

namespace tessera::tsrun {
namespace {

constexpr const char* secret_variable = "TSRUN_SECRET";

std::string hexadecimal(const unsigned char* bytes, std::size_t count) {
  std::string words;
  for (std::size_t i = 0; i < count; i++) {
    words += "0123456789abcdef"[bytes[i] >> 4];
    words += "0123456789abcdef"[bytes[i] & 15];
  }
  return words;
}

std::string hmac_sha256(const std::string& key, const std::string& words) {
  std::array<unsigned char, 32> sum = {};
  unsigned int size = sum.size();
  const auto* given = reinterpret_cast<const unsigned char*>(words.data());
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), given, words.size(), sum.data(), &size) == nullptr ||
      size != sum.size())
    throw Error("libcrypto cannot compute HMAC-SHA256");
  return hexadecimal(sum.data(), sum.size());
}

std::string read_secret_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat found = {};
  if (!file || fstat(file.number(), &found) != 0)
    throw ConfigError(text("--secret_file ", path, ": ", std::strerror(errno)));
  if (!S_ISREG(found.st_mode)) throw ConfigError(text("--secret_file ", path, ": is not a regular file"));
  if ((found.st_mode & 077) != 0)
    throw ConfigError(text("--secret_file ", path, ": others than its owner have access to it (mode ", std::oct,
                           found.st_mode & 07777, "); put a new secret into a file of mode 600"));
  std::string words(longest_secret + 2, '\0');
  const auto count = read(file.number(), words.data(), words.size());
  if (count < 0) throw ConfigError(text("--secret_file ", path, ": ", std::strerror(errno)));
  words.resize(static_cast<std::size_t>(count));
  return words;
}

/// Removes white space at the end, which editors and `echo` add. Throws ConfigError if the length is out of range.
std::string checked(std::string secret, const std::string& origin) {
  secret.erase(secret.find_last_not_of(" \t\r\n") + 1);
  if (secret.size() < shortest_secret || secret.size() > longest_secret)
    throw ConfigError(text(origin,
                           secret.size() > longest_secret ? text(" has more than ", longest_secret, " bytes")
                                                          : text(" has ", secret.size(), " bytes"),
                           "; a secret has ", shortest_secret, " to ", longest_secret,
                           ": `openssl rand -hex 32` makes one"));
  return secret;
}

}  // namespace

std::string random_letters(std::size_t bytes) {
  std::string random(bytes, '\0');
  if (getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    throw Error("the system has no random numbers");
  return hexadecimal(reinterpret_cast<const unsigned char*>(random.data()), bytes);
}

std::string given_secret(const LaunchOptions& options) {
  const char* variable = std::getenv(secret_variable);
  const std::string value = variable == nullptr ? "" : variable;
  unsetenv(secret_variable);
  if (!options.secret_file.empty())
    return checked(read_secret_file(options.secret_file), "--secret_file " + options.secret_file);
  return value.empty() ? "" : checked(value, secret_variable);
}

std::string workers_key(const std::string& secret, const std::string& salt) {
  return hmac_sha256(secret.empty() ? "no secret" : secret, "tsrun key of workers\n" + salt);
}

std::string proof_of(Prover prover, const std::string& secret, const Handshake& handshake) {
  return hmac_sha256(secret.empty() ? "no secret" : secret,
                     text("tsrun proof of the ", prover == Prover::client ? "client" : "leader", "\n", handshake.role,
                          "\n", handshake.client_nonce, "\n", handshake.leader_nonce));
}

bool same_proof(const std::string& one, const std::string& other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace tessera::tsrun
