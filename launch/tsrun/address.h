#pragma once

#include <string>

namespace tessera::tsrun {

/// Whether `words` is an IPv6 address in text form, such as "::1" or "fe80::1%eth0", without brackets.
bool is_ipv6(const std::string& words);

/// `host` as it is written before ":PORT": an IPv6 address in brackets, anything else unchanged.
std::string bracketed(const std::string& host);

/// Removes the brackets of "[::1]". Throws ConfigError if what is in brackets is not an IPv6 address.
std::string without_brackets(const std::string& host);

/// A host with the number behind it, as text.
struct HostAndNumber {
  std::string host;  ///< without brackets
  std::string number;
  bool has_number = false;  ///< a colon follows the host, also if the number is empty
};

/// Reads "HOST", "HOST:NUMBER", "[ADDRESS]" or "[ADDRESS]:NUMBER". What can be read as an IPv6 address is one: "::1:2"
/// has no number, "::1:29500" has one. Throws ConfigError for brackets that are not closed or hold no IPv6 address.
HostAndNumber split_number(const std::string& words);

}  // namespace tessera::tsrun
