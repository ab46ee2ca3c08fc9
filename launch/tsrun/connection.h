#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/base/error.h"

namespace tessera {

/// What the parts of tsrun say to each other: an object whose "is" names what it is. A line of JSON on the wire.
using Message = nlohmann::json;

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

/// A stream of messages. Nothing in it waits but flush().
class Connection {
 public:
  Connection() = default;
  explicit Connection(Descriptor socket);

  bool open() const { return static_cast<bool>(socket_); }
  int number() const { return socket_.number(); }
  const Descriptor& socket() const { return socket_; }
  void send(const Message& message);
  /// What has come since; sets open() to false at the end of the stream or when it carries no messages of ours.
  std::vector<Message> receive();
  bool wants_to_write() const { return !out_.empty(); }
  void write_more();
  /// Send what is left, for at most so long.
  void flush(double seconds);
  void close() { socket_.close(); }
  /// Seconds since something came.
  double silence() const;

 private:
  void take_lines(std::vector<Message>& into);
  Descriptor socket_;
  std::string in_, out_;
  double last_ = 0;
};

/// Seconds by the clock that never jumps.
double now();

}  // namespace tessera
