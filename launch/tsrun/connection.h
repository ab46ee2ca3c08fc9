#pragma once

#include <poll.h>

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "framework/base/error.h"

namespace tessera::tsrun {

/// Owns a file descriptor of the system and closes it.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }
  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void close();

 private:
  int number_;
};

/// An IPv4 or IPv6 address and a port.
struct Endpoint {
  std::string address;  ///< as getnameinfo() writes it, without brackets: "10.0.0.1", "::1", "fe80::1%eth0"
  int port = 0;
};
/// "10.0.0.1:8118" or "[::1]:8118".
std::string words_of(const Endpoint& where);
/// Reads what words_of() wrote. Throws BugError for other text.
Endpoint endpoint_of(const std::string& words);

/// Returns the address of a host name or of an address in text form; of a name that has both an IPv4 and an IPv6
/// address, the IPv4 address. Throws ConfigError that names `host` if it is unknown.
std::string resolve(const std::string& host);
/// Whether `address`, as in Endpoint, is of the loopback interface.
bool is_loopback(const std::string& address);

/// Returns a socket that listens for connections. Port 0: any free port. Throws ConfigError if the port is in use or
/// the address does not belong to this host.
Descriptor listen_at(const Endpoint& where);
Endpoint local_endpoint(const Descriptor& socket);
Endpoint peer_endpoint(const Descriptor& socket);

/// Connects to `where` and waits for at most `seconds`. On failure it returns a descriptor that is not open and stores
/// the reason in `why`.
Descriptor connect_to(const Endpoint& where, double seconds, std::string& why);

/// Returns a datagram socket that is connected to `where`; no packet is sent. Its local_endpoint() is the address of
/// this host on the route to `where`. Throws ConfigError if there is no route.
Descriptor datagram_towards(const Endpoint& where);

/// A stream socket that carries lines of text; each line is one message (messages.h). No function waits, except
/// flush(). For one thread.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Descriptor socket);

  bool open() const { return static_cast<bool>(socket_); }
  int number() const { return socket_.number(); }
  const Descriptor& socket() const { return socket_; }
  void send(const std::string& line);
  /// Reads what the other side has sent, at most 1 MiB. Closes the connection at the end of the stream; refuses it (see
  /// refuse()) if a line is longer than 8 MiB or limit() is exceeded.
  void fill();
  /// Allows the other side to send at most `bytes` more bytes until lift_limit().
  void limit(std::size_t bytes) { allowed_ = bytes; }
  void lift_limit() { allowed_.reset(); }
  /// Removes and returns the next complete line that has been read, also after the connection was closed; empty if
  /// there is none.
  std::optional<std::string> take_line();
  /// Bytes that have been read and not been returned by take_line().
  std::size_t buffered() const { return in_.size() - begin_; }
  /// Seconds since the first byte of the unfinished line was read; 0: there is no unfinished line.
  double line_age() const;
  bool wants_to_write() const { return !out_.empty(); }
  void write_more();
  /// Sends all lines that wait to be sent; waits for at most `seconds`.
  void flush(double seconds);
  void close() { socket_.close(); }
  /// Closes the connection because of what the other side sent, discards all bytes that were read, and keeps `why` for
  /// problem().
  void refuse(const std::string& why);
  /// The reason given to refuse(); empty: the connection was not refused.
  const std::string& problem() const { return problem_; }
  /// Address of the other side.
  const std::string& peer() const { return peer_; }
  /// Seconds since the last byte was read, or since the connection was made.
  double silence() const;
  /// Whether the other side has sent nothing for more than `seconds`. What it has sent counts though it is not read
  /// yet: a process that was stopped may send between a fill() and this call. Decide by this, never by silence(), that
  /// a process is lost, and look at its status before: its last sign of life is then not missed.
  bool is_silent_for(double seconds) const { return silence() > seconds && !has_unread(); }

 private:
  /// Whether bytes, or the end of the stream, wait to be read.
  bool has_unread() const;

  Descriptor socket_;
  std::string in_, out_, peer_, problem_;
  std::optional<std::size_t> allowed_;  ///< bytes that the other side may still send; absent: no limit
  std::size_t begin_ = 0;               ///< index in `in_` of the first byte that take_line() has not returned
  std::size_t scanned_ = 0;             ///< index in `in_` of the first byte that was not searched for a line end
  double last_ = 0;
  double line_began_ = 0;  ///< time by now() of the first byte of the unfinished line; 0: there is none
};

/// Seconds of the WatchClock of this thread: time in which this process was stopped or got no core does not count, so
/// no time-out of tsrun blames others for it.
double now();
/// Seconds of the system's monotonic clock: for what is due at a time, such as a message every second.
double real_now();
/// poll() for at most `seconds`; a longer wait, because this process was late, does not count for now().
void wait_for(std::span<pollfd> watched, double seconds);

}  // namespace tessera::tsrun
