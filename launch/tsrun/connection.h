#pragma once

#include <optional>
#include <string>
#include <utility>

#include "framework/base/error.h"

namespace tessera::tsrun {

/// An open file of the system that closes itself.
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

/// A host's address and a port, IPv4.
struct Endpoint {
  std::string address;
  int port = 0;
};

/// The IPv4 address of a name or of an address. Throws ConfigError that names it.
std::string resolve(const std::string& host);

/// Listen for connections. Port 0: any free one. Throws ConfigError when the port is in use or the address none of this
/// host's.
Descriptor listen_at(const Endpoint& where);
Endpoint local_endpoint(const Descriptor& socket);
Endpoint peer_endpoint(const Descriptor& socket);

/// Connect, for at most so long. A descriptor that is not open, with the reason in `why`, when nobody answers.
Descriptor connect_to(const Endpoint& where, double seconds, std::string& why);

/// A datagram socket that knows its way to there, though nothing is sent: its local address is that of the route.
Descriptor datagram_towards(const Endpoint& where);

/// A stream of lines, each a message (messages.h). Nothing in it waits but flush().
class Connection {
 public:
  Connection() = default;
  explicit Connection(Descriptor socket);

  bool open() const { return static_cast<bool>(socket_); }
  int number() const { return socket_.number(); }
  const Descriptor& socket() const { return socket_; }
  void send(const std::string& line);
  /// Take what has come since, at most 1 MiB; closes at the end of the stream, and when a line is too long or the limit
  /// is passed.
  void fill();
  /// From now on the other side may send so many bytes in all.
  void limit(std::size_t bytes) { allowed_ = bytes; }
  void lift_limit() { allowed_.reset(); }
  /// The next whole line that has come, also after the end of the stream.
  std::optional<std::string> take_line();
  /// Bytes that have come and are not taken.
  std::size_t buffered() const { return in_.size() - begin_; }
  /// Seconds since the line began that has not ended yet; 0: there is none.
  double line_age() const;
  bool wants_to_write() const { return !out_.empty(); }
  void write_more();
  /// Send what is left, for at most so long.
  void flush(double seconds);
  void close() { socket_.close(); }
  /// Close because of what the other side sent, and forget what else it has sent.
  void refuse(const std::string& why);
  /// Why it was refused; empty: it was not.
  const std::string& problem() const { return problem_; }
  /// The address of the other side.
  const std::string& peer() const { return peer_; }
  /// Seconds since something came.
  double silence() const;

 private:
  Descriptor socket_;
  std::string in_, out_, peer_, problem_;
  std::optional<std::size_t> allowed_;  ///< bytes that may still come
  std::size_t begin_ = 0;               ///< of `in_`: the first byte that is not taken
  std::size_t scanned_ = 0;             ///< the first byte that may end a line
  double last_ = 0;
  double line_began_ = 0;  ///< 0: no line has begun
};

/// Seconds by the clock that never jumps.
double now();

}  // namespace tessera::tsrun
