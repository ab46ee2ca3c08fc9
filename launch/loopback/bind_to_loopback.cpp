// Preloaded into mpirun by tsrun when all workers are on one host. Open MPI's out-of-band component listens on all
// interfaces whatever oob_tcp_if_include says, and has no parameter for the address. Here every socket that would be
// bound to all addresses is bound to the loopback address. Uses nothing of C++'s library.
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <cstdlib>

namespace {

using Bind = int (*)(int, const sockaddr*, socklen_t);

/// mpirun's children, the watchers of the workers, are not meant: they take LD_PRELOAD from mpirun's environment.
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

}  // namespace

extern "C" __attribute__((visibility("default"))) int bind(int socket, const sockaddr* address, socklen_t size) {
  static const auto system_bind = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
  sockaddr_in four = {};
  sockaddr_in6 six = {};
  if (address != nullptr && address->sa_family == AF_INET && size >= sizeof four) {
    memcpy(&four, address, sizeof four);
    if (four.sin_addr.s_addr == htonl(INADDR_ANY)) {
      four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      return system_bind(socket, reinterpret_cast<const sockaddr*>(&four), sizeof four);
    }
  }
  if (address != nullptr && address->sa_family == AF_INET6 && size >= sizeof six) {
    memcpy(&six, address, sizeof six);
    if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr)) {
      six.sin6_addr = in6addr_loopback;
      return system_bind(socket, reinterpret_cast<const sockaddr*>(&six), sizeof six);
    }
  }
  return system_bind(socket, address, size);
}
