// Preloaded into mpirun and its daemons by tsrun. Open MPI's out-of-band component listens on all interfaces whatever
// oob_tcp_if_include says, and on any port. Here every socket that would be bound to all addresses is bound to the one
// in TSRUN_LISTEN, at a port of `ports` if any would do; to the loopback address of the socket's family if there is no
// such variable or its address is of the other family. Uses nothing of C++'s library.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace {

using Bind = int (*)(int, const sockaddr*, socklen_t);

struct Ports {
  int first, count;
};
constexpr Ports ports = {61000, 1000};  // docs/launching.md lists them

/// mpirun's children, the supervisors of the workers, are not meant: they take LD_PRELOAD from mpirun's environment.
__attribute__((constructor)) void leave_the_environment() {
  Dl_info own = {};
  char* list = getenv("LD_PRELOAD");
  if (list == nullptr || dladdr(reinterpret_cast<void*>(&leave_the_environment), &own) == 0) return;
  const auto length = strlen(own.dli_fname);
  if (strncmp(list, own.dli_fname, length) != 0) return;
  if (list[length] == ':')
    memmove(list, list + length + 1, strlen(list + length + 1) + 1);
  else if (list[length] == '\0')
    unsetenv("LD_PRELOAD");
}

/// Bind to a free port of `ports`, or to any when there is none. Jobs on one host begin at different ones. `port`: the
/// member of `address`.
template <class Address>
int bind_to_port(Bind system_bind, int socket, Address& address, in_port_t& port) {
  const int begin = static_cast<int>(getpid()) % ports.count;
  for (int i = 0; i < ports.count; i++) {
    port = htons(static_cast<in_port_t>(ports.first + (begin + i) % ports.count));
    const int code = system_bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (code == 0 || errno != EADDRINUSE) return code;
  }
  port = 0;
  return system_bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

/// Stores the address of TSRUN_LISTEN in `into`; false if there is none of this family.
bool listen_address(int family, void* into) {
  const char* named = getenv("TSRUN_LISTEN");
  return named != nullptr && inet_pton(family, named, into) == 1;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int bind(int socket, const sockaddr* address, socklen_t size) {
  static const auto system_bind = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
  sockaddr_in four = {};
  sockaddr_in6 six = {};
  if (address != nullptr && address->sa_family == AF_INET && size >= sizeof four) {
    memcpy(&four, address, sizeof four);
    if (four.sin_addr.s_addr == htonl(INADDR_ANY)) {
      four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const bool other = listen_address(AF_INET, &four.sin_addr);
      if (other && four.sin_port == 0) return bind_to_port(system_bind, socket, four, four.sin_port);
      return system_bind(socket, reinterpret_cast<const sockaddr*>(&four), sizeof four);
    }
  }
  if (address != nullptr && address->sa_family == AF_INET6 && size >= sizeof six) {
    memcpy(&six, address, sizeof six);
    if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr)) {
      six.sin6_addr = in6addr_loopback;
      const bool other = listen_address(AF_INET6, &six.sin6_addr);
      if (other && six.sin6_port == 0) return bind_to_port(system_bind, socket, six, six.sin6_port);
      return system_bind(socket, reinterpret_cast<const sockaddr*>(&six), sizeof six);
    }
  }
  return system_bind(socket, address, size);
}
