#include "launch/tsrun/connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "framework/base/watch_clock.h"
#include "launch/tsrun/address.h"

namespace tessera::tsrun {
namespace {

constexpr double usual_delay = .05;  // seconds by which the system ends a wait too late
thread_local WatchClock watch_clock;

constexpr std::size_t longest_line = 8 << 20;  // a message with a whole environment is shorter
constexpr std::size_t most_read_at_once = 1 << 20;

/// An address of the system, of either family.
struct SystemAddress {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

/// Numeric addresses only: no name service is asked. A text that is no address gives the family 0, with which the
/// system's calls fail.
SystemAddress system_address(const Endpoint& where) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  SystemAddress address;
  if (getaddrinfo(where.address.c_str(), std::to_string(where.port).c_str(), &hints, &found) != 0) return address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

Endpoint endpoint(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "0";
  getnameinfo(address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return {host, std::stoi(port)};
}

void set_options(int socket, bool waits) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(socket, F_SETFL, waits ? 0 : O_NONBLOCK);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    number_ = std::exchange(other.number_, -1);
  }
  return *this;
}

void Descriptor::close() {
  if (number_ >= 0) ::close(std::exchange(number_, -1));
}

double now() { return watch_clock.seconds(); }

double real_now() { return WatchClock::steady_seconds(); }

void wait_for(std::span<pollfd> watched, double seconds) {
  watch_clock.seconds();
  poll(watched.data(), watched.size(), static_cast<int>(seconds * 1000));
  watch_clock.waited(seconds + usual_delay);
}

std::string words_of(const Endpoint& where) { return text(bracketed(where.address), ":", where.port); }

Endpoint endpoint_of(const std::string& words) {
  const auto parts = split_number(words);
  must(parts.has_number && !parts.number.empty(), "an endpoint is ADDRESS:PORT");
  return {parts.host, std::stoi(parts.number)};
}

std::string resolve(const std::string& host) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  int problem = 0;
  for (const int family : {AF_INET, AF_INET6}) {
    hints.ai_family = family;
    problem = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (problem == 0 && found != nullptr) break;
  }
  if (problem != 0 || found == nullptr)
    throw ConfigError(text("no host '", host, "' is known here (", gai_strerror(problem), ")"));
  const auto address = endpoint(found->ai_addr, found->ai_addrlen).address;
  freeaddrinfo(found);
  return address;
}

bool is_loopback(const std::string& address) { return address.rfind("127.", 0) == 0 || address == "::1"; }

Descriptor listen_at(const Endpoint& where) {
  auto address = system_address(where);
  Descriptor listener(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener.number(), address.get(), address.size) != 0 || listen(listener.number(), 1024) != 0) {
    if (errno == EADDRINUSE)
      throw ConfigError(text("port ", where.port, " of ", where.address,
                             " is in use by another program; choose another --master_port"));
    if (errno == EADDRNOTAVAIL) throw ConfigError(text(where.address, " is not an address of this host"));
    throw ConfigError(text("cannot listen at ", words_of(where), ": ", std::strerror(errno)));
  }
  set_options(listener.number(), false);
  return listener;
}

Endpoint local_endpoint(const Descriptor& socket) {
  SystemAddress address;
  getsockname(socket.number(), address.get(), &address.size);
  return endpoint(address.get(), address.size);
}

Endpoint peer_endpoint(const Descriptor& socket) {
  SystemAddress address;
  getpeername(socket.number(), address.get(), &address.size);
  return endpoint(address.get(), address.size);
}

Descriptor connect_to(const Endpoint& where, double seconds, std::string& why) {
  auto address = system_address(where);
  Descriptor end(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(end.number(), address.get(), address.size) != 0) {
    int problem = errno;
    if (problem == EINPROGRESS) {
      pollfd waiting = {end.number(), POLLOUT, 0};
      socklen_t size = sizeof problem;
      if (poll(&waiting, 1, static_cast<int>(seconds * 1000)) == 1)
        getsockopt(end.number(), SOL_SOCKET, SO_ERROR, &problem, &size);
      else
        problem = ETIMEDOUT;
    }
    if (problem != 0) {
      why = std::strerror(problem);
      return Descriptor();
    }
  }
  set_options(end.number(), false);
  return end;
}

Descriptor datagram_towards(const Endpoint& where) {
  auto address = system_address(where);
  Descriptor end(socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (connect(end.number(), address.get(), address.size) != 0)
    throw ConfigError(text("there is no route to ", where.address, ": ", std::strerror(errno)));
  return end;
}

Connection::Connection(Descriptor socket) : socket_(std::move(socket)), last_(now()) {
  if (!socket_) return;
  set_options(socket_.number(), false);
  peer_ = peer_endpoint(socket_).address;
}

double Connection::silence() const { return now() - last_; }

bool Connection::has_unread() const {
  char byte = 0;
  return recv(socket_.number(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

double Connection::line_age() const { return line_began_ == 0 ? 0 : now() - line_began_; }

void Connection::refuse(const std::string& why) {
  problem_ = why;
  in_.clear();
  begin_ = scanned_ = 0;
  line_began_ = 0;
  close();
}

void Connection::send(const std::string& line) {
  if (!open()) return;
  out_ += line + "\n";
  write_more();
}

void Connection::write_more() {
  while (open() && !out_.empty()) {
    const auto sent = ::send(socket_.number(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      // What the other side sent before it ended can still be read; fill() notices the end.
      if (errno != EAGAIN) out_.clear();
      return;
    }
    out_.erase(0, static_cast<std::size_t>(sent));
  }
}

void Connection::flush(double seconds) {
  const double until = now() + seconds;
  for (write_more(); open() && !out_.empty() && now() < until; write_more()) {
    pollfd waiting = {socket_.number(), POLLOUT, 0};
    wait_for({&waiting, 1}, .05);
  }
}

void Connection::fill() {
  char bytes[16384];
  for (std::size_t taken = 0; open() && taken < most_read_at_once;) {
    // One byte more than allowed shows whether the other side sends too much.
    const auto most = allowed_ ? std::min(sizeof bytes, *allowed_ + 1) : sizeof bytes;
    const auto count = recv(socket_.number(), bytes, most, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) {
      close();
      break;
    }
    if (allowed_ && static_cast<std::size_t>(count) > *allowed_) return refuse("more bytes than it may send");
    if (allowed_) *allowed_ -= static_cast<std::size_t>(count);
    last_ = now();
    if (line_began_ == 0) line_began_ = last_;
    in_.append(bytes, static_cast<std::size_t>(count));
    taken += static_cast<std::size_t>(count);
    if (buffered() > longest_line && in_.find('\n', scanned_) == std::string::npos)
      return refuse(text("a line of more than ", longest_line, " bytes"));
  }
}

std::optional<std::string> Connection::take_line() {
  const auto end = in_.find('\n', scanned_);
  if (end == std::string::npos) {
    // Lines that were returned are removed only here, so that the bytes of one read are not moved once for each line.
    in_.erase(0, begin_);
    begin_ = 0;
    scanned_ = in_.size();
    return {};
  }
  auto line = in_.substr(begin_, end - begin_);
  begin_ = scanned_ = end + 1;
  line_began_ = buffered() == 0 ? 0 : now();
  return line;
}

}  // namespace tessera::tsrun
