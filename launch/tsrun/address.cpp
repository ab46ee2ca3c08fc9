#include "launch/tsrun/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "framework/base/error.h"

namespace tessera::tsrun {

bool is_ipv6(const std::string& words) {
  in6_addr address = {};
  const auto scope = words.find('%');
  return inet_pton(AF_INET6, words.substr(0, scope).c_str(), &address) == 1 && scope + 1 != words.size();
}

std::string bracketed(const std::string& host) { return is_ipv6(host) ? "[" + host + "]" : host; }

std::string without_brackets(const std::string& host) {
  if (host.empty() || host[0] != '[') return host;
  const auto inner = host.substr(1, host.size() - 2);
  if (host.back() != ']' || !is_ipv6(inner))
    throw ConfigError(text("'", host, "' is not an IPv6 address in brackets, such as [::1]"));
  return inner;
}

HostAndNumber split_number(const std::string& words) {
  const auto user = words.rfind('@') + 1;  // index of the host; 0 without a user
  const auto rest = words.substr(user);
  if (is_ipv6(rest)) return {words, ""};
  const auto end = rest.empty() || rest[0] != '[' ? 0 : rest.find(']');
  if (end == std::string::npos) return {words.substr(0, user) + without_brackets(rest), ""};
  const auto colon = end > 0 ? rest.find(':', end) : rest.rfind(':');
  const auto host = words.substr(0, user) + without_brackets(rest.substr(0, colon));
  if (colon == std::string::npos) return {host, ""};
  return {host, rest.substr(colon + 1), true};
}

}  // namespace tessera::tsrun
